"""What `AutogradGraph(verify=True)` adds to steps: `python -m autograd_opt.verify.overhead [FILE]`.

Three kinds of steps of every workload of the benchmarks: later steps of a process, whose proofs it knows; the first
one where an earlier process has stored its proofs; the first one where nothing is stored.  Each is measured in
processes of its own (`benchmarks/first_step.py`), on one thread, as CPU time, that of sympy's processes included.
What the first `AutogradGraph(verify=True)` loads is said apart, and what reading the hash of a run as written takes.
A first step is divided by the nodes that it verifies: each run of backward verifies the graph so far.  With FILE, the
tables replace those between their markers.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from autograd_opt.verify.speed import replaced

BEGIN, END = "<!-- overhead -->", "<!-- /overhead -->"
BAR = 50.0
PROCESSES = 5
"""Of each kind; the middle one counts."""
SIZES = 40, 400, 4000


class Processes:
    """New processes, each asked one question."""

    def __enter__(self) -> Processes:
        # Compiled Python is kept, as it is where nothing forbids it: else each process compiles the verifier.
        words = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.server = subprocess.Popen([sys.executable, "-m", "autograd_opt.benchmarks.first_step"], env=words,
                                       text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.questions: Any = self.server.stdin
        self.answers: Any = self.server.stdout
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.questions.close()
        self.server.wait()
        self.answers.close()

    def ask(self, workload: str, folder: str, size: int | None = None) -> Any:
        """What a new process measures that keeps its files in this folder."""
        print(json.dumps({"workload": workload, "folder": folder, "size": size}), file=self.questions)
        answer = self.answers.readline()
        if not answer:
            raise RuntimeError(f"the process that measures {workload} has failed")
        return json.loads(answer)

    def both(self, workload: str, size: int | None = None) -> tuple[list[Any], list[Any]]:
        """Without stored proofs, and with those of the first of these."""
        with tempfile.TemporaryDirectory() as folder:
            without = [self.ask(workload, folder, size)]
            stored = [self.ask(workload, folder, size) for _ in range(PROCESSES)]
        return [*without, *[self.ask(workload, "off", size) for _ in range(PROCESSES - 1)]], stored


def middle(found: list[Any], what: str) -> float:
    return statistics.median(one[what] for one in found)


class Tables:
    """The rows, and what they have in common: the most of each kind, what is loaded."""

    def __init__(self, processes: Processes, workloads: list[str]):
        self.processes, self.workloads = processes, workloads
        self.most = [0.0, 0.0, 0.0]
        self.loading: list[float] = []

    def steps(self) -> Iterator[str]:
        yield ("| workload | nodes verified | verdicts | later steps, ms | µs a node | first step, proofs stored, ms | "
               "µs a node | first step, nothing stored, ms | µs a node | reading the hash, ms |")
        yield "|---|---|---|---|---|---|---|---|---|---|"
        for k, name in enumerate(self.workloads, 1):
            say(f"{k} of {len(self.workloads)}: {name}")
            yield self.row(name)
        yield (f"| most of all; the bar is {BAR:.0f} | | | | {self.most[0]:.1f} | | {self.most[1]:.1f} | | "
               f"{self.most[2]:.0f} | |")

    def row(self, name: str) -> str:
        without, stored = self.processes.both(name)
        self.loading += [one["loading"] for one in (*without, *stored)]
        one = stored[0]
        runs = f" in {one['runs']} runs" if one["runs"] > 1 else ""
        proved = "proved" if all(p["proved"] for p in (*without, *stored)) else "not all proved"
        written = all(p["written"] == p["runs"] for p in (*without, *stored))
        proved += ", as written" if written else ""
        found = "" if all(p["stored"] + p["written"] == p["runs"] for p in stored) else ", not all found"
        steps = without if one["changes"] else stored + without     # new structures may be found in files, too
        times = [middle(steps, "later"), middle(stored, "first"), middle(without, "first")]
        each = [1e6 * t / n for t, n in zip(times, (one["recorded"], one["nodes"], one["nodes"]), strict=True)]
        self.most = [max(a, b) for a, b in zip(self.most, each, strict=True)]
        hashing = f"{1e3 * middle(without, 'hashing'):.1f}" if written else ""
        sympy = ", sympy loaded" if any(p["loaded_sympy"] for p in (*without, *stored)) else ""
        return (f"| `{name}` | {one['nodes']:,}{runs} | {proved} | {1e3 * times[0]:.2f} | {each[0]:.1f}"
                f"{', ever new' if one['changes'] else ''} | {1e3 * times[1]:.2f}{found} | {each[1]:.1f} | "
                f"{1e3 * times[2]:.2f} | {each[2]:.0f}{sympy} | "
                f"{hashing} |")

    def fits(self) -> Iterator[str]:
        from autograd_opt.benchmarks.first_step import FAMILIES

        yield "| fixed ms + µs a node | later steps | first step, proofs stored | first step, nothing stored |"
        yield "|---|---|---|---|"
        for family, make in FAMILIES.items():
            say(f"what grows with the graph: {family}")
            found = [self.processes.both(family, size) for size in SIZES]
            sizes = [stored[0]["nodes"] for _, stored in found]
            lines = [line(sizes, [middle(stored, "later") for _, stored in found]),
                     line(sizes, [middle(stored, "first") for _, stored in found]),
                     line(sizes, [middle(without, "first") for without, _ in found])]
            yield f"| {(make.__doc__ or '').rstrip('.')} | {' | '.join(lines)} |"

    def loads(self) -> Iterator[str]:
        yield "| loaded once | ms of CPU |"
        yield "|---|---|"
        yield ("| the verifier, with the first `AutogradGraph(verify=True)` | "
               f"{1e3 * statistics.median(self.loading):.0f} |")


def say(what: str) -> None:
    """How far it has come, for who waits."""
    print(what, file=sys.stderr, flush=True)


def line(sizes: list[int], seconds: list[float]) -> str:
    """What a step costs whatever its size, and a node: a straight line, small times as good as large ones."""
    import numpy as np

    slope, fixed = np.polyfit(sizes, seconds, 1, w=1.0 / np.maximum(seconds, 1e-6))
    return f"{1e3 * max(float(fixed), 0.0):.2f} + {1e6 * float(slope):.1f}"


def main() -> None:
    from autograd_opt.benchmarks.workloads import MAKES

    rows: list[str] = []
    with Processes() as processes:
        tables = Tables(processes, list(MAKES))
        for table in (tables.steps(), tables.fits(), tables.loads()):
            if rows:
                rows.append("")
                print()
            for text in table:
                rows.append(text)
                print(text, flush=True)
    for file in sys.argv[1:]:
        replaced(Path(file), BEGIN, END, rows)


if __name__ == "__main__":
    main()
