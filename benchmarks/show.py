"""Tables for a terminal, and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from .section import Grid, Row, Section


def terminal(grid: Grid) -> Table:
    """One table for rich; columns of figures are flush right."""
    table = Table(title=grid.title, caption=grid.caption, box=SIMPLE_HEAD)
    for i, heading in enumerate(grid.headings):
        table.add_column(heading, justify="right" if i and numbers(line[i] for line in grid.lines) else "left")
    for line in grid.lines:
        table.add_row(*map(escape, line))
    return table


def numbers(cells: Iterable[str]) -> bool:
    """Does every cell that is not empty begin with a digit?"""
    return all(cell[0].isdigit() or cell[0] in "−-—" for cell in cells if cell)


def table(grid: Grid) -> list[str]:
    """The lines of a Markdown table."""
    align = ["---", *("---:" if numbers(line[i] for line in grid.lines) else "---"
                      for i in range(1, len(grid.headings)))]
    lines: list[Any] = [grid.headings, align, *grid.lines]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def markdown(
    section: Section, grids: list[Grid], about: dict[str, Any], pictures: list[str], remarks: list[str]
) -> str:
    """A whole page of results; the conditions first, and what is missing."""
    lines = [f"# {section.title}", "", f"Written by `{about['command']}`.", ""]
    lines += [", ".join(f"{key} {value}" for key, value in about.items() if key != "command") + ".", ""]
    lines += [line for text in (section.preface, *remarks) if text for line in (text, "")]
    for grid in grids:
        lines += [f"## {grid.title}", "", *([grid.caption, ""] if grid.caption else []), *table(grid), ""]
    lines += [line for picture in pictures for line in (f"![{picture}]({picture})", "")]
    return "\n".join(lines).rstrip() + "\n"


def notes(rows: list[Row]) -> list[str]:
    """Remarks of the rows, each once, and what failed."""
    found = [note for row in rows for note in row.get("notes", [])]
    found += [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    return list(dict.fromkeys(found))
