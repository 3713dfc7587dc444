"""One measurement, in the process that `jobs` forked for it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRINTED = "printed.txt"
"""What a measurement prints, in its scratch folder."""


def main(pipe: Connection, section: str, label: str, settings: dict[str, Any], variables: dict[str, str]) -> None:
    """Measure, and send the row as JSON."""
    os.setsid()                             # one signal ends it and all that it starts
    os.environ.update(variables)
    tempfile.tempdir = None                 # read again
    with open(Path(variables["TMPDIR"]) / PRINTED, "w") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)

    import torch

    from .jobs import Settings
    from .sections import MEASURED

    def say(message: dict[str, Any]) -> None:
        pipe.send_bytes(json.dumps(message).encode())

    def tick(row: dict[str, Any] | None = None) -> None:
        say({"tick": 1} if row is None else {"tick": 1, "row": row})

    chosen = Settings(**settings)
    torch.set_num_threads(chosen.threads)
    try:
        row = MEASURED[section](label, chosen, tick)
    except Exception as error:  # what cannot run is a result, too
        lines = str(error).strip().splitlines()
        row = {"name": label, "error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
    times = os.times()
    took = times.user + times.system + times.children_user + times.children_system
    say({"row": row | {"took": round(took, 2)}, "done": True})
    sys.stdout.flush()
    os._exit(0)         # whatever a peer left running (compile workers, thread pools) is not waited for
