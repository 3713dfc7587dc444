"""Section `plans`: each workload compiled, its step repeated from a plan, beside torch eager."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

import autograd_opt as ao

from . import workloads
from .jobs import Settings, Tick
from .measure import EAGER, Variant, measure
from .section import Check, Grid, Row, Section
from .workload import Workload

PLAN = "plan"
BARS = {
    "chain": 0.02, "sharing 0.9": 0.05, "population 1,000": 0.08, "pinn_burgers": 0.50, "pinn_navier_stokes": 0.50,
    "hessian_rosenbrock": 0.03, "hessian_network": 0.04, "mechanics": 0.03, "gp": 0.55, "mlp": 0.85,
    "transformer": 0.85, "cnn": 0.90, "lstm": 0.98,
}
"""Time of a repeated step, torch eager = 1, at most."""
FIRST = 3.0
"""Time of the first call, in recorded steps, at most."""
CAPTION = (
    "Time of a step that `autograd_opt.compile` repeats, gradients included, as a share of torch eager: median of the "
    "rounds, quartiles in parentheses. The first call is only recorded; the second makes the plan. Both are measured "
    "once, in processor time, and given in recorded steps: the same step in a warm `AutogradGraph(optimize=True)`. A "
    "population keeps its structure here."
)


def compiled(workload: Workload) -> Any:
    """The workload's step as a plan repeats it."""

    def step(*leaves: Tensor) -> Any:
        out = workload.forward(*leaves)
        if workload.backward:
            out.backward()
        return out

    repeated = ao.compile(step)

    def run() -> Any:
        for leaf in workload.leaves:
            leaf.grad = None
        return repeated(*workload.leaves)

    return run, repeated


def recorded(workload: Workload) -> None:
    """The workload's step in a graph."""
    for leaf in workload.leaves:
        leaf.grad = None
    with ao.AutogradGraph(optimize=True):
        out = workload.forward(*workload.leaves)
        if workload.backward:
            out.backward()


def seconds(function: Callable[[], Any]) -> float:
    """Processor time of a call."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def measure_plan(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Time one workload under torch eager and from its plan."""
    warnings.simplefilter("ignore")
    workload = workloads.MAKES[label]()
    workload.advance = None
    run, repeated = compiled(workload)
    once = statistics.median([seconds(lambda: recorded(workload)) for _ in range(5)])
    first, second = seconds(run), seconds(run)
    times = measure([Variant(EAGER, workload, workload.step), Variant(PLAN, workload, run)], settings.repeats, on_round)
    kind = repeated.report().kinds[0]
    return {"name": label, "recorded": once, "first": first, "second": second,
            "reason": kind.reason, "operations": kind.operations,
            "kernels": sum(kind.kernels.values()), "stretches": len(kind.stretches),
            "times": {name: asdict(timing) for name, timing in times.items()}}


def labels(groups: Sequence[str] = ()) -> list[str]:
    """The workloads of the groups that have a bar."""
    return [label for label in workloads.labels(groups) if label in BARS]


def cells(row: Row) -> list[str]:
    """One line of the table."""
    if "error" in row:
        return [row["name"], f"failed: {row['error']}", *[""] * 6]
    eager, plan = row["times"][EAGER], row["times"][PLAN]
    again = f"{plan['ratio']:.3f} ({plan['spread'][0]:.3f}–{plan['spread'][1]:.3f})"
    return [row["name"], f"{eager['seconds'] * 1e3:.2f} ms", again, f"{row['first'] / row['recorded']:.1f}",
            f"{row['second'] / row['recorded']:.1f}",
            f"{row['operations']:,}", f"{row['kernels']:,}", f"{row['stretches']:,}"]


def grids(rows: list[Row]) -> list[Grid]:
    """Every workload."""
    headings = ("workload", "torch eager", "again", "first call", "second call", "operations", "kernels", "stretches")
    return [Grid("Steps repeated from plans, torch eager = 1", headings, [cells(row) for row in rows], CAPTION)]


def checks(rows: list[Row]) -> list[Check]:
    """Each workload beside its bar, and the median of all."""
    found = {row["name"]: row["times"][PLAN]["ratio"] for row in rows if "times" in row}
    each = [Check(name, "repeated step / torch eager", ratio, BARS[name]) for name, ratio in found.items()]
    if not found:
        return []
    each += [Check(row["name"], "first call / recorded step", row["first"] / row["recorded"], FIRST)
             for row in rows if "times" in row]
    return [*each, Check("plans", "median repeated step / torch eager", statistics.median(found.values()), 0.5)]


SECTION = Section("plans", "Repeated steps beside torch eager", labels, measure_plan, grids, checks, expected=20.0)
