"""Section `algorithms`: whole programs as people write them, as written and optimized, beside torch eager."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from . import bars
from .algorithms import ALGORITHMS, Program, inference, networks, physics, training
from .jobs import Settings, Tick
from .measure import EAGER, OFF, ON, Timing, Variant, alone, measure, recorded
from .section import Check, Grid, Row, Section
from .workload import Workload

MODULES = (inference, networks, physics, training)
"""Importing a module registers its programs in `ALGORITHMS`."""
CAPTION = (
    "Time of a whole program, its setting up of data and networks included, as a share of torch eager: median of the "
    "rounds, quartiles in parentheses. Programs are float64 and small, so that the interpreter, recording and the "
    "engine weigh more than kernels."
)
WAYS = {OFF: "as written", ON: "optimized"}
AGAIN = 4
"""So many times the rounds for the second look at a program that seems to take longer optimized than as written."""


def workload_of(program: Program) -> Workload:
    """The program as a step without leaves; its results are all that it returns."""

    def step() -> dict[str, Any]:
        torch.manual_seed(0)
        return program()

    workload = Workload(program.__name__, (), step, backward=False, random=True)
    workload.results = numbers              # type: ignore[method-assign]
    return workload


def numbers(out: Any) -> list[Tensor]:
    """Every tensor and number that a program returned."""
    found = [value for value in tree_leaves(out) if isinstance(value, Tensor | float | int)]
    return [torch.as_tensor(value).detach().double() for value in found]


def measure_algorithm(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Time one program under torch eager, recorded as written, and optimized."""
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    workload = workload_of(ALGORITHMS[label])
    row = timed(label, workload, settings, on_round)
    return row | {"optimizing": asdict(optimizing(workload, settings.repeats))}


def optimizing(workload: Workload, repeats: int) -> Timing:
    """Time optimized beside that as written, in turns; what is over the bar by chance is not over it again."""
    pair = [Variant(name, workload, recorded(workload, optimize=name == ON)) for name in WAYS]
    found = measure(pair, repeats)[ON]
    return measure(pair, AGAIN * repeats)[ON] if found.ratio > bars.OPTIMIZING_BAR[0] else found


def timed(label: str, workload: Workload, settings: Settings, on_round: Tick) -> Row:
    """The row of a workload under torch eager, recorded as written, and optimized."""
    variants = [Variant(EAGER, workload, alone(workload))]
    variants += [Variant(name, workload, recorded(workload, optimize=name == ON)) for name in WAYS]
    times = measure(variants, settings.repeats, on_round)
    return {"name": label, "times": {name: asdict(timing) for name, timing in times.items()}}


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Every program."""
    return sorted(ALGORITHMS)


def ratios(rows: Sequence[Row], way: str) -> list[float]:
    """Times beside torch eager, smallest first."""
    return sorted(row["times"][way]["ratio"] for row in rows if "times" in row)


def ninth_decile(values: Sequence[float]) -> float:
    """The value that nine tenths do not exceed; `values` are sorted."""
    return values[min(len(values) - 1, int(0.9 * len(values)))]


def summary(rows: Sequence[Row], ways: Mapping[str, str] = WAYS) -> Grid:
    """Median, ninth decile, worst, and the share of programs that are faster than torch eager."""
    lines = []
    for way, title in ways.items():
        found = ratios(rows, way)
        if found:
            faster = sum(ratio < 1 for ratio in found) / len(found)
            lines.append([title, *(f"{x:.2f}" for x in (statistics.median(found), ninth_decile(found), found[-1])),
                          f"{faster:.0%}"])
    count = sum("times" in row for row in rows)
    return Grid(f"{count} programs, torch eager = 1", ("", "median", "p90", "worst", "faster"), lines)


def grids(rows: list[Row], caption: str = CAPTION, ways: Mapping[str, str] = WAYS) -> list[Grid]:
    """The summary, then every program, by the time of the last of `ways`, which are named with their headings."""
    last = list(ways)[-1]
    ordered = sorted(rows, key=lambda row: row.get("times", {}).get(last, {}).get("ratio", 9e9))
    lines = [cells(row, ways) for row in ordered]
    return [summary(rows, ways), Grid("Every program", ("program", "torch eager", *ways.values()), lines, caption)]


def cells(row: Row, ways: Mapping[str, str] = WAYS) -> list[str]:
    """One line of the table."""
    title = row["name"].replace("_", " ")
    if "error" in row:
        return [title, f"failed: {row['error']}", *[""] * len(ways)]
    if "missing" in row:
        return [title, "not installed", *[""] * len(ways)]
    shown = [f"{t['ratio']:.2f} ({t['spread'][0]:.2f}–{t['spread'][1]:.2f})" for t in (row["times"][w] for w in ways)]
    return [title, f"{row['times'][EAGER]['seconds'] * 1e3:.1f} ms", *shown]


def checks(rows: list[Row]) -> list[Check]:
    """The median and the worst of all programs, and what optimizing may cost over recording as written."""
    found = ratios(rows, ON)
    if not found:
        return []
    over = [row["optimizing"]["ratio"] for row in rows if "optimizing" in row]
    return [Check("algorithms", "median time / torch eager", statistics.median(found), *bars.ALGORITHMS_MEDIAN_BAR),
            Check("algorithms", "worst time / torch eager", found[-1], *bars.ALGORITHMS_WORST_BAR),
            *[Check("algorithms", "worst time optimized / as written", worst, *bars.OPTIMIZING_BAR)
              for worst in sorted(over)[-1:]]]


SECTION = Section("algorithms", "Whole programs beside torch eager", labels, measure_algorithm, grids, checks,
                  of_workloads=False, expected=6.0)
