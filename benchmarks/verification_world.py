"""Steps of public packages and the algorithms under `verify=True`: `python -m benchmarks.verification_world [FILE]`.

How many runs of backward are proved, and what their proofs add to the first step of a program and to later ones, as
CPU time of one thread.  Every run verifies the graph so far; times are divided by the nodes that a step verifies so.
What the first `AutogradGraph(verify=True)` of a process loads is loaded before.  With FILE, the table replaces the one
between its markers.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import autograd_opt as ao

from . import packages, whole_programs
from .algorithms import ALGORITHMS
from .measure import recorded
from .verification_speed import replaced
from .workload import Workload
from .world import WORLD

BEGIN, END = "<!-- world -->", "<!-- /world -->"
STEPS = 9
Seconds = float


class Verified(NamedTuple):
    """What came of one program."""

    name: str
    runs: int
    proved: int
    nodes: int
    first: float
    later: float
    reasons: tuple[str, ...]


def timed(step: Callable[[], Any]) -> Seconds:
    """CPU time of a step."""
    start = time.process_time()
    step()
    return time.process_time() - start


def verified(name: str, workload: Workload) -> Verified:
    """Verify some steps of a program, whose cost without proofs is known."""
    these: list[Any] = []
    plain = recorded(workload, optimize=True)
    proved = recorded(workload, lambda graph: these.extend(graph.verdicts), optimize=True, verify=True)
    plain()
    added, verdicts = [], []
    for _ in range(STEPS):
        these.clear()
        seconds = timed(proved) - timed(plain)
        nodes = max(1, sum(v.stats.get("nodes", 0) for v in these))
        added.append(1e6 * seconds / nodes)
        verdicts += these
    return Verified(
        name, len(verdicts), sum(v.status == "proved" for v in verdicts), nodes, added[0], statistics.median(added[1:]),
        tuple(sorted({f"{v.reason}" for v in verdicts if v.status != "proved"})))


def programs() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """The steps of the packages that are installed, then the algorithms."""
    for name in packages.labels():
        if WORLD[name].version() is not None:
            yield name, WORLD[name].make
    for name in whole_programs.labels():
        yield name, partial(whole_programs.workload_of, ALGORITHMS[name])


def table(rows: list[Verified]) -> Iterator[str]:
    """A summary, and the programs that are dearest."""
    runs, proved = sum(r.runs for r in rows), sum(r.proved for r in rows)
    yield "| programs | runs | proved | µs a node, first step: median, ninth decile, mean of nodes | later steps |"
    yield "|---|---|---|---|---|"
    yield (f"| {len(rows)} | {runs:,} | {proved:,} ({proved / runs:.1%}) | {spread(rows, 'first')} | "
           f"{spread(rows, 'later')} |")
    yield ""
    yield "| the dearest | nodes verified | first step, µs a node | later steps | not proved |"
    yield "|---|---|---|---|---|"
    dear = {r.name: r for what in ("first", "later") for r in sorted(rows, key=lambda r: getattr(r, what))[-8:]}
    dear.update({r.name: r for r in rows if r.proved < r.runs})
    for r in dear.values():
        yield f"| {r.name} | {r.nodes:,} | {r.first:.0f} | {r.later:.1f} | {', '.join(r.reasons)} |"


def spread(rows: list[Verified], what: str) -> str:
    """Median, ninth decile, and the mean in which every node counts once."""
    found = sorted(getattr(r, what) for r in rows)
    mean = sum(getattr(r, what) * r.nodes for r in rows) / sum(r.nodes for r in rows)
    return f"{statistics.median(found):.1f}, {whole_programs.ninth_decile(found):.1f}, {mean:.1f}"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, verify=True):
        (x.sin() * x.sin()).sum().backward()             # the verifier is loaded
    rows = []
    for name, make in programs():
        torch.set_default_dtype(torch.float32 if name in WORLD else torch.float64)
        torch.manual_seed(0)
        try:
            rows.append(verified(name, make()))
            print(rows[-1], file=sys.stderr, flush=True)
        except ImportError as error:                     # a package without which another one does not load
            print(name, error, file=sys.stderr, flush=True)
    text = list(table(rows))
    print("\n".join(text))
    for file in sys.argv[1:]:
        replaced(Path(file), BEGIN, END, text)


if __name__ == "__main__":
    main()
