"""What a table of results consists of: what to measure, how, and how to show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .jobs import Settings, Tick

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
    goal: float | None = None
    """What would be better still, where there is such a figure."""
    below: bool = False
    """Whether the goal has to be beaten, not only reached."""

    @property
    def met(self) -> bool:
        """Compared to the digits that a table shows."""
        found, bar = round(self.found, 2), round(self.bar, 2)
        return found >= bar if self.at_least else found <= bar

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached as well; None where there is none."""
        if self.goal is None:
            return None
        found, goal = round(self.found, 2), round(self.goal, 2)
        if self.below:
            return found < goal
        return found >= goal if self.at_least else found <= goal

    @property
    def goal_text(self) -> str:
        """The goal with its direction."""
        sign = "<" if self.below else "≥" if self.at_least else "≤"
        return "" if self.goal is None else f"{sign} {self.goal:,.2f}"

    @property
    def result(self) -> str:
        """In a word or two."""
        return "MISSED" if not self.met else "met, and the goal" if self.reached else "met"

    def __str__(self) -> str:
        return f"{self.name}: {self.what} is {self.found:,.2f}, the bar {self.bar_text}"

    @property
    def bar_text(self) -> str:
        """The bar with its direction."""
        return f"{'≥' if self.at_least else '≤'} {self.bar:,.2f}"


def bars_grid(checks: Sequence[Check]) -> Grid:
    """Every bar, what was measured, and whether it was met."""
    lines = [[c.name, c.what, f"{c.found:,.2f}", c.bar_text, c.goal_text, c.result] for c in checks]
    return Grid("Bars", ("", "what", "measured", "bar", "goal", "result"), lines)


@dataclass(frozen=True)
class Section:
    """One kind of measurement; its name is a word of the command line and a file's stem.

    Attributes
    ----------
    name, title : str
    labels : callable
        The labels to measure, one process each, for the groups of workloads asked for.
    measure : callable
        `measure(label, settings, on_round)` returns a row as plain data; runs in a process of its own.
    grids : callable
        Rows as tables.
    checks : callable
        Rows as figures beside the bars that apply.
    plot : callable, optional
        `plot(rows, folder)` draws and returns the paths.
    of_workloads : bool
        Whether the groups of workloads restrict it.
    alone : callable
        Whether a label is timed, so that nothing else may run beside it.
    counts : callable
        The workload whose counts a row needs, or None; they are counted once for all sections.
    joined : callable
        `joined(row, counts)` completes a row.
    patient : bool
        Whether a row that is not there in time is a result and no failure.
    preface : str
        What stands before the tables.
    expected : float
        Seconds that a row takes, where no earlier run tells.
    """

    name: str
    title: str
    labels: Callable[[Sequence[str]], list[str]]
    measure: Callable[[str, Settings, Tick], Row]
    grids: Callable[[list[Row]], list[Grid]]
    checks: Callable[[list[Row]], list[Check]] = lambda rows: []
    plot: Callable[[list[Row], Path], list[Path]] | None = None
    of_workloads: bool = True
    alone: Callable[[str], bool] = lambda label: True
    counts: Callable[[str], str | None] = lambda label: None
    joined: Callable[[Row, Row], Row] = lambda row, counts: row
    patient: bool = False
    preface: str = ""
    expected: float = 5.0
