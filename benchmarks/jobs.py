"""Each measurement in a Python process of its own, so that a failure costs one row and no workload trains another.

The child writes lines of JSON to its stdout: `{"tick": 1}` for each round done, last
`{"row": ...}`.  Whatever else it prints goes to stderr and is shown only when it fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
LIMIT = 900.0
"""Seconds after which a measurement is given up."""


@dataclass(frozen=True)
class Settings:
    """How a measurement is run."""

    repeats: int = 30
    threads: int = 1
    limit: float = LIMIT


def environment(threads: int, scratch: str) -> dict[str, str]:
    """One number of threads for every library that reads it there, and caches on disk that are empty."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    variables = {**os.environ, **dict.fromkeys(names, str(threads))}
    variables["TMPDIR"] = variables["NUMBA_CACHE_DIR"] = variables["TORCHINDUCTOR_CACHE_DIR"] = scratch
    variables["PYTENSOR_FLAGS"] = f"base_compiledir={scratch}"
    if threads == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables["XLA_FLAGS"] = f"{variables.get('XLA_FLAGS', '')} {flags}".strip()
    return variables


def in_process_of_its_own(
    section: str, label: str, settings: Settings, on_tick: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The row that `section` measures for `label`; what went wrong is a row, too."""
    command = [sys.executable, "-m", f"{PACKAGE}.child", section, label, json.dumps(vars(settings))]
    with tempfile.TemporaryFile("w+") as complaints, tempfile.TemporaryDirectory() as scratch:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=complaints, text=True, start_new_session=True,
            env=environment(settings.threads, scratch),
        )
        late = threading.Event()

        def give_up() -> None:
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        alarm = threading.Timer(settings.limit, give_up)
        alarm.start()
        try:
            row = read_row(child, on_tick)
            code = child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        finally:
            alarm.cancel()
        if row is not None:
            return row
        complaints.seek(0)
        last = [line.strip() for line in complaints.read().splitlines() if line.strip()][-1:] or [f"exit code {code}"]
    reason = f"given up after {settings.limit:.0f} s" if late.is_set() else last[0]
    return {"name": label, "error": reason}


def read_row(child: subprocess.Popen[str], on_tick: Callable[[], None]) -> dict[str, Any] | None:
    """Count ticks until the row comes, or the end."""
    assert child.stdout is not None
    row = None
    with child.stdout as lines:
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            if "tick" in message:
                on_tick()
            row = message.get("row", row)
    return row
