"""Section `profile`: where a step spends its time, here and in torch eager, by Linux's `perf`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import autograd_opt

from .jobs import Settings, Tick
from .measure import EAGER, OFF, ON, block, own_variants
from .section import Grid, Row, Section
from .workloads import MAKES, labels

SECONDS = 1.0
"""Length of a recording."""
FREQUENCY = 1999
SHOWN = (EAGER, ON)
"""Ways whose Python functions are in the table."""
KINDS = ("kernels", "torch: dispatch, autograd", "torch: Python binding", "autograd_opt", "Python", "C library",
         "system")
OWN = tuple(sorted({f"{f.name.split('.')[0]}." for f in Path(autograd_opt.__file__).parent.rglob("*.so")}))
"""Beginnings of this library's compiled modules."""
KERNEL_WORDS = ("at::native::", "vec::", "mkl", "dnnl", "sgemm", "gemm", "cpublas", "loop2d", "VectorizedLoop",
                "function_ref<void (char**", "Sleef", "oneapi")


def kind_of(library: str, symbol: str) -> str:
    """What a sample belongs to.

    >>> kind_of("recorder.cpython-311-x86_64-linux-gnu.so", "record"), kind_of("libc.so.6", "malloc")
    ('autograd_opt', 'C library')
    """
    if library.startswith(OWN):
        return "autograd_opt"
    if library.startswith("[") or symbol.startswith("[k]"):
        return "system"
    if library.startswith("libtorch_python"):
        return "torch: Python binding"
    if library.startswith(("libtorch", "libc10", "libmkl", "libgomp", "libiomp", "perf-")):
        return "kernels" if any(word in symbol for word in KERNEL_WORDS) else "torch: dispatch, autograd"
    if "python" in library:
        return "Python"
    return "C library"


def samples(run: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """(library, symbol) -> percent of the processor's time while `run` is repeated."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        recorder = subprocess.Popen(
            ["perf", "record", "-q", "-F", str(FREQUENCY), "-o", data, "-p", str(os.getpid())],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        end = time.process_time() + SECONDS
        while time.process_time() < end:
            run()
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
        report = subprocess.run(
            ["perf", "report", "-i", data, "--stdio", "--no-children", "-F", "overhead,dso,symbol", "-t", "\t"],
            capture_output=True, text=True, check=True).stdout
    return read(report)


def python_functions(run: Callable[[], Any], seconds: float = SECONDS) -> Counter[str]:
    """Share of the processor's time in which each Python function was the innermost, kernels it called included."""
    found: Counter[tuple[str, str]] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename != __file__:      # the loop below is not the workload's
            found[frame.f_code.co_filename, frame.f_code.co_name] += 1

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, 1 / FREQUENCY, 1 / FREQUENCY)
    try:
        end = time.process_time() + seconds
        while time.process_time() < end:
            run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    total = found.total() or 1
    return Counter({f"{'/'.join(Path(file).parts[-2:])}:{name}": count / total
                    for (file, name), count in found.items()})


def read(report: str) -> Counter[tuple[str, str]]:
    """Percentages of perf's report."""
    out: Counter[tuple[str, str]] = Counter()
    for line in report.splitlines():
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) >= 3 and parts[0].endswith("%") and not line.startswith("#"):
            out[parts[1], parts[2].removeprefix("[.] ")] += float(parts[0][:-1])  # type: ignore[assignment]
    return out


def measure_profile(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Milliseconds of a step by kind, and the functions of ours that take most."""
    if shutil.which("perf") is None:
        return {"name": label, "notes": ["perf is not installed: the profiles are left out (Debian: linux-perf)"]}
    ways = {}
    for variant in own_variants(MAKES[label]):
        for _ in range(5):
            variant.run()
        seconds = min(block(variant.run, 5) for _ in range(5))
        found = samples(variant.run)
        total = sum(found.values()) or 1.0
        kinds: Counter[str] = Counter()
        for (library, symbol), percent in found.items():
            kinds[kind_of(library, symbol)] += percent / total  # type: ignore[assignment]
        own = Counter({symbol: percent / total for (library, symbol), percent in found.items()
                       if kind_of(library, symbol) == "autograd_opt"})
        python = python_functions(variant.run) if variant.name in SHOWN else Counter()
        ways[variant.name] = {"seconds": seconds, "kinds": dict(kinds), "own": dict(own.most_common(8)),
                              "python": dict(python.most_common(10))}
        on_round()
    return {"name": label, "ways": ways}


def grids(rows: list[Row]) -> list[Grid]:
    """Milliseconds by kind; our own functions."""
    found = [row for row in rows if "ways" in row]
    lines = [[row["name"], way, f"{facts['seconds'] * 1e3:.2f}",
              *(f"{facts['seconds'] * facts['kinds'].get(kind, 0) * 1e3:.2f}" for kind in KINDS)]
             for row in found for way, facts in row["ways"].items() if way in (EAGER, OFF, ON)]
    own = [[row["name"], ", ".join(f"{short(symbol)} {share * facts['seconds'] * 1e6:.0f}"
                                   for symbol, share in facts["own"].items())]
           for row in found for way, facts in row["ways"].items() if way == ON]
    python = [[row["name"], way, ", ".join(f"{name} {share * facts['seconds'] * 1e6:.0f}"
                                           for name, share in facts["python"].items())]
              for row in found for way, facts in row["ways"].items() if way in SHOWN]
    return [
        Grid("Milliseconds of a step", ("workload", "way", "all", *KINDS), lines,
             "Samples of `perf`, shares of the time of a step; kernels are told from dispatch by their symbols."),
        Grid("Compiled functions of this library, µs a step with optimize=True", ("workload", "functions"), own),
        Grid("Python functions, µs a step, with what they call that is not Python", ("workload", "way", "functions"),
             python),
    ]


def short(symbol: str) -> str:
    """A function's name without Cython's prefix.

    >>> short("__pyx_f_12autograd_opt_8recorder_record")
    'recorder_record'
    """
    tail = symbol.rpartition("autograd_opt_")[2]
    return tail.lstrip("0123456789").removeprefix("_") or symbol


SECTION = Section("profile", "Profiles beside torch eager", labels, measure_profile, grids, expected=11.0)
