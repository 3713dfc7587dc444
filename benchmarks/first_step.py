"""Verified steps of new processes, `python -m autograd_opt.benchmarks.first_step`: asked on stdin, answered on stdout.

This process loads torch and the library, nothing of the verifier, and forks one for each question: what a question
measures has everything of the verifier's still to load and to do, without waiting for torch to load.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import autograd_opt as ao
from autograd_opt.optimizer.plan_cache import PLANS

from .workload import Workload, torch_leaf
from .workloads import MAKES

SECONDS = 1.0
"""So long a process alternates verified steps with others."""
PAIRS = 5, 60
"""At least, at most."""


# ----- families, for what grows with the graph -----
def plain_chain(n: int) -> Workload:
    """A chain, nothing merged."""
    def forward(x: Any, b: Any) -> Any:
        a = x
        for _ in range(n // 2):
            x = (x + b) * a
        return x.sum()

    return Workload("plain chain", [torch_leaf(torch.full((2,), 0.9)), torch_leaf(torch.full((2,), 0.01))], forward)


def chain(n: int) -> Workload:
    """A chain, a quarter merged."""
    def forward(x: Any, b: Any) -> Any:
        for _ in range(n // 4):
            x = (x * b) + (x * b).sin()
        return x.sum()

    return Workload("chain", [torch_leaf(torch.full((2,), 0.9)), torch_leaf(torch.full((2,), 0.5))], forward)


def layers(n: int) -> Workload:
    """A network of equal layers, nothing merged."""
    net = nn.Sequential(*[m for _ in range(n // 4) for m in (nn.Linear(8, 8), nn.Tanh())])
    x = torch.ones(4, 8)
    return Workload("layers", list(net.parameters()), lambda *_: net(x).sum(), net)


FAMILIES: dict[str, Callable[[int], Workload]] = {f.__name__: f for f in (plain_chain, chain, layers)}


# ----- one process -----
def seconds_used() -> float:
    """CPU seconds of this thread, and of the processes that it has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


def step(workload: Workload, verify: bool) -> tuple[float, int]:
    """CPU seconds of one step, and its nodes."""
    for leaf in workload.leaves:
        leaf.grad = None
    start = seconds_used()
    with ao.AutogradGraph(optimize=True, verify=verify) as graph:
        out = workload.forward(*workload.leaves)
        if workload.backward:
            out.backward()
        nodes = len(graph)
        del out
    return seconds_used() - start, nodes


def lower_half(times: list[float]) -> float:
    """The median of the faster half: what else the machine does only adds."""
    return sorted(times)[len(times) // 4]


class Watch:
    """What the runs of a step take to be prepared, proofs included, and their verdicts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.verdicts: list[Any] = []


@contextmanager
def watching() -> Iterator[Watch]:
    watch = Watch()
    prepare, proved = ao.AutogradGraph.prepare, ao.AutogradGraph._proved

    def timed(graph: Any, *args: Any) -> bool:
        start = seconds_used()
        try:
            return prepare(graph, *args)
        finally:
            watch.seconds += seconds_used() - start

    def noted(graph: Any, *args: Any) -> bool:      # a graph keeps its latest verdicts only
        found = proved(graph, *args)
        watch.verdicts.append(graph.verdicts[-1])
        return found

    ao.AutogradGraph.prepare, ao.AutogradGraph._proved = timed, noted  # type: ignore[method-assign, assignment]
    try:
        yield watch
    finally:
        ao.AutogradGraph.prepare, ao.AutogradGraph._proved = prepare, proved  # type: ignore[method-assign]


def later(workload: Workload, watch: Watch, change: Callable[[], None] | None) -> tuple[float, float]:
    """What verification adds to a step, of which in preparing its runs: medians, over pairs of neighbours."""
    added: list[float] = []
    preparing: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(added) < PAIRS[0] or (len(added) < PAIRS[1] and time.perf_counter() < end):
        if change is not None:
            change()
        taken = {}
        for verify in (False, True) if len(added) % 2 else (True, False):
            watch.seconds = 0.0
            taken[verify] = step(workload, verify)[0]
            if verify:
                preparing.append(watch.seconds)
        added.append(taken[True] - taken[False])
    return max(statistics.median(added), 0.0), lower_half(preparing)


def planning(workload: Workload, watch: Watch) -> float:
    """What the passes take of a new structure in a step that is not verified: the plan is forgotten before each."""
    new: list[float] = []
    known: list[float] = []
    for _ in range(PAIRS[0]):
        PLANS.clear()
        for seconds in (new, known):
            watch.seconds = 0.0
            step(workload, False)
            seconds.append(watch.seconds)
    return max(lower_half(new) - lower_half(known), 0.0)


def measured(workload: str, size: int | None) -> dict[str, Any]:
    """What the first verified step of this process adds, and what later ones do.

    The first: what preparing its runs takes beyond later steps, in which kernels have no part, and what later ones add,
    less what the passes take, which a first step pays that is not verified, too.
    """
    start = seconds_used()
    ao.AutogradGraph(optimize=True, verify=True)
    loading = seconds_used() - start

    torch.manual_seed(0)
    work = MAKES[workload]() if size is None else FAMILIES[workload](size)
    for _ in range(3):
        step(work, False)
    before = "sympy" in sys.modules
    gc.collect()                            # what has been loaded is not this step's
    with watching() as watch:
        _, nodes = step(work, True)
        first, verdicts = watch.seconds, list(watch.verdicts)
        loaded = "sympy" in sys.modules and not before
        each, known = later(work, watch, None)
        first += each - known - planning(work, watch)
        if work.advance is not None:
            each = later(work, watch, work.advance)[0]
    start = seconds_used()
    assert all(v.original for v in verdicts)    # made when it is read, where a run goes as written
    hashing = seconds_used() - start
    return {"loading": loading, "loaded_sympy": loaded, "hashing": hashing,
            "first": max(first, 0.0), "later": each, "recorded": nodes, "changes": work.advance is not None,
            "runs": len(verdicts), "nodes": sum(v.stats["nodes"] for v in verdicts),
            "proved": all(v.status == "proved" for v in verdicts),
            "written": sum("as written" in v.stats for v in verdicts)}


def main() -> None:
    torch.set_num_threads(1)
    step(FAMILIES["layers"](8), False)
    assert "autograd_opt.verify" not in sys.modules
    gc.collect()
    gc.freeze()                             # a collection in a child does not write to all that is loaded here
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            print(json.dumps(measured(**asked)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"a process failed: {line}")


if __name__ == "__main__":
    main()
