"""Section `memory`: peaks, bytes of a recorded node, and growth over many steps."""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import autograd_opt as ao

from . import bars
from .jobs import Settings, Tick
from .measure import EAGER, OFF, ON
from .plots import save_panels
from .section import Check, Grid, Row, Section
from .workloads import labels as workload_labels

NODES = 10**6
SHORT, LONG = 10_000, 100_000
PAGE = 4096
POINTS = 20
"""Readings on the way of a long run."""
OPTIONS = {"as written": {"optimize": False}, "optimized": {"optimize": True}}
Options = dict[str, Any]


def labels(groups: Sequence[str] = ()) -> list[str]:
    """A peak for each workload; without groups also nodes and growth."""
    peaks = [f"peak: {label}" for label in workload_labels(groups)]
    if groups:
        return peaks
    others = [f"node: {way}" for way in OPTIONS]
    others += [f"growth: {way}, {steps}" for steps in (SHORT, LONG) for way in (*OPTIONS, EAGER)]
    return peaks + others


def measure_memory(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """One peak, one size of a node, or one long run."""
    kind, _, what = label.partition(": ")
    if kind == "peak":
        return {"name": label, "kind": kind, "workload": what}
    if kind == "node":
        return {"name": label, "kind": kind, "way": what, **node_bytes(OPTIONS[what], NODES)}
    way, _, steps = what.rpartition(", ")
    grown = growth(OPTIONS.get(way), int(steps), on_round)
    return {"name": label, "kind": kind, "way": way, "steps": int(steps), **grown}


def counted(label: str) -> str | None:
    """The workload whose counts hold a peak."""
    kind, _, what = label.partition(": ")
    return what if kind == "peak" else None


def joined(row: Row, counts: Row) -> Row:
    """Bytes alive at the peak of a step, in each way; after steps enough that nothing is learned any more."""
    return row | {"peak": {way: counts["ways"][way]["peak"] for way in (EAGER, OFF, ON)}}


def resident() -> int:
    """Bytes of this process in physical memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class _Heap(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"))


def heap_reader() -> Callable[[], int] | None:
    """Counts the bytes that are in use of the C library's allocator, to the byte; None where it cannot tell.

    Tensors, the tapes and everything of Python above 512 bytes are there.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None
    read = library.mallinfo2
    read.restype = _Heap

    def in_use() -> int:
        found = read()
        return int(found.uordblks + found.hblkhd)

    return in_use


def node_bytes(options: Options, count: int) -> dict[str, float]:
    """Bytes of one recorded addition whose tensors are gone, by the process and by Python's allocator.

    The C arrays of the tape are in the first figure only.
    """
    return {"resident": recorded_bytes(options, count, resident),
            "python": recorded_bytes(options, count // 10, traced_bytes)}


def traced_bytes() -> int:
    """Bytes that Python's allocators hold; from the first call on."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


def recorded_bytes(options: Options, count: int, read: Callable[[], int]) -> float:
    """Growth of `read()` for each of `count` nodes."""
    start, summand = torch.tensor(1.0, requires_grad=True), ao.tensor(1e-3)
    with ao.AutogradGraph(**options) as graph:
        y = start
        for _ in range(1000):       # tables and free lists have their first size
            y = y + summand
        gc.collect()
        before, nodes = read(), len(graph)
        for _ in range(count):
            y = y + summand
        return (read() - before) / (len(graph) - nodes)


def growth(options: Options | None, steps: int, on_round: Tick) -> Row:
    """Memory over the steps of training a small network with the collector off; without options torch eager."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(32, 8), torch.randn(32, 1)

    def step() -> None:
        optimizer.zero_grad()
        if options is None:
            F.mse_loss(model(inputs), targets).backward()
        else:
            with ao.AutogradGraph(**options):
                F.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    read = heap_reader()
    if read is None:
        return {"notes": ["growth: this C library does not count the bytes in use"]}
    curve = np.zeros((POINTS, 4), np.int64)     # readings must not be what grows
    every = steps // POINTS
    gc.collect()
    gc.disable()
    try:
        for done in range(1, steps + 1):
            step()
            if done % every == 0:
                curve[done // every - 1] = done, resident(), sys.getallocatedblocks(), read()
                on_round()
    finally:
        gc.enable()
    later = curve[POINTS // 2 - 1:]
    grown = (later[-1] - later[0]).tolist()
    return {"curve": curve.tolist(), **dict(zip(("counted", "resident", "blocks", "heap"), grown, strict=True)),
            "a stretch": float(np.median(np.diff(later[:, 3])))}


def a_step(row: Row) -> float:
    """Bytes that a step adds to those in use: the median of equal stretches of the second half."""
    return float(row["a stretch"]) * (POINTS // 2) / row["counted"]


def grids(rows: list[Row]) -> list[Grid]:
    """Peaks, nodes, growth."""
    def of(kind: str) -> list[Row]:
        return [row for row in rows if row.get("kind") == kind]

    def mega(n: float) -> str:
        return f"{n / 1e6:,.3f}"

    peaks = [[row["workload"], *(mega(row["peak"][way]) for way in (EAGER, OFF, ON)),
              f"{row['peak'][OFF] / row['peak'][EAGER]:.2f}", f"{row['peak'][ON] / row['peak'][EAGER]:.2f}"]
             for row in of("peak")]
    nodes = [[row["way"], f"{row['resident']:.0f}", f"{row['python']:.0f}"] for row in of("node")]
    grown = [[row["way"], f"{row['steps']:,}", f"{row['heap']:,}", f"{a_step(row):.2f}",
              f"{row['blocks']:,}", f"{row['blocks'] / row['counted']:.3f}", f"{row['resident'] / PAGE:.0f}"]
             for row in of("growth") if "heap" in row]
    made = [
        Grid("Most bytes of tensors alive at once, MB", (
            "workload", EAGER, "as written", "optimized", "as written / eager", "optimized / eager"), peaks),
        Grid("Bytes of a recorded node", ("way", "resident memory", "Python's allocators"), nodes,
             f"{NODES:,} additions whose tensors are gone."),
        Grid("Growth with the collector off", (
            "way", "steps", "bytes in use", "bytes a step", "blocks of Python's allocator", "blocks a step",
            "resident pages"), grown,
             "Training of a network 8-16-1, the second half of the steps; torch eager in the same loop beside it. "
             "Bytes in use are what the C library has given out and not got back, to the byte, and of those a step the "
             f"median of {POINTS - POINTS // 2} equal stretches, in which a single block does not count as growth; "
             "Python keeps what has "
             "512 bytes or less in blocks of its own; a resident page is 4 KiB."),
    ]
    return [grid for grid in made if grid.lines]


def checks(rows: list[Row]) -> list[Check]:
    """Peaks beside torch eager's, the size of a node, no growth."""
    out = []
    eager = {row["steps"]: a_step(row) for row in rows if row.get("way") == EAGER and "heap" in row}
    for row in rows:
        if row.get("kind") == "peak":
            share = row["peak"][ON] / row["peak"][EAGER]
            out.append(Check(row["workload"], "peak bytes / torch eager", share, *bars.MEMORY_BAR))
        elif row.get("kind") == "node":
            out.append(Check(f"node, {row['way']}", "bytes", row["resident"], *bars.NODE_BYTES_BAR))
        elif row.get("kind") == "growth" and row["way"] != EAGER and "heap" in row:
            beyond = max(a_step(row) - max(eager.get(row["steps"], 0.0), 0.0), 0.0)
            name = f"{row['steps']:,} steps, {row['way']}"
            out.append(Check(name, "bytes in use a step beyond torch eager's", beyond, *bars.GROWTH_BYTES_BAR))
    return out


def plot(rows: list[Row], stem: Path) -> list[Path]:
    """Resident memory over the steps."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    names = {"optimized": "autograd_opt", "as written": "autograd_opt, as written"}
    for row in rows:
        if row.get("kind") == "growth" and "curve" in row:
            start = row["curve"][0][1]
            line = [(float(done), (held - start) / 1e6) for done, held, *_ in row["curve"]]
            panels.setdefault(f"{row['steps']:,} steps", {})[names.get(str(row["way"]), str(row["way"]))] = line
    title = "Resident memory while training with the collector off, MB beyond the first reading"
    return save_panels(stem.with_suffix(".png"), panels, "steps", "MB", title)


SECTION = Section("memory", "Memory", labels, measure_memory, grids, checks, plot, alone=lambda label: False,
                  counts=counted, joined=joined)
