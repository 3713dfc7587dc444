"""Steps of the workloads, and the passes alone, as asv's classes.

The workloads are those of the checkout that asv runs in, the library that of the commit
under test: else a change of a workload would look like a change of the library.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))      # behind what is installed

from benchmarks import counting, measure, million
from benchmarks.workload import torch_leaf
from benchmarks.workloads import MAKES

WAYS: dict[str, dict[str, bool] | None] = {
    "torch eager": None, "as written": {"optimize": False}, "optimized": {"optimize": True},
}


class Step:
    """One forward and backward of a workload."""

    params = (list(MAKES), list(WAYS))
    param_names = ("workload", "way")
    timeout = 300
    timer = time.process_time

    def setup(self, name: str, way: str) -> None:
        torch.set_num_threads(1)
        options = WAYS[way]
        workload = MAKES[name](leaf=torch_leaf)
        self.run: Any = workload.step if options is None else measure.recorded(workload, **options)
        self.leaves = workload.leaves
        for _ in range(3):
            self.run()

    def time_step(self, name: str, way: str) -> None:
        self.run()

    def track_kernels(self, name: str, way: str) -> int:
        return counting.kernels(self.run).total()

    def track_peak(self, name: str, way: str) -> int:
        return counting.peak_bytes(self.run, self.leaves)

    track_kernels.unit = "kernels"      # type: ignore[attr-defined]
    track_peak.unit = "bytes"           # type: ignore[attr-defined]


class Passes:
    """CSE and prune on 100,000 nodes, from DAG to DAG."""

    params = (tuple(make.__name__ for make in million.SHAPES),)
    param_names = ("shape",)
    timeout = 300

    def setup(self, name: str) -> None:
        self.shape = getattr(million, name)(100_000)

    def track_nanoseconds(self, name: str) -> float:
        return million.measure(self.shape, repeats=3)["total"]

    track_nanoseconds.unit = "ns/node"  # type: ignore[attr-defined]
