"""Each measurement in a Python process of its own, so that a failure costs one row and no workload trains another.

The processes are forked from one that has imported torch and this library and has computed
nothing: starting one takes milliseconds, where the imports take seconds.  A child sends
lines of JSON: `{"tick": 1}` for each round done, `{"row": ...}` for what it has so far, last
`{"row": ..., "done": true}`.  What it prints is shown only when it fails.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import child

PACKAGE = __name__.rpartition(".")[0]
LIMIT = 900.0
"""Seconds after which a measurement is given up."""
PATIENCE = 45.0
"""Seconds that another library is given for its first call, and again for each new structure."""
FORKING = multiprocessing.get_context("forkserver")
RUNNING: set[Any] = set()
"""Processes that measure now."""

Tick = Callable[..., None]
"""Called after each round; with a row, it is what is measured so far, and the time that is left begins anew."""


@dataclass(frozen=True)
class Settings:
    """How a measurement is run."""

    repeats: int = 30
    threads: int = 1
    limit: float = LIMIT
    patience: float = PATIENCE


def threads_of_all(threads: int) -> dict[str, str]:
    """One number of threads for every library that reads it from its environment."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    variables = dict.fromkeys(names, str(threads))
    if threads == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    return variables


def empty_caches(scratch: str) -> dict[str, str]:
    """Caches on disk of every library that has one, in a folder that is empty."""
    return {**dict.fromkeys(("TMPDIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), scratch),
            "PYTENSOR_FLAGS": f"base_compiledir={scratch}"}


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables of this process for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def prepare(threads: int) -> None:
    """Start the process that all others are forked from; what is there already is kept."""
    FORKING.set_forkserver_preload([f"{PACKAGE}.sections"])
    with in_environment(threads_of_all(threads)):
        forkserver.ensure_running()


def in_process_of_its_own(
    section: str, label: str, settings: Settings, on_tick: Tick = lambda *_: None
) -> dict[str, Any]:
    """The row that `section` measures for `label`, and the processor's seconds it `took`; a failure is a row, too."""
    prepare(settings.threads)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        variables = threads_of_all(settings.threads) | empty_caches(scratch)
        here, there = FORKING.Pipe(duplex=False)
        process = FORKING.Process(target=child.main, args=(there, section, label, vars(settings), variables))
        process.start()
        there.close()
        RUNNING.add(process)
        try:
            row, late = read_row(here, limit_of(section, settings), on_tick)
            if row is None and not late:
                process.join(5)             # for the code that it ended with
        finally:
            end(process)
            here.close()
        if row is None or late:
            row = (row or {"name": label}) | (reason(section, settings) if late else died(Path(scratch), process))
    return {"took": round(time.monotonic() - begin, 2)} | row


def limit_of(section: str, settings: Settings) -> float:
    """Seconds until a row, or the next part of one, has to be there."""
    from .sections import SECTIONS

    patient = section in SECTIONS and SECTIONS[section].patient
    return min(settings.patience, settings.limit) if patient else settings.limit


def reason(section: str, settings: Settings) -> dict[str, Any]:
    """Why a row ends early: a result where it is another library's, a failure elsewhere."""
    from .sections import SECTIONS

    seconds = limit_of(section, settings)
    if section in SECTIONS and SECTIONS[section].patient:
        return {"unfinished": seconds}
    return {"error": f"given up after {seconds:.0f} s"}


def died(scratch: Path, process: Any) -> dict[str, Any]:
    """The last line that a process has printed, or how it ended."""
    printed = scratch / child.PRINTED
    lines = printed.read_text(errors="replace").splitlines() if printed.exists() else []
    return {"error": next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {process.exitcode}")}


def end_all() -> None:
    """Leave no process behind."""
    for process in list(RUNNING):
        end(process)


def end(process: Any) -> None:
    """Stop a process and all that it has started (compile workers, compilers)."""
    RUNNING.discard(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):          # before it was the first of its group
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def read_row(pipe: Connection, limit: float, on_tick: Tick) -> tuple[dict[str, Any] | None, bool]:
    """What came until the end, and whether that was for lack of time."""
    row, end = None, time.monotonic() + limit
    while pipe.poll(max(0.0, end - time.monotonic())):
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return (row, False) if row is None else (row | {"error": "ended early"}, False)
        on_tick()
        if "row" in message:
            row, end = message["row"], time.monotonic() + limit
        if message.get("done"):
            return row, False
    return row, True
