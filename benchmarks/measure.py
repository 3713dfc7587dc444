"""How a workload is timed: all ways of running it in turns, medians, their ratios.

Before any timing, every way must give the gradients of torch eager.  Then each round runs
each way once for a block of steps, in an order that changes from round to round, so that
drift of the machine falls on all alike; a ratio is the median over the rounds of the time
beside that of torch eager in the same round.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import autograd_opt as ao

from .jobs import Tick
from .workload import Leaf, Workload, torch_leaf
from .workloads import Make

EAGER, ON, OFF = "torch eager", "optimize=True", "optimize=False"
BLOCK_SECONDS = 0.02
"""Steps are timed in blocks of about this length."""
FEWEST_ROUNDS = 11
NARROW = 0.01
"""Rounds end, once there are enough, when every interquartile interval of the ratios is no wider than this."""
MOST_SECONDS = 30.0
"""Seconds of the wall after which no further round is begun, `FEWEST_ROUNDS` being done."""
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}
"""Largest difference, relative to the largest entry, between gradients that differ by rounding only."""
NOISE = 1e-2


_places = itertools.count()


@dataclass
class Variant:
    """One way of running a workload."""

    name: str
    workload: Workload
    run: Callable[[], Any]


@dataclass
class Timing:
    """What the rounds gave for one variant."""

    seconds: float
    ratio: float
    spread: tuple[float, float]
    """First and third quartile of the ratio."""
    difference: float
    """Largest difference of its gradients from torch eager's, relative to the largest entry."""
    rounds: int


def clock() -> float:
    """Seconds: of this process on one thread, which other programs disturb least; of the wall with more."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def recorded(workload: Workload, look: Callable[[Any], Any] | None = None, /, **options: Any) -> Callable[[], Any]:
    """The workload's step inside a graph of its own, opened at a place of its own; `look` reads it before it closes.

    What to keep for reuse is learned for each place in a program where graphs are opened.
    One line shared by all workloads would be a program that nobody writes.
    """

    def run() -> Any:
        with ao.AutogradGraph(**options):
            return workload.step()

    def looked_at() -> Any:
        with ao.AutogradGraph(**options) as graph:
            out = workload.step()
            look(graph)             # type: ignore[misc]
            return out

    chosen = run if look is None else looked_at
    chosen.__code__ = chosen.__code__.replace(co_filename=f"<{workload.name}, {options}, {next(_places)}>")
    return chosen


def alone(workload: Workload) -> Callable[[], Any]:
    """The workload's step in no graph, with as many frames of Python below it: what walks the stack costs the same."""

    def run() -> Any:
        return workload.step()

    run.__code__ = run.__code__.replace(co_filename=f"<{workload.name}, {next(_places)}>")
    return run


def own_variants(make: Make, leaf: Leaf = ao.tensor) -> list[Variant]:
    """torch eager, and this library without and with optimization."""
    eager = make(leaf=torch_leaf)
    variants = [Variant(EAGER, eager, alone(eager))]
    for optimize in (False, True):
        workload = make(leaf=leaf)
        variants.append(Variant(f"optimize={optimize}", workload, recorded(workload, optimize=optimize)))
    return variants


def gradients(variant: Variant) -> list[Tensor]:
    """The results of one step, with the same random numbers for every variant."""
    torch.manual_seed(0)
    out = variant.run()
    return [t.detach().clone() for t in variant.workload.results(out)]


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Largest difference, relative to the largest entry of its tensor.

    A tensor much smaller than all others is rounding noise (the gradient of a bias before a
    normalization, say): its entries are taken for at least `NOISE` of the largest of all.
    """
    largest = [float(b.abs().max().nan_to_num()) if b.numel() else 0.0 for b in expected]
    worst = 0.0
    for a, b, own in zip(found, expected, largest, strict=True):
        scale = max(own, NOISE * max(largest)) or 1.0
        gap = float((a - b).abs().max()) / scale if b.numel() else 0.0
        worst = max(worst, float("inf") if gap != gap else gap)
    return worst


def tolerance(expected: list[Tensor]) -> float:
    """What rounding may explain."""
    return TOLERANCE.get(expected[0].dtype, 0.0)


def differences(variants: list[Variant]) -> dict[str, float]:
    """Compare every variant with the first.

    Raises
    ------
    ValueError
        If a gradient differs by more than rounding explains; such a variant is not timed.
    """
    expected = gradients(variants[0])
    out = {}
    for variant in variants:
        found = gradients(variant)
        out[variant.name] = difference(found, expected)
        limit = tolerance(expected)
        if not out[variant.name] <= limit:
            raise ValueError(
                f"{variant.workload.name}: gradients of {variant.name} differ from torch eager's by "
                f"{out[variant.name]:.1e} of the largest entry; the limit is {limit:.0e}"
            )
    return out


def block_length(variant: Variant) -> int:
    """Steps in a block of about `BLOCK_SECONDS`, after warm-up."""
    for _ in range(3):
        variant.run()
    return max(1, round(BLOCK_SECONDS / max(block(variant.run, 1), 1e-9)))


def measure(variants: list[Variant], repeats: int, on_round: Tick = lambda *_: None) -> dict[str, Timing]:
    """Compare the variants, then time them in turns; the first is what ratios are taken of."""
    found = differences(variants)
    times = alternate(variants, repeats, on_round, changing=any(v.workload.advance for v in variants))
    base = times[variants[0].name]
    return {name: timing(seconds, base, found[name]) for name, seconds in times.items()}


def alternate(
    variants: list[Variant], repeats: int, on_round: Tick, *, changing: bool,
    fewest: int = FEWEST_ROUNDS, most_seconds: float = MOST_SECONDS,
) -> dict[str, list[float]]:
    """Seconds a step of every round; with `changing` each round has a new structure, the same for all.

    At most `repeats` rounds: fewer where they agree, or take too long.  Each variant has as many steps in a round as
    take `BLOCK_SECONDS`, so that what is fast is timed as exactly as what is slow.
    """
    steps = {v.name: 1 if changing else block_length(v) for v in variants}
    times: dict[str, list[float]] = {v.name: [] for v in variants}
    order = list(variants)
    shuffle = random.Random(0).shuffle
    gc.collect()
    end = time.monotonic() + most_seconds
    for done in range(repeats):
        if done >= fewest and (time.monotonic() > end or settled(times)):
            break
        for variant in variants if changing else ():
            if variant.workload.advance is not None:
                variant.workload.advance()
        shuffle(order)
        for variant in order:
            times[variant.name].append(block(variant.run, steps[variant.name]))
        gc.collect(0)
        on_round()
    return times


def settled(times: dict[str, list[float]]) -> bool:
    """Is every interquartile interval of the ratios to the first narrow?"""
    base, *others = times.values()
    shares = [quartiles([a / b for a, b in zip(seconds, base, strict=True)]) for seconds in others]
    return all(upper - lower <= NARROW * lower for lower, upper in shares)


def quartiles(values: list[float]) -> tuple[float, float]:
    """First and third."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter], ordered[-1 - quarter]


def block(run: Callable[[], Any], steps: int) -> float:
    """Seconds a step."""
    begin = clock()
    for _ in range(steps):
        run()
    return (clock() - begin) / steps


def timing(seconds: list[float], base: list[float], difference: float) -> Timing:
    """Medians over the rounds."""
    ratios = [a / b for a, b in zip(seconds, base, strict=True)]
    return Timing(statistics.median(seconds), statistics.median(ratios), quartiles(ratios), difference, len(ratios))
