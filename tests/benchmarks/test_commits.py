"""The classes that asv runs."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """The module as asv imports it: from the folder in asv.conf.json, under that folder's own name."""
    folder = ROOT / json.loads((ROOT / "asv.conf.json").read_text())["benchmark_dir"]
    monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
    return importlib.import_module(f"{folder.name}.steps")


def test_a_step_is_timed_and_counted(steps) -> None:  # type: ignore[no-untyped-def]
    case = steps.Step()
    case.setup("sharing 0.9", "optimized")
    case.time_step("sharing 0.9", "optimized")
    eager = steps.Step()
    eager.setup("sharing 0.9", "torch eager")
    assert case.track_kernels("sharing 0.9", "optimized") < eager.track_kernels("sharing 0.9", "torch eager")
    assert case.track_peak("sharing 0.9", "optimized") > 0


def test_the_passes_are_timed(steps) -> None:  # type: ignore[no-untyped-def]
    case = steps.Passes()
    case.shape = steps.million.half(1000)
    assert case.track_nanoseconds("half") > 0
