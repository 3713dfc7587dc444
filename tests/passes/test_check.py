"""Each rule of the checker, broken on purpose once."""

import numpy as np
import pytest

from autograd_opt.passes import (
    COMMUTATIVE,
    EFFECT,
    KEEP,
    LEAF,
    NOMERGE,
    PINNED,
    NodeTable,
    PassResultError,
    check,
    cse,
    prune,
)

# x, y; a = x+y; b = y+x; c = a-b; d = sin(c)
ROWS = [(), (), (0, 1), (1, 0), (2, 3), (4,)]
KEY = [0, 0, 1, 1, 2, 3]
FLAGS = [LEAF, LEAF, COMMUTATIVE, COMMUTATIVE, 0, 0]


def table(flag: int = 0, node: int = 0, meta: list[int] | None = None) -> NodeTable:
    flags = list(FLAGS)
    flags[node] |= flag
    return NodeTable.from_operands(KEY, ROWS, flags, meta)


def refuse(table: NodeTable, leader: list[int], alive: list[int], *, exact: bool = False) -> tuple[int | None, str]:
    arrays = np.array(leader, np.int32), np.array(alive, np.uint8)
    with pytest.raises(PassResultError, match="pass 'mine'") as caught:
        check(table, [5], *arrays, pass_name="mine", exact=exact)
    return caught.value.node, caught.value.fact


def test_a_right_result_passes() -> None:
    leader = cse(table())
    assert leader.tolist() == [0, 1, 2, 2, 4, 5]
    check(table(), [5], leader, prune(table(), [5], leader), exact=True)


@pytest.mark.parametrize(
    ("leader", "alive", "node", "fact"),
    [
        ([0, 1, 2], [1] * 6, None, "3 leaders"),
        ([0, 1, 3, 3, 4, 5], [1] * 6, 2, "comes after"),
        ([0, 1, 2, 3, -1, 5], [1] * 6, 4, "comes after"),
        ([0, 1, 2, 2, 3, 5], [1] * 6, 4, "another leader"),
        ([0, 0, 2, 3, 4, 5], [1, 0, 1, 1, 1, 1], 1, "a leaf"),
        ([0, 1, 2, 2, 4, 5], [1] * 6, 3, "merged and alive"),
        ([0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 0], 5, "output"),
        ([0, 1, 2, 3, 4, 5], [1, 1, 0, 1, 1, 1], 4, "operand"),
        ([0, 1, 2, 2, 4, 5], [1, 1, 0, 0, 1, 1], 4, "operand"),
    ],
)
def test_each_rule(leader: list[int], alive: list[int], node: int | None, fact: str) -> None:
    refused = refuse(table(), leader, alive)
    assert refused[0] == node
    assert fact in refused[1]


@pytest.mark.parametrize("flag", [LEAF, EFFECT, PINNED, NOMERGE])
def test_what_never_merges(flag: int) -> None:
    refused = refuse(table(flag, 3), [0, 1, 2, 2, 4, 5], [1, 1, 1, 0, 1, 1])
    assert refused == (3, "a leaf, effect, pinned or NOMERGE node was merged")


def test_nothing_merges_into_a_pinned_node() -> None:
    node, fact = refuse(table(PINNED, 2), [0, 1, 2, 2, 4, 5], [1, 1, 1, 0, 1, 1])
    assert (node, fact) == (3, "it was merged into a pinned node")


def test_meta_must_be_equal() -> None:
    node, fact = refuse(table(meta=[0, 0, 0, 1, 0, 0]), [0, 1, 2, 2, 4, 5], [1, 1, 1, 0, 1, 1])
    assert (node, fact) == (3, "its leader has another meta")


@pytest.mark.parametrize("flag", [EFFECT, KEEP])
def test_what_is_never_pruned(flag: int) -> None:
    rows = [(), (0,), (0,)]
    graph = NodeTable.from_operands([0, 1, 2], rows, [LEAF, flag, 0])
    with pytest.raises(PassResultError, match="node 1: an effect or KEEP"):
        check(graph, [2], np.arange(3), np.array([1, 0, 1]))


@pytest.mark.parametrize(
    ("leader", "node"),
    [([0, 1, 2, 2, 2, 5], 4), ([0, 1, 2, 2, 4, 4], 5), ([0, 1, 2, 0, 4, 5], 3)],
)
def test_exact_merges_only(leader: list[int], node: int) -> None:
    alive = [int(i == own) for i, own in enumerate(leader)]
    check(table(), [5], np.array(leader), np.array(alive))
    assert refuse(table(), leader, alive, exact=True) == (
        node,
        "its leader computes something else",
    )


def test_exact_compares_operands_in_order() -> None:
    rows = [(), (), (0, 1), (1, 0)]
    graph = NodeTable.from_operands([0, 0, 1, 1], rows, [LEAF, LEAF, 0, 0])
    arrays = np.array([0, 1, 2, 2]), np.array([1, 1, 1, 0])
    with pytest.raises(PassResultError, match="node 3: its leader computes"):
        check(graph, [3], *arrays, exact=True)
