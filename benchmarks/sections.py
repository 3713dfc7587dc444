"""Every section by name, in the order in which a complete run goes through them."""

from __future__ import annotations

from collections.abc import Callable

from . import (
    budget,
    counts,
    cse,
    explaining,
    memory,
    packages,
    plans,
    profiles,
    regions,
    scaling,
    times,
    whole_programs,
)
from .jobs import Settings, Tick
from .peers import table as peers
from .section import Row, Section

SECTIONS: dict[str, Section] = {s.name: s for s in (
    times.SECTION, whole_programs.SECTION, packages.SECTION, regions.SECTION, plans.SECTION, memory.SECTION,
    budget.SECTION, cse.SECTION, scaling.SECTION, explaining.SECTION, profiles.SECTION, peers.SECTION,
)}
"""Name on the command line and stem of the files -> section; what a reader asks for first comes first."""

COUNTS = "counts"
MEASURED: dict[str, Callable[[str, Settings, Tick], Row]] = {
    **{name: section.measure for name, section in SECTIONS.items()}, COUNTS: counts.measure_counts}
"""What a process of its own may be asked to measure."""
