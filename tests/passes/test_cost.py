"""Cost by counting: probes and comparisons grow as the graph does."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from autograd_opt.passes import Effort, NodeTable, cse, prune

SHAPES = ["wide", "deep", "fan", "half"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [3_000, 30_000, 300_000])
def test_comparisons_are_linear(shapes: SimpleNamespace, shape: str, n: int) -> None:
    effort = Effort()
    leader = cse(getattr(shapes, shape)(n), degenerate_hash=False, effort=effort)
    merged = np.count_nonzero(leader != np.arange(n))
    # a merge takes one comparison; any other is two hashes with equal tags
    assert merged <= effort.comparisons <= merged + n // 1000
    assert effort.probes <= 3 * n
    assert effort.hashes == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [3_000, 30_000, 300_000])
def test_colliding_hashes_cost_a_bounded_number_of_probes(shapes: SimpleNamespace, shape: str, n: int) -> None:
    table, effort = getattr(shapes, shape)(n), Effort()
    leader = cse(table, degenerate_hash=True, effort=effort)
    assert effort.hashes == (2 if n > 3_000 or effort.hashes == 2 else 1)
    assert effort.comparisons <= effort.probes <= 8192 + 3 * n, "found out soon, and another hash is taken"
    assert np.array_equal(leader, cse(table, degenerate_hash=False))


def test_without_collisions_the_twin_compares_once_a_merge(
    sweep: Callable[..., np.ndarray], shapes: SimpleNamespace
) -> None:
    effort = Effort()
    leader = sweep(shapes.half(2000), degenerate_hash=False, effort=effort)
    assert effort.comparisons == np.count_nonzero(leader != np.arange(2000)) == 950


def test_the_environment_forces_collisions(
    sweep: Callable[..., np.ndarray],
    shapes: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = shapes.half(500)
    leader = sweep(table, degenerate_hash=False)
    monkeypatch.setenv("AUTOGRAD_OPT_DEGENERATE_HASH", "1")
    effort = Effort()
    assert np.array_equal(sweep(table, effort=effort), leader)
    assert effort.comparisons > 2_000


def test_a_long_chain_needs_no_recursion(
    sweep: Callable[..., np.ndarray], prune_with: Callable[..., np.ndarray]
) -> None:
    n = 100_000
    node = np.arange(n)
    table = NodeTable(np.zeros(n, int), np.r_[0, node], node[:-1], np.zeros(n, int))
    leader = sweep(table, degenerate_hash=False)
    assert np.array_equal(leader, node)
    assert prune_with(table, [n - 1], leader).all()


@pytest.mark.slow
def test_more_nodes_than_a_float_or_a_counter_can_tell_apart() -> None:
    n, repeats = 2**24 + 1000, 500
    key = np.arange(n)
    key[-repeats:] = key[-2 * repeats : -repeats]
    operands = np.zeros(n - 1, np.int32)
    operands[-2 * repeats :] = 2**24 - 7
    table = NodeTable(key, np.r_[0, np.arange(n)], operands, np.zeros(n, np.uint8))
    leader = cse(table)
    expected = np.arange(n)
    expected[-repeats:] -= repeats
    assert np.array_equal(leader, expected)
    alive = prune(table, [n - 1], leader)
    assert np.flatnonzero(alive).tolist() == [0, 2**24 - 7, n - 1 - repeats]
