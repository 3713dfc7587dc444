"""Section `peers`: each library beside torch eager, the first call and the calls after it apart."""

from __future__ import annotations

import importlib.util
import math
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import autograd_opt as ao

from ..jobs import Settings, Tick
from ..measure import EAGER, Variant, alternate, difference, gradients, recorded, tolerance
from ..plots import save_panels
from ..section import Grid, Row, Section
from ..workload import Workload, torch_leaf
from ..workloads import MAKES
from ..workloads import labels as workload_labels
from . import casadi_peer, hips, jax_peers, mlx_peer, pytensor_peer, torch_compiled
from .peer import Peer, Step

PREFACE = (
    "With a fixed structure and a long run, what compiles wins: kernels that are fused are not in reach of a library "
    "that calls torch's one by one. What changes its structure pays for compiling at each step."
)
STEPS = (1, 10, 100, 1_000, 10_000, 100_000)
"""Steps whose cost from the beginning is shown."""
FEWEST = 3
NEW_STRUCTURES = 5.0
"""Seconds of the wall after which no further new structure is begun."""
AGAIN = 2.0
"""Seconds of the wall after which no further round of later calls is begun, a few being done."""


def spent() -> float:
    """Seconds of processor time of this process and of the compilers that it called."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def ours(optimize: bool) -> Peer:
    """This library as one more peer."""

    def build(label: str, workload: Workload) -> Step:
        run = recorded(workload, optimize=optimize)
        return lambda: workload.results(run())

    return Peer("autograd_opt" if optimize else "autograd_opt, as written", "autograd_opt", build, retraces=False)


def eager(label: str, workload: Workload) -> Step:
    return lambda: workload.results(workload.step())


PEERS: dict[str, Peer] = {peer.name: peer for peer in (
    Peer(EAGER, "torch", eager, retraces=False), ours(True), ours(False), *torch_compiled.PEERS, *jax_peers.PEERS,
    *hips.PEERS, *pytensor_peer.PEERS, *casadi_peer.PEERS, *mlx_peer.PEERS)}
LEFT_OUT = ("sharing 0", "sharing 0.25", "sharing 0.5", "sharing 0.75", "population 10,000")
"""Sizes of workloads that are shown with another size: they take minutes to compile as well, and tell nothing else."""


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Each workload with each library that can say it."""
    return [f"{label}: {name}" for label in workloads(groups)
            for name, peer in PEERS.items() if peer.obstacle(label) is None]


def workloads(groups: Sequence[str] = ()) -> list[str]:
    """The workloads that are shown."""
    return [label for label in workload_labels(groups) if label not in LEFT_OUT]


