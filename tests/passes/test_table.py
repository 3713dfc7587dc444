"""Tables: what they accept, and the way from a rustworkx graph and back."""

from typing import Any

import numpy as np
import pytest
import rustworkx as rx

from autograd_opt.passes import KeyInterner, NodeTable, NodeTableError, cse, prune


def square() -> "rx.PyDiGraph[Any, int]":
    """x; a = x * x; b = x * x; c = a - b."""
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    dag.add_nodes_from([b"x", b"mul", b"mul", b"sub"])
    edges = [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (1, 3, 0), (2, 3, 1)]
    dag.add_edges_from(edges)
    return dag


def itself(payload: bytes) -> bytes:
    return payload


def listed(dag: "rx.PyDiGraph[Any, int]") -> list[tuple[Any, list[Any]]]:
    """Each payload with its operands' payloads, in operand order."""
    rows = []
    for node in dag.node_indices():
        edges = sorted(dag.in_edges(node), key=lambda edge: edge[2])
        assert [place for *_, place in edges] == list(range(len(edges)))
        rows.append((dag[node], [dag[source] for source, *_ in edges]))
    return rows


def test_there_and_back() -> None:
    dag = square()
    table = NodeTable.from_dag(dag, key=itself, flags=lambda p: int(p == b"x"))
    assert [table.operands_of(i) for i in range(4)] == [[], [0, 0], [0, 0], [1, 2]]
    assert table.flags.tolist() == [1, 0, 0, 0]
    leader = cse(table)
    alive = prune(table, [3], leader)
    optimized, position = table.to_dag(dag, leader, alive)
    assert listed(optimized) == [
        (b"x", []),
        (b"mul", [b"x", b"x"]),
        (b"sub", [b"mul", b"mul"]),
    ]
    assert optimized.num_edges() == 4
    assert position.tolist() == [0, 1, 1, 3]
    assert dag.num_nodes() == 4
    assert optimized[1] is dag[1]


def test_pruned_nodes_have_no_position() -> None:
    dag = square()
    table = NodeTable.from_dag(dag, key=itself)
    leader = np.arange(4, dtype=np.int32)
    alive = prune(table, [2], leader)
    optimized, position = table.to_dag(dag, leader, alive)
    assert position.tolist() == [0, -1, 2, -1]
    assert listed(optimized) == [(b"x", []), (b"mul", [b"x", b"x"])]


def test_nothing_changed_is_a_copy() -> None:
    dag = square()
    table = NodeTable.from_dag(dag, key=itself)
    same = np.arange(4, dtype=np.int32), np.ones(4, np.uint8)
    optimized, position = table.to_dag(dag, *same)
    assert optimized is not dag
    assert listed(optimized) == listed(dag)
    assert position.tolist() == [0, 1, 2, 3]


