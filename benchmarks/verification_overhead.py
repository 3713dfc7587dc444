"""What `AutogradGraph(verify=True)` adds to steps: `python -m benchmarks.verification_overhead [FILE]`.

Two kinds of steps of every workload of the benchmarks: later steps of a process, whose proofs it knows, and the first
one, for which nothing is stored.  Each is measured in processes of its own (`first_step.py`), on one thread,
as CPU time, that of sympy's processes included.  What the first `AutogradGraph(verify=True)` loads is said apart, and
what reading the hash of a run as written takes.  A first step is divided by the nodes that it verifies: each run of
backward verifies the graph so far.  With FILE, the tables replace those between their markers.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .verification_speed import replaced

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

    def ask(self, workload: str, size: int | None = None) -> Any:
        """What a new process measures."""
        print(json.dumps({"workload": workload, "size": size}), file=self.questions)
        answer = self.answers.readline()
        if not answer:
            raise RuntimeError(f"the process that measures {workload} has failed")
        return json.loads(answer)

    def several(self, workload: str, size: int | None = None) -> list[Any]:
        """The same of several new processes."""
        return [self.ask(workload, size) for _ in range(PROCESSES)]


def middle(found: list[Any], what: str) -> float:
    return statistics.median(one[what] for one in found)


class Tables:
    """The rows, and what they have in common: the most of each kind, what is loaded."""

    def __init__(self, processes: Processes, workloads: list[str]):
        self.processes, self.workloads = processes, workloads
        self.most = [0.0, 0.0]
        self.loading: list[float] = []

    def steps(self) -> Iterator[str]:
        yield ("| workload | nodes verified | verdicts | later steps, ms | µs a node | first step, ms | µs a node | "
               "reading the hash, ms |")
        yield "|---|---|---|---|---|---|---|---|"
        for k, name in enumerate(self.workloads, 1):
            say(f"{k} of {len(self.workloads)}: {name}")
            yield self.row(name)
        yield f"| most of all; the bar is {BAR:.0f} | | | | {self.most[0]:.1f} | | {self.most[1]:.0f} | |"

    def row(self, name: str) -> str:
        found = self.processes.several(name)
        self.loading += [one["loading"] for one in found]
        one = found[0]
        runs = f" in {one['runs']} runs" if one["runs"] > 1 else ""
        proved = "proved" if all(p["proved"] for p in found) else "not all proved"
        written = all(p["written"] == p["runs"] for p in found)
        proved += ", as written" if written else ""
        times = [middle(found, "later"), middle(found, "first")]
        each = [1e6 * t / n for t, n in zip(times, (one["recorded"], one["nodes"]), strict=True)]
        self.most = [max(a, b) for a, b in zip(self.most, each, strict=True)]
        hashing = f"{1e3 * middle(found, 'hashing'):.1f}" if written else ""
        sympy = ", sympy loaded" if any(p["loaded_sympy"] for p in found) else ""
        return (f"| `{name}` | {one['nodes']:,}{runs} | {proved} | {1e3 * times[0]:.2f} | {each[0]:.1f}"
                f"{', ever new' if one['changes'] else ''} | {1e3 * times[1]:.2f} | {each[1]:.0f}{sympy} | "
                f"{hashing} |")

    def fits(self) -> Iterator[str]:
        from .first_step import FAMILIES

        yield "| fixed ms + µs a node | later steps | first step |"
        yield "|---|---|---|"
        for family, make in FAMILIES.items():
            say(f"what grows with the graph: {family}")
            found = [self.processes.several(family, size) for size in SIZES]
            sizes = [processes[0]["nodes"] for processes in found]
            lines = [line(sizes, [middle(processes, what) for processes in found]) for what in ("later", "first")]
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
    from .workloads import MAKES

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
