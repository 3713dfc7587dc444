"""What a table of results consists of: what to measure, how, and how to show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .jobs import Settings

Row = dict[str, Any]
Lines = list[list[str]]


@dataclass(frozen=True)
class Grid:
    """One table: headings, lines of cells, and a sentence above."""

    title: str
    headings: Sequence[str]
    lines: Lines
    caption: str = ""


class Check(NamedTuple):
    """A figure beside its bar."""

    name: str
    what: str
    found: float
    bar: float
    at_least: bool = False
    """Whether the bar is a least instead of a most."""

    @property
    def met(self) -> bool:
        """Compared to the digits that a table shows."""
        found, bar = round(self.found, 2), round(self.bar, 2)
        return found >= bar if self.at_least else found <= bar

    def __str__(self) -> str:
        return f"{self.name}: {self.what} is {self.found:,.2f}, the bar {self.bar_text}"

    @property
    def bar_text(self) -> str:
        """The bar with its direction."""
        return f"{'≥' if self.at_least else '≤'} {self.bar:,.2f}"


def bars_grid(checks: Sequence[Check]) -> Grid:
    """Every bar, what was measured, and whether it was met."""
    lines = [[c.name, c.what, f"{c.found:,.2f}", c.bar_text, "met" if c.met else "MISSED"] for c in checks]
    return Grid("Bars", ("", "what", "measured", "bar", "result"), lines)


@dataclass(frozen=True)
class Section:
    """One kind of measurement; its name is a word of the command line and a file's stem.

    Attributes
    ----------
    name, title : str
    labels : callable
        The labels to measure, one process each, for the groups of workloads asked for.
    measure : callable
        `measure(label, settings, on_round)` returns a row as plain data; runs in the process of its own.
    grids : callable
        Rows as tables.
    checks : callable
        Rows as figures beside the bars that apply.
    plot : callable, optional
        `plot(rows, folder)` draws and returns the paths.
    of_workloads : bool
        Whether the groups of workloads restrict it.
    """

    name: str
    title: str
    labels: Callable[[Sequence[str]], list[str]]
    measure: Callable[[str, Settings, Callable[[], None]], Row]
    grids: Callable[[list[Row]], list[Grid]]
    checks: Callable[[list[Row]], list[Check]] = lambda rows: []
    plot: Callable[[list[Row], Path], list[Path]] | None = None
    of_workloads: bool = True
