"""Run what tells the compiler which code is run often, in a build that counts.

    python scripts/training.py

`make` builds twice: first with `AUTOGRAD_OPT_PROFILE=record`, whose modules count how often each branch is taken and
write that below build/objects when a process ends; then, after this script, with `AUTOGRAD_OPT_PROFILE=use`, which
places what is run together and apart from what never is.  What runs here is a little of everything: the measured
workloads, each operator that `autograd-opt doctor` checks, and random programs.  The whole programs of the sections
`algorithms` and `world`, by which builds are judged, are not among it.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import autograd_opt as ao
from autograd_opt.benchmarks.measure import recorded
from autograd_opt.benchmarks.workloads import MAKES
from autograd_opt.cli.doctor import calls
from tests.fuzz.oracle import execute, graphs, make_inputs
from tests.programs import from_seed

STEPS = 4
"""Of each workload, as written and optimized."""
REPEATS = 30
"""Of each operator."""
PROGRAMS = 60
"""Random programs, half of them of the wider kinds."""


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for make in MAKES.values():
        workload = make()
        for optimize in (True, False):
            step = recorded(workload, optimize=optimize)
            for _ in range(STEPS):
                step()
    for call in calls().values():
        for _ in range(REPEATS):
            x, y = (torch.rand(3, 3).mul_(0.8).add_(0.1).requires_grad_() for _ in range(2))
            with ao.AutogradGraph(optimize=True):
                call(x, y).sum().backward()
    for seed in range(PROGRAMS):
        program = from_seed(seed, wide=seed % 2 == 1)
        for optimize in (True, False):
            with contextlib.suppress(Exception), graphs({"optimize": optimize}) as session:   # others judge it
                execute(program, make_inputs("plain"), session=session)


if __name__ == "__main__":
    main()
