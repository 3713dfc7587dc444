"""The benchmark runs, small, and its shapes are what they say."""

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
