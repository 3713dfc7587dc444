"""Section `times`: each workload in full beside torch eager: time, kernels, memory, and the bars."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import Any

from autograd_opt import AutogradGraph

from . import bars
from .jobs import Settings, Tick
from .measure import EAGER, OFF, ON, Variant, measure, own_variants
from .section import Check, Grid, Row, Section
from .workloads import BY_HAND, MAKES, labels

HAND = "by hand"
PASS_STEPS = 25
CAPTION = (
    "Forward and backward as a share of torch eager: median of the rounds, quartiles in parentheses. "
    "Kernels: torch eager → optimized; peak: bytes alive at once, optimized / torch eager."
)


def measure_times(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Time one workload."""
    variants = own_variants(MAKES[label])
    workload = variants[0].workload
    if label in BY_HAND:
        by_hand = BY_HAND[label]()
        by_hand.results = lambda out: [leaf.grad for leaf in by_hand.leaves if leaf.grad is not None]  # type: ignore[method-assign]
        variants.append(Variant(HAND, by_hand, by_hand.step))
    shares: list[float] = []

    def each_round() -> None:
        if "u" in workload.facts:
            shares.append(workload.facts["u"])
        on_round()

    times = measure(variants, settings.repeats, each_round)
    row: Row = {
        "name": label,
        "times": {name: asdict(t) for name, t in times.items()},
        "facts": {**workload.facts, **({"u": statistics.median(shares)} if shares else {})},
    }
    if workload.advance is None:
        row["passes"] = share_of_passes(next(v for v in variants if v.name == ON))
    return row


def share_of_passes(variant: Variant) -> float:
    """Share of a step that goes into what precedes backward, the passes or their plan, its structure being known.

    The clock is the wall's: the processor's takes longer to read than what is timed.
    """
    spent, wholes = 0.0, []
    prepare = AutogradGraph.prepare

    def watched(*args: Any) -> bool:
        nonlocal spent
        begin = time.perf_counter()
        try:
            return prepare(*args)
        finally:
            spent += time.perf_counter() - begin

    AutogradGraph.prepare = watched         # type: ignore[method-assign, assignment]
    try:
        for _ in range(PASS_STEPS):
            spent, begin = 0.0, time.perf_counter()
            variant.run()
            wholes.append(spent / (time.perf_counter() - begin))
    finally:
        AutogradGraph.prepare = prepare     # type: ignore[method-assign]
    return statistics.median(wholes)


def joined(row: Row, counts: Row) -> Row:
    """With what does not depend on the clock."""
    ways = {name: counts["ways"][name] for name in (EAGER, OFF, ON)}
    return row | {
        "kernels": {name: way["kernels"] for name, way in ways.items()},
        "peak": {name: way["peak"] for name, way in ways.items()},
        "traced": counts["traced"],
    }


def checks(rows: list[Row]) -> list[Check]:
    """Every bar that applies."""
    return [check for row in rows if "error" not in row for check in checks_of(row)]


def checks_of(row: Row) -> list[Check]:
    name, times = row["name"], row["times"]
    out = []
    bar = bars.time_bar(name, row["facts"])
    if bar is not None:
        out.append(Check(name, "time / torch eager", times[ON]["ratio"], *bar))
    if name == "chain":
        out.append(Check(name, "time as written / torch eager", times[OFF]["ratio"], *bars.CHAIN_BAR))
    if HAND in times:
        out.append(Check(name, "time / by hand", times[ON]["ratio"] / times[HAND]["ratio"], *bars.HAND_BAR))
    if "passes" in row:
        out.append(Check(name, "passes, percent of a step seen before", 100 * row["passes"], *bars.PASSES_BAR))
    if row["traced"]:
        kernels_left = sum(row["kernels"][ON].values()) / row["traced"][1]
        out.append(Check(name, "kernels / traced, FX CSE", kernels_left, *bars.KERNEL_BAR))
    out.append(Check(name, "peak bytes / torch eager", row["peak"][ON] / row["peak"][EAGER], *bars.MEMORY_BAR))
    return out


def grids(rows: list[Row]) -> list[Grid]:
    """What was measured."""
    headings = ("workload", "torch eager", "as written", "optimized", "by hand", "kernels", "traced, FX CSE", "peak")
    untraced = [row["name"] for row in rows if "error" not in row and not row["traced"]]
    note = f" torch's make_fx cannot trace {', '.join(untraced)}." if untraced else ""
    lines = [cells(row, len(headings)) for row in rows]
    return [Grid("Times, kernels, memory", headings, lines, CAPTION + note)]


def cells(row: Row, width: int) -> list[str]:
    if "error" in row:
        return [row["name"], f"failed: {row['error']}", *[""] * (width - 2)]

    def ratio(name: str) -> str:
        t = row["times"].get(name)
        return f"{t['ratio']:.2f} ({t['spread'][0]:.2f}–{t['spread'][1]:.2f})" if t else ""

    share = f" (u = {row['facts']['u']:.2f})" if "u" in row["facts"] else ""
    counts: dict[str, Any] = {name: sum(row["kernels"][name].values()) for name in (EAGER, ON)}
    return [
        row["name"] + share, f"{row['times'][EAGER]['seconds'] * 1e3:.2f} ms", ratio(OFF), ratio(ON), ratio(HAND),
        f"{counts[EAGER]} → {counts[ON]}", str(row["traced"][1]) if row["traced"] else "—",
        f"{row['peak'][ON] / row['peak'][EAGER]:.2f}",
    ]


SECTION = Section("times", "Time, kernels and memory beside torch eager", labels, measure_times, grids, checks,
                  counts=lambda label: label, joined=joined)
