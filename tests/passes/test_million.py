"""The benchmark runs, small, and its shapes are what they say."""

import numpy as np
import pytest

from autograd_opt.benchmarks import million


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


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    million.main(largest=1000, fx_nodes=300)
    printed = capsys.readouterr().out
    assert "| fan 40,000 | 1,000 |" in printed
    assert "torch.fx" in printed
