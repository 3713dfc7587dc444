"""What `AutogradGraph(verify=True)` adds to steps of the benchmarks: `python -m autograd_opt.verify.overhead [FILE]`.

The first verified step of a process is measured in processes of its own: one where no proof is stored, with sympy
loaded before, and three that find the proofs of that one.  What the first `AutogradGraph(verify=True)` loads is said
apart.  Later steps alternate with steps that are not verified, on one thread; what was proved is known then, unless a
workload makes a new structure for each step.  CPU time, that of sympy's processes included, by the nodes that the step
verifies: each run of backward verifies the graph so far.  With FILE, the tables replace those between their markers.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

import autograd_opt as ao
from autograd_opt.verify import known
from autograd_opt.verify.speed import chain, measured, plain_chain, replaced, sums

BEGIN, END = "<!-- overhead -->", "<!-- /overhead -->"
BAR = 50.0
STEPS = 9
PROCESSES = 3
"""With stored proofs; the middle one counts."""


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


LOADING = """
import time
import autograd_opt as ao
start = time.thread_time()
ao.AutogradGraph(optimize=True, verify=True)
loading = time.thread_time() - start
from autograd_opt.verify import overhead
overhead.first({name!r}, {sympy}, loading)
"""


def first(name: str, sympy: bool, loading: float) -> None:
    """Print what the first verified step of this process costs; `sympy`: load it, as proofs of rewrites need it."""
    from autograd_opt.benchmarks.workloads import MAKES

    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload = MAKES[name]()
    step(workload, False, with_children)
    plain = lower_half([step(workload, False, with_children)[0] for _ in range(STEPS)])
    if sympy:
        from autograd_opt.verify import local  # noqa: F401
    verdicts: list[Any] = []
    proved = ao.AutogradGraph._proved

    def noted(self: Any, *args: Any) -> bool:
        found = proved(self, *args)
        verdicts.append(self.verdicts[-1])
        return found

    # A graph keeps its latest verdicts only.
    ao.AutogradGraph._proved = noted  # type: ignore[method-assign, assignment]
    seconds, _ = step(workload, True, with_children)
    print(json.dumps({"loading": loading, "first": max(seconds - plain, 0.0), "runs": len(verdicts),
                      "nodes": sum(v.stats["nodes"] for v in verdicts),
                      "proved": all(v.status == "proved" for v in verdicts),
                      "stored": sum("stored" in v.trust for v in verdicts)}))


def in_a_process(name: str, folder: str, sympy: bool) -> Any:
    """What `first` prints in a new process that keeps its files in this folder."""
    words = [sys.executable, "-c", LOADING.format(name=name, sympy=sympy)]
    done = subprocess.run(words, env={**os.environ, "AUTOGRAD_OPT_CACHE": folder}, capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout.splitlines()[-1])


def later(make: Callable[[], Any]) -> tuple[float, str]:
    """Microseconds a recorded node of what each step but the first pays, and whether its proof was known."""
    torch.manual_seed(0)
    workload = make()
    step(workload, False, time.thread_time)
    known.forget()
    nodes = step(workload, True, time.thread_time)[1][0]
    on, off = [], []
    for _ in range(STEPS):
        if workload.advance is not None:
            workload.advance()
        off.append(step(workload, False, time.thread_time)[0])
        on.append(step(workload, True, time.thread_time)[0])
    each = 1e6 * max(lower_half(on) - lower_half(off), 0.0) / nodes
    return each, "a new structure" if workload.advance is not None else "known"


def lines() -> Iterator[str]:
    from autograd_opt.benchmarks.workloads import MAKES

    yield ("| workload | runs a step | nodes verified | verdicts | loading, ms | first step, ms | "
           "first step, µs a node | the same with stored proofs, ms | µs a node | later steps, µs a node recorded |")
    yield "|---|---|---|---|---|---|---|---|---|---|"
    most = [0.0, 0.0, 0.0]
    for name, make in MAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            cold = in_a_process(name, folder, True)
            warm = sorted([in_a_process(name, folder, False) for _ in range(PROCESSES)], key=itemgetter("first"))[1]
        each, kind = later(make)
        figures = [1e6 * cold["first"] / cold["nodes"], 1e6 * warm["first"] / warm["nodes"], each]
        most = [max(a, b) for a, b in zip(most, figures, strict=True)]
        proved = "proved" if cold["proved"] and warm["proved"] else "not all proved"
        yield (f"| `{name}` | {cold['runs']} | {cold['nodes']:,} | {proved} | {1e3 * warm['loading']:.0f} | "
               f"{1e3 * cold['first']:.1f} | {figures[0]:.0f} | {1e3 * warm['first']:.2f}, {warm['stored']} of "
               f"{warm['runs']} found | {figures[1]:.0f} | {each:.1f}, {kind} |")
    yield f"| most of all; the bar is {BAR:.0f} | | | | | | {most[0]:.0f} | | {most[1]:.0f} | {most[2]:.1f} |"


def fitted(family: Callable[[int], Callable[[], Any]]) -> tuple[float, float]:
    """Milliseconds that a proof costs whatever its size, and microseconds a node: a line through five sizes."""
    import numpy as np

    from autograd_opt.verify import sweep

    sizes, times = [], []
    for n in (8, 80, 400, 2000, 8000):
        found = []
        for _ in range(5):
            sweep.TRACED.clear()
            torch.manual_seed(0)
            with ao.AutogradGraph(optimize=True) as graph:
                loss = family(n)()
                start = time.thread_time()
                graph.verify(loss, anew=True)
                found.append(time.thread_time() - start)
                nodes = len(graph)
        sizes.append(nodes)
        times.append(lower_half(found))
    weights = 1.0 / np.asarray(times)
    slope, fixed = np.polyfit(sizes, times, 1, w=weights)
    return 1e3 * float(fixed), 1e6 * float(slope)


def fits() -> Iterator[str]:
    yield "| first proof in a process, its rules traced anew | fixed, ms | slope, µs a node |"
    yield "|---|---|---|"
    for what, family in (("a chain, nothing merged", plain_chain), ("a chain, a quarter merged", chain)):
        fixed, slope = fitted(family)
        yield f"| {what} | {fixed:.2f} | {slope:.0f} |"


def main() -> None:
    torch.set_num_threads(1)
    measured(sums)
    tables: list[list[str]] = []
    for rows in (lines(), fits()):
        tables.append([])
        for text in rows:
            tables[-1].append(text)
            print(text, flush=True)
    for file in sys.argv[1:]:
        replaced(Path(file), BEGIN, END, [*tables[0], "", *tables[1]])


if __name__ == "__main__":
    main()
