"""Sections `memory`, `budget` and `profile`, at a size that takes no time."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from autograd_opt.benchmarks import bars, budget, counts, memory, profiles
from autograd_opt.benchmarks.jobs import Settings
from autograd_opt.benchmarks.section import Check


@pytest.mark.parametrize("way", list(memory.OPTIONS))
def test_a_node_has_a_size(way: str) -> None:
    held: list[np.ndarray] = []

    def read() -> int:          # grows by 1,000 bytes between two readings
        held.append(np.zeros(1000, np.uint8))
        return sum(a.nbytes for a in held)

    assert memory.recorded_bytes(memory.OPTIONS[way], 100, read) == 10.0


def test_growth_is_read_at_equal_distances() -> None:
    row = memory.growth({"optimize": True}, 40, lambda: None)
    assert [done for done, *_ in row["curve"]] == list(range(2, 41, 2))
    assert row["counted"] == 20


def test_bytes_in_use_are_counted_to_the_byte() -> None:
    read = memory.heap_reader()
    assert read is not None
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)

    def to_the_byte(size: int) -> bool:
        before = read()
        block = library.malloc(size)
        during = read()
        library.free(block)
        return size <= during - before <= size + 2 * memory.PAGE and read() == before

    for size in (5000, 3_000_000, 200_000_000):
        assert any(to_the_byte(size) for _ in range(20))       # another thread of the process may allocate meanwhile


def test_what_a_step_leaves_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bytearray] = []
    opened = memory.ao.AutogradGraph

    def leaking(**options: bool) -> object:
        left.append(bytearray(1000))
        return opened(**options)

    monkeypatch.setattr(memory.ao, "AutogradGraph", leaking)
    row = memory.growth({"optimize": True}, 400, lambda: None)
    assert row["heap"] >= 200 * 1000
    assert memory.a_step(row) >= 1000


def test_a_single_block_is_no_growth_and_a_block_in_each_stretch_is() -> None:
    row = {"kind": "growth", "way": "optimized", "steps": 10_000, "counted": 5000, "heap": 384, "a stretch": 0.0}
    assert [check.found for check in memory.checks([row])] == [0.0]
    (check,) = memory.checks([row | {"heap": 320, "a stretch": 32.0}])
    assert check.found == 320 / 5000
    assert not check.met


def test_where_bytes_cannot_be_counted_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "heap_reader", lambda: None)
    row = {"kind": "growth", "way": "optimized", "steps": 40} | memory.growth({"optimize": True}, 40, lambda: None)
    assert "does not count" in row["notes"][0]
    assert memory.grids([row]) == memory.checks([row]) == []


def test_growth_is_judged_beside_torch_eager(tmp_path: Path) -> None:
    def row(way: str, grown: int) -> dict[str, object]:
        return {"name": way, "kind": "growth", "way": way, "steps": 100, "counted": 50, "heap": grown, "blocks": 0,
                "a stretch": grown / (memory.POINTS // 2), "resident": 4096,
                "curve": [[k, 1000 * k, k, k] for k in range(1, 5)]}

    rows = [row("optimized", 4096), row("as written", 8192), row("torch eager", 4096)]
    assert [check.found for check in memory.checks(rows)] == [0.0, 4096 / 50]
    (grid,) = memory.grids(rows)
    assert len(grid.lines) == 3
    pytest.importorskip("matplotlib", reason="plots need the extra bench")
    (picture,) = memory.plot(rows, tmp_path / "memory")
    assert picture.exists()


def test_a_peak_row() -> None:
    once = Settings(repeats=1)
    row = memory.joined(memory.measure_memory("peak: gp", once), counts.measure_counts("gp", once))
    (check,) = memory.checks([row])
    assert check == Check("gp", "peak bytes / torch eager", check.found, *bars.MEMORY_BAR)
    assert 0 < check.found < 2


def test_every_line_of_the_budget_has_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LENGTH", 10)
    row = budget.measure_budget("x", Settings(repeats=1))
    (grid,) = budget.grids([row])
    assert len(grid.lines) == len(budget.LINES)


def test_samples_are_read_from_the_report_of_perf() -> None:
    report = "# Overhead\n 60.00%\tlibtorch_cpu.so\t[.] at::native::add\n 40.00%\trecorder.cpython-311.so\t[.] record\n"
    found = profiles.read(report)
    assert {profiles.kind_of(*key): share for key, share in found.items()} == {"kernels": 60.0, "autograd_opt": 40.0}


def test_python_functions_are_sampled() -> None:
    def busy() -> int:
        return sum(range(20_000))

    found = profiles.python_functions(busy, seconds=0.1)
    assert found.most_common(1)[0][0] == "benchmarks/test_memory_and_budget.py:busy"


def test_without_perf_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles.shutil, "which", lambda name: None)
    (note,) = profiles.measure_profile("chain", Settings())["notes"]
    assert "perf is not installed" in note
