"""What `AutogradGraph(verify=True)` adds to steps of the benchmarks: `python -m autograd_opt.verify.overhead [FILE]`.

Steps with and without it alternate in this process, on one thread.  The first step of a structure is proved, later
ones are known; a workload that makes a new structure for each step has no later ones.  Microseconds of CPU time by
the recorded nodes of a step, however many runs of backward it has; sympy's processes are counted in the first
column.  With FILE, the table replaces the one between its two markers.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import autograd_opt as ao
from autograd_opt.verify import known
from autograd_opt.verify.speed import measured, replaced, sums

BEGIN, END = "<!-- overhead -->", "<!-- /overhead -->"
BAR = 50.0
STEPS = 9


def with_children() -> float:
    """CPU seconds of this thread, and of the processes that it has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


def step(workload: Any, verify: bool, timer: Callable[[], float]) -> tuple[float, Any]:
    """Seconds of one step; its nodes, its runs and the latest verdicts."""
    for leaf in workload.leaves:
        leaf.grad = None
    start = timer()
    with ao.AutogradGraph(optimize=True, verify=verify) as graph:
        out = workload.forward(*workload.leaves)
        if workload.backward:
            out.backward()
        nodes, runs, verdicts = len(graph), graph.planned[1], list(graph.verdicts)
        del out
    return timer() - start, (nodes, runs, verdicts)


def lower_half(times: list[float]) -> float:
    """The median of the faster half: what else the machine does only adds."""
    return sorted(times)[len(times) // 4]


def row(name: str, make: Callable[[], Any]) -> tuple[str, float]:
    """One line, and microseconds a node of what is paid at each step."""
    torch.manual_seed(0)
    workload = make()
    step(workload, False, time.thread_time)
    known.forget()
    first, (nodes, runs, verdicts) = step(workload, True, with_children)
    on, off = [], []
    for _ in range(STEPS):
        if workload.advance is not None:
            workload.advance()
        off.append(step(workload, False, time.thread_time)[0])
        on.append(step(workload, True, time.thread_time)[0])
    plain = lower_half(off)
    proved = all(v.status == "proved" for v in verdicts)
    each = 1e6 * max(lower_half(on) - plain, 0.0) / nodes
    kind = "a new structure" if workload.advance is not None else "known"
    return (f"| `{name}` | {nodes:,} | {runs} | {'proved' if proved else 'not all proved'} | "
            f"{1e6 * max(first - plain, 0.0) / nodes:,.0f} | {each:.1f}, {kind} |"), each


def lines() -> Iterator[str]:
    from autograd_opt.benchmarks.workloads import MAKES

    yield "| workload | nodes | runs a step | the latest verdicts | first step, µs a node | later steps, µs a node |"
    yield "|---|---|---|---|---|---|"
    most = 0.0
    for name, make in MAKES.items():
        text, each = row(name, make)
        most = max(most, each)
        yield text
    yield f"| most of all; the bar is {BAR:.0f} | | | | | {most:.1f} |"


def main() -> None:
    torch.set_num_threads(1)
    measured(sums)  # what is loaded lazily is loaded, torch's compiler too, which its meta kernels ask for
    rows = []
    for text in lines():
        rows.append(text)
        print(text, flush=True)
    for file in sys.argv[1:]:
        replaced(Path(file), BEGIN, END, rows)


if __name__ == "__main__":
    main()