def measure_peer(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """One workload in one library: compared first, then timed in turns with torch eager."""
    name, _, who = label.partition(": ")
    peer = PEERS[who]
    head = {"name": label, "workload": name, "who": who}
    if importlib.util.find_spec(peer.package) is None:
        return head | {"notes": [f"{peer.package} is not installed and left out: pip install 'autograd_opt[bench]'"]}
    base = MAKES[name](leaf=torch_leaf)
    workload = MAKES[name](leaf=ao.tensor if peer.package == "autograd_opt" else torch_leaf)
    without_dropout(base, workload)
    begin = spent()
    step = peer.build(name, workload)
    step()
    row: Row = head | {"first": spent() - begin, "phase": "comparing"}
    on_round(row)
    row |= {"difference": compared(base, workload, step), "phase": "later calls"}
    on_round(row)
    variants = [Variant(EAGER, base, base.step), Variant(who, workload, step)]
    times = alternate(variants, settings.repeats, on_round, changing=False, fewest=FEWEST, most_seconds=AGAIN)
    row |= {"again": statistics.median(times[who]), "eager": statistics.median(times[EAGER])}
    row["ratio"] = statistics.median(a / b for a, b in zip(times[who], times[EAGER], strict=True))
    if workload.advance is not None:
        row["phase"] = "a new structure"
        on_round(row)
        row["new"] = statistics.median(new_structures(peer, name, workload, settings.repeats, on_round))
    return {key: value for key, value in row.items() if key != "phase"}


def without_dropout(*workloads: Workload) -> None:
    """No two libraries draw the same random numbers."""
    for workload in workloads:
        if workload.random and workload.module is not None:
            workload.module.eval()


def compared(base: Workload, workload: Workload, step: Step) -> float:
    """Largest difference from torch eager's results.

    Raises
    ------
    ValueError
        If rounding does not explain it.
    """
    expected = gradients(Variant(EAGER, base, base.step))
    torch.manual_seed(0)
    found: list[Tensor] = step()
    gap = difference(found, expected)
    if not gap <= tolerance(expected):
        raise ValueError(f"gradients differ from torch eager's by {gap:.1e} of the largest entry: not timed")
    return gap


def new_structures(
    peer: Peer, name: str, workload: Workload, repeats: int, on_round: Tick
) -> list[float]:
    """Seconds of the first step of each new structure, built anew where the library has to; at least one."""
    assert workload.advance is not None
    step, spans, start = peer.build(name, workload), list[float](), time.perf_counter()
    while not spans or (len(spans) < repeats and time.perf_counter() - start < NEW_STRUCTURES):
        workload.advance()
        begin = spent()
        if peer.retraces:
            step = peer.build(name, workload)
        step()
        spans.append(spent() - begin)
        on_round()
    return spans


def cost(row: Row, steps: int) -> float:
    """Seconds from the beginning until a number of steps are done."""
    return float(row["first"] + (steps - 1) * (row["again"] if row.get("new") is None else row["new"]))


def timed(rows: list[Row]) -> list[Row]:
    """Rows whose cost until the n-th step is known: one that changes needs a new structure."""
    return [row for row in rows if "again" in row and (row.get("new") is not None or not changes(row["workload"]))]


def changes(name: str) -> bool:
    """Has each step of a workload another structure?"""
    return name.startswith("population")


def grids(rows: list[Row]) -> list[Grid]:
    """Times, and what n steps cost from the beginning."""
    lines = [line for label in workloads() if any(row.get("workload") == label for row in rows)
             for name, peer in PEERS.items() if (line := line_of(rows, label, name, peer)) is not None]
    headings = ("workload", "library", "first call", "again", "again / torch eager", "new structure",
                "gradients differ by")
    times = Grid("First call and the calls after it", headings, lines,
                 "`first call` builds, traces, compiles and runs; `again` is the median of later calls with the same "
                 "structure, `new structure` a call after the structure has changed. Processor time, compilers "
                 "included; `>` where the time given was over before it ended. The transformer runs without dropout.")
    costs = [[row["workload"], row["who"], *(seconds(cost(row, n)) for n in STEPS)] for row in timed(rows)]
    until = Grid("Cost until the n-th step", ("workload", "library", *(f"{n:,}" for n in STEPS)), costs,
                 "From the beginning: `first call` + (n − 1) · `again`; where each step has another structure, "
                 "`first call` + (n − 1) · `new structure`.")
    return [times, until]


def line_of(rows: list[Row], label: str, name: str, peer: Peer) -> list[str] | None:
    """What was measured, or the word that says why not; None where it was not asked for."""
    obstacle = peer.obstacle(label)
    if obstacle is not None:
        return [label, name, f"cannot: {obstacle}", *[""] * 4]
    row = next((row for row in rows if row["name"] == f"{label}: {name}"), None)
    if row is None:
        return None
    if "notes" in row:
        return [label, name, "not installed", *[""] * 4]
    if "error" in row:
        return [label, name, row["error"].partition(":")[0], *[""] * 4]
    late = f"> {row['unfinished']:.0f} s" if "unfinished" in row else ""
    late_again = late if row.get("phase") == "a new structure" else ""
    cells = [seconds(row["first"]) if "first" in row else late, seconds(row["again"]) if "again" in row else "",
             f"{row['ratio']:.2f}" if "ratio" in row else "",
             seconds(row["new"]) if row.get("new") is not None else late_again,
             f"{row['difference']:.0e}" if "difference" in row else ""]
    return [label, name, *cells]


def seconds(value: float) -> str:
    """A time in the unit that suits it.

    >>> seconds(0.0123), seconds(75.0), seconds(2e-5)
    ('12.3 ms', '75.0 s', '20.0 µs')
    """
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (math.inf, 1.0, "s")):
        if value < limit:
            return f"{value * factor:,.1f} {unit}"
    raise AssertionError


def plot(rows: list[Row], stem: Path) -> list[Path]:
    """Cost over steps, one panel a workload."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in timed(rows):
        if row["who"] == "autograd_opt, as written":
            continue
        panels.setdefault(row["workload"], {})[row["who"]] = [(n, cost(row, n)) for n in STEPS]
    title = "Seconds until the n-th step, compiling included"
    return save_panels(stem.with_suffix(".png"), panels, "steps", "seconds", title, logarithmic=True)


SECTION = Section("peers", "Other libraries on the same workloads", labels, measure_peer, grids, plot=plot,
                  patient=True, expected=8.0, preface=PREFACE)