def hub(users: int) -> "rx.PyDiGraph[Any, int]":
    """The square of x by as many nodes, each twice, and their sum."""
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    x = dag.add_node(b"x")
    squares = dag.add_nodes_from([b"mul %d" % (i // 2) for i in range(users)])
    total = dag.add_node(b"total")
    dag.add_edges_from([(x, square, place) for square in squares for place in (0, 1)])
    dag.add_edges_from([(square, total, place) for place, square in enumerate(squares)])
    return dag


@pytest.mark.parametrize("users", [2, 20, 60, 200])
def test_edited_or_built_the_graph_is_the_same(users: int) -> None:
    dag = hub(users)
    table = NodeTable.from_dag(dag, key=itself)
    leader = cse(table)
    alive = prune(table, [users + 1], leader)
    optimized, position = table.to_dag(dag, leader, alive)
    built, _ = table.to_dag(dag.nodes(), leader, alive)
    assert listed(optimized) == listed(built)
    assert optimized.num_edges() == users + users       # one square of two, two operands each; all of the sum
    assert [optimized[p] for p in position] == [dag[int(i)] for i in leader]
    again = NodeTable.from_dag(optimized, key=itself)
    assert np.array_equal(again.operands, NodeTable.from_dag(built, key=itself).operands)


@pytest.mark.parametrize(("users", "edited"), [(64, True), (65, False)])
def test_no_list_of_users_is_walked_that_is_long(users: int, edited: bool) -> None:
    """x has two edges to each user; the copy keeps its indices, what is built anew has none to keep."""
    dag = hub(users)
    dag.remove_node(users + 1)
    table = NodeTable.from_dag(dag, key=itself)
    kept = np.ones(len(table), np.uint8)
    kept[1] = 0
    optimized, position = table.to_dag(dag, np.arange(len(table), dtype=np.int32), kept)
    assert position[2] == (2 if edited else 1)
    assert listed(optimized) == [row for row in listed(dag) if row[0] is not dag[1]]


@pytest.mark.parametrize("merge", [False, True])
def test_holes_and_reused_indices(merge: bool) -> None:
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    dag.add_nodes_from([b"gone", b"x", b"gone", b"y", b"gone"])
    dag.remove_nodes_from([0, 2, 4])
    # the new nodes take old places, so users stand before their operands
    last = [dag.add_node(b"sin"), dag.add_node(b"sin"), dag.add_node(b"sub")]
    dag.remove_node(3)
    dag.add_edges_from([(last[1], last[2], 1), (last[0], last[2], 0)])
    dag.add_edges_from([(1, last[0], 0), (1, last[1], 0)])
    assert sorted(dag.node_indices()) == [0, 1, 2, 4]
    table = NodeTable.from_dag(dag, key=itself, meta=list(dag.node_indices()))
    assert table.dag_index is not None
    assert [dag[i] for i in table.dag_index] == [b"x", b"sin", b"sin", b"sub"]
    assert table.meta is not None
    assert table.meta.tolist() == table.dag_index.tolist()
    leader = cse(table) if merge else np.arange(4, dtype=np.int32)
    first, second = table.operands_of(3)
    assert {table.dag_index[first], table.dag_index[second]} == {last[0], last[1]}
    assert table.dag_index[first] == last[0]
    alive = prune(table, [3], leader)
    optimized, position = table.to_dag(dag, leader, alive)
    assert [optimized[p] for p in position] == [b"x", b"sin", b"sin", b"sub"]
    assert (b"sub", [b"sin", b"sin"]) in listed(optimized)
    assert optimized.num_nodes() == 4 - merge


def test_ready_numbers_follow_the_order_of_the_graph() -> None:
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    dag.add_nodes_from(["user", "x"])
    dag.add_edge(1, 0, 0)
    table = NodeTable.from_dag(dag, key=np.array([7, 9]), flags=[0, 1])
    assert table.key.tolist() == [9, 7]
    assert table.flags.tolist() == [1, 0]


def test_many_operands() -> None:
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    dag.add_nodes_from([b"x", b"y", b"cat"])
    dag.add_edges_from([(i % 2, 2, i) for i in reversed(range(700))])
    table = NodeTable.from_dag(dag, key=itself)
    assert table.operands_of(2) == [0, 1] * 350


def test_empty_graph() -> None:
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph()
    table = NodeTable.from_dag(dag, key=itself)
    leader = cse(table)
    optimized, position = table.to_dag(dag, leader, prune(table, [], leader))
    assert len(table) == len(position) == optimized.num_nodes() == 0
    optimized, _ = table.to_dag([], leader, prune(table, [], leader))
    assert optimized.num_nodes() == 0


def test_a_cycle_is_refused() -> None:
    dag = square()
    dag.add_edge(3, 1, 2)
    with pytest.raises(NodeTableError, match=r"cycle through node [0-3]"):
        NodeTable.from_dag(dag, key=itself)


@pytest.mark.parametrize("position", [1, 3, -1, 300])
def test_doubled_or_missing_positions_are_refused(position: int) -> None:
    dag = square()
    dag.add_edge(2, 3, position)
    with pytest.raises(NodeTableError, match="operands of node 3 are not 0, 1"):
        NodeTable.from_dag(dag, key=itself)


def test_positions_are_numbers_of_64_bits() -> None:
    dag = square()
    dag.add_edge(2, 3, 2**70)
    with pytest.raises(NodeTableError, match="payload 'too large"):
        NodeTable.from_dag(dag, key=itself)


@pytest.mark.parametrize("payload", [None, "0", 1.5])
def test_edge_payloads_are_positions(payload: Any) -> None:
    dag = square()
    dag.add_edge(2, 3, payload)
    with pytest.raises(NodeTableError, match=f"payload {payload!r}"):
        NodeTable.from_dag(dag, key=itself)


def test_a_table_from_arrays_needs_payloads() -> None:
    table = NodeTable.from_operands([0], [()])
    ones = np.ones(1, np.uint8)
    with pytest.raises(ValueError, match="pass its payloads"):
        table.to_dag(square(), np.zeros(1, np.int32), ones)
    dag, _ = table.to_dag(["x"], np.zeros(1, np.int32), ones)
    assert dag.nodes() == ["x"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 0], [0, 0, 1], [1]), "node 1 has operand 1"),
        (([0, 0], [0, 0, 1], [-1]), "node 1 has operand -1"),
        (([0, 0], [0, 0], []), "offsets do not run"),
        (([0, 0], [0, 0, 2], [0]), "offsets do not run"),
        (([0, 0], [1, 1, 1], [0]), "offsets do not run"),
        (([0, 0, 0], [0, 1, 0, 1], [0]), "node 1 has a negative number"),
        (([0], [0, 0], [], [0, 0]), "flags has 2 entries"),
        (([0], [0, 0], [], [0], []), "meta has 0 entries"),
        (([0, 0], [0, 0, 1], [2**32]), "operands holds 4294967296"),
        (([0], [0, 0], [], [256]), "flags holds 256: give numbers that fit into uint8"),
        (([0.5], [0, 0], []), "key is 1-dimensional float64"),
        (([[0]], [0, 0], []), "key is 2-dimensional"),
    ],
)
def test_wrong_arrays_are_refused(arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(NodeTableError, match=message):
        NodeTable(*arrays[:3], *(arrays[3:] or ([0] * len(arrays[0]),)))


def test_equal_bytes_have_equal_numbers() -> None:
    interner = KeyInterner()
    numbers = interner.number_all([b"a", b"b", bytes([97]), b"", b"b"])
    assert numbers.tolist() == [0, 1, 0, 2, 1]
    assert interner.number(b"b") == 1
    assert interner.key(2) == b""
    with pytest.raises(KeyError):
        interner.key(3)


@pytest.mark.parametrize("key", [1, 1.0, True, "a", None, (b"a",)])
def test_keys_are_bytes(key: Any) -> None:
    interner = KeyInterner()
    interner.number(b"a")
    with pytest.raises(TypeError, match="a key is bytes"):
        interner.number(key)
    assert len(interner) == 1
