"""The benchmark runs, small, and its shapes are what they say."""

import time

import numpy as np
import pytest

from autograd_opt.benchmarks import million, others_cse, scaling
from autograd_opt.benchmarks.jobs import Settings


@pytest.mark.parametrize("make", million.SHAPES, ids=lambda make: make.__name__)
def test_shapes(make) -> None:  # type: ignore[no-untyped-def]
    shape = make(2000)
    table = shape.table()
    read = million.NodeTable.from_dag(shape.dag(), key=lambda p: p.key, flags=lambda p: p.flags)
    assert len(table) == 2000
    assert np.array_equal(read.operands, table.operands)
    assert np.array_equal(read.flags, table.flags)
    same = read.key[:, None] == read.key[:50]
    assert np.array_equal(same, table.key[:, None] == table.key[:50])


def test_half_repeats() -> None:
    # 200 leaves, 900 operations, a few of which repeat by chance, and the 900 again
    assert 0.5 < million.measure(million.half(2000), repeats=1)["left"] <= 0.55


@pytest.mark.parametrize("name", ["torch.fx", "sympy"])
def test_others_leave_as_many_operations(name: str) -> None:
    shape = million.half(400)
    left = round(million.measure(shape, repeats=1)["left"] * 400)
    leaves = 400 - len(shape.operands) // 2
    _, run = others_cse.OTHERS[name]
    # sympy counts what it names, and leaves what is used once in its place
    seconds, operations = run(shape)
    assert seconds > 0
    assert 0 < operations <= left - leaves
    assert name == "sympy" or operations == left - leaves


def test_scaling_rows_make_tables_and_checks() -> None:
    rows = [scaling.measure_scaling(label, Settings(), sizes=(1000, 2000))
            for label in ("wide", "wide: torch.fx")]
    stages, compared = scaling.grids(rows)
    assert len(stages.lines) == len(compared.lines) == 2
    assert compared.headings[2:] == ("autograd_opt", "torch.fx")
    big = [{"name": who or "wide", "shape": "wide", "who": who or "autograd_opt",
            "sizes": {"100000": {"total": t}, "1000000": {"total": t}}} for who, t in (("", 300.0), ("torch.fx", 9e4))]
    assert [check.found for check in scaling.checks(big)] == [300.0, 10.0, 300.0]
    assert all(check.met for check in scaling.checks(big))


def test_what_a_size_takes_is_foretold_by_the_smaller_ones() -> None:
    assert scaling.foretold([], 10**3) == 0
    assert scaling.foretold([(10**3, 0.5)], 10**4) == pytest.approx(5)
    assert scaling.foretold([(10**3, 0.5), (10**4, 50.0)], 10**5) == pytest.approx(5000)
    assert scaling.foretold([(10**3, 0.5), (10**4, 0.1)], 10**5) == pytest.approx(1)


def spin(seconds: float) -> float:
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass
    return time.process_time() - begin


def test_a_library_ends_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "BUDGET", 0.6)
    ran: list[int] = []

    def slow(shape: million.Shape) -> tuple[float, int]:
        ran.append(len(shape.key))
        return spin(0.02 if len(shape.key) == 1000 else 60), 7

    begin = time.process_time()
    row = scaling.others("slow", slow, million.deep, (1000, 2000, 4000), lambda: None)
    assert time.process_time() - begin < 5
    assert ran == [1000, 1000, 1000, 2000]
    assert list(row["sizes"]) == ["1000"]
    assert row["beyond"] == {"2000": 0.6}
    assert "stopped at 2,000 nodes" in row["notes"][0]


def test_a_size_beyond_the_budget_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "BUDGET", 1.0)
    row = scaling.others("slow", lambda shape: (spin(0.15), 7), million.deep, (1000, 10_000), lambda: None)
    assert list(row["sizes"]) == ["1000"]
    assert "were not run" in row["notes"][0]


def test_a_bar_on_a_size_that_did_not_fit_is_stated_as_at_least() -> None:
    rows = [{"name": "deep", "shape": "deep", "who": "autograd_opt", "sizes": {"100000": {"total": 200.0}}},
            {"name": "deep: torch.fx", "shape": "deep", "who": "torch.fx", "sizes": {"10000": {"total": 40_000.0}},
             "beyond": {"100000": 40.0}}]
    (check,) = scaling.checks(rows)
    assert check.found == 200
    assert "at least" in check.what
    assert scaling.per_node(rows, "deep", "torch.fx", "100000") == "— (> 40 s)"
