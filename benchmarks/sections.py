"""Every section by name, in the order in which a complete run goes through them."""

from __future__ import annotations

from . import budget, cse, explaining, memory, profiles, scaling, times
from .peers import table as peers
from .section import Section

SECTIONS: dict[str, Section] = {s.name: s for s in (
    times.SECTION, cse.SECTION, memory.SECTION, scaling.SECTION, budget.SECTION, profiles.SECTION, peers.SECTION,
    explaining.SECTION,
)}
"""Name on the command line and stem of the files -> section."""
