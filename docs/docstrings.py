"""How this project's docstrings are read: as NumPy's, with each parameter on one line.

    name : what it means,
        continued

is NumPy's entry of a name without a type, and an example ends the section before it.
"""

from __future__ import annotations

import re
from typing import Any

ENTRIES = frozenset({"Parameters", "Attributes", "Raises"})
ENTRY = re.compile(r"(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*) : (.*)")


def canonical(lines: list[str]) -> list[str]:
    """The lines as NumPy's style has them.

    >>> canonical(["Parameters", "----------", "x : a number,", "    not zero.", "", ">>> f(1)"])
    ['Parameters', '----------', 'x', '    a number,', '    not zero.', '', '', 'Examples', '--------', '>>> f(1)']
    """
    found, section = list[str](), ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and re.fullmatch("-{3,}", below):
            section = line
        if line.startswith(">>>") and section not in ("", "Examples"):
            found += ["", "Examples", "--------"]
            section = "Examples"
        entry = ENTRY.fullmatch(line) if section in ENTRIES else None
        found += [entry[1], f"    {entry[2]}"] if entry else [line]
    return found


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx: before napoleon reads the docstrings, and after it has added types."""
    def rewrite(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = canonical(lines)

    def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        for i, line in enumerate(lines):
            if line.startswith(":vartype"):             # numpy's object_ would be a reference
                lines[i] = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", line)

    app.connect("autodoc-process-docstring", rewrite, priority=400)
    app.connect("autodoc-process-docstring", escape, priority=600)
    return {"parallel_read_safe": True}
