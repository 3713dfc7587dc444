"""One measurement, in the process that `jobs` made for it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch


def main(section: str, label: str, settings: str) -> None:
    """Measure, and write the row as JSON."""
    from .jobs import Settings
    from .sections import SECTIONS

    # Libraries that print to stdout, some from C++, must not get between the lines of JSON.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")

    chosen = Settings(**json.loads(settings))
    torch.set_num_threads(chosen.threads)
    try:
        row = SECTIONS[section].measure(label, chosen, lambda: say({"tick": 1}))
    except Exception as error:  # what cannot run is a result, too
        lines = str(error).strip().splitlines()
        row = {"name": label, "error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
    say({"row": row})
    out.flush()
    os._exit(0)         # whatever a peer left running (compile workers, thread pools) is not waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
