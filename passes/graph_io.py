"""Between a rustworkx graph and flat arrays, in bulk.

An edge from operand to user carries the operand's position as its payload, for
a multigraph has two parallel edges for ``x * x``. rustworkx reuses the indices
of removed nodes, so indices may have holes and need not be topological.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from autograd_opt.passes.errors import NodeTableError
from autograd_opt.passes.leaders import Leaders

__all__ = ["DagArrays", "read_dag", "small_integers", "write_dag"]


MANY = 128
"""Users or operands that removing one edge may have to walk."""


@dataclass(frozen=True)
class DagArrays:
    """A graph read from rustworkx, nodes in topological order."""

    index: NDArray[np.int64]
    """Index in the rustworkx graph of each node."""
    payloads: Sequence[Any]
    offsets: NDArray[np.int64]
    operands: NDArray[np.int32]
    order: NDArray[np.int64] | None
    """Rank among ``dag.node_indices()`` of each node, None where it is its own."""

    def in_table_order(self, column: NDArray[Any]) -> NDArray[Any]:
        """Bring a column in the order of ``dag.node_indices()`` into this order."""
        return column if self.order is None else column[self.order]


def read_dag(dag: "rx.PyDiGraph[Any, int]") -> DagArrays:
    """Read nodes and edges in bulk; sort only what is not in order already.

    Raises
    ------
    NodeTableError
        If the graph has a cycle, or the positions of a node's operands are not
        0, 1, 2, ….
    """
    index = np.asarray(dag.node_indices()).astype(np.int64)
    payloads: Sequence[Any] = dag.nodes()
    edges = np.asarray(dag.edge_list()).reshape(-1, 2)
    operands, users = edges[:, 0].astype(np.int32), edges[:, 1].astype(np.int32)
    n = len(index)

    rank = None
    if n and index[-1] != n - 1:
        rank = _inverse(index)
        operands, users = rank[operands], rank[users]
    order = None
    if not (operands < users).all():
        order = _topological_order(dag, rank)
        rank = _inverse(order)
        operands, users = rank[operands], rank[users]
        payloads = [payloads[i] for i in order.tolist()]
        index = index[order]

    positions = _positions(dag)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(users, minlength=n), out=offsets[1:])
    if _misplaced(users, positions, offsets).any():
        ordered = np.lexsort((positions, users))
        operands, users = operands[ordered], users[ordered]
        misplaced = _misplaced(users, positions[ordered], offsets)
        if misplaced.any():
            user = users[misplaced.argmax()]
            raise NodeTableError(
                f"positions of the operands of node {user} are not 0, 1, 2, …",
                "give each edge into a node its own operand position",
            )
    return DagArrays(index, payloads, offsets, operands, order)


def write_dag(
    source: "rx.PyDiGraph[Any, int] | Sequence[Any]",
    dag_index: NDArray[np.int64] | None,
    offsets: NDArray[np.int64],
    operands: NDArray[np.int32],
    leader: Leaders,
    alive: NDArray[np.uint8],
) -> "tuple[rx.PyDiGraph[Any, int], NDArray[np.int32]]":
    """Build the graph of what is alive; see :meth:`NodeTable.to_dag`.

    A graph in which nothing changed is copied, which is ten times cheaper than
    building. Where something changed, the copy is edited, unless that removes a
    user of a node with many: removing it walks the list of all of them.
    """
    keep = alive.astype(bool)
    if isinstance(source, rx.PyDiGraph):
        if dag_index is None:
            raise ValueError("the table was not read from a graph: pass its payloads")
        if keep.all():
            return source.copy(), dag_index.astype(np.int32)
        edited = _edited(source, dag_index, offsets, operands, leader, keep)
        if edited is not None:
            position = np.where(keep, dag_index, -1).astype(np.int32)
            return edited, position[leader]
        payloads = _payloads(source, dag_index)
    else:
        payloads = source

    total = int(keep.sum())
    position = np.full(len(leader), -1, np.int32)
    position[keep] = np.arange(total, dtype=np.int32)
    arity = np.diff(offsets)
    sources = position[leader[operands[np.repeat(keep, arity)]]]
    arity = arity[keep]
    users = np.repeat(np.arange(total, dtype=np.int32), arity)
    first = (np.cumsum(arity) - arity).astype(np.int32)
    places = np.arange(len(users), dtype=np.int32) - np.repeat(first, arity)

    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph(multigraph=True, node_count_hint=total, edge_count_hint=len(users))
    dag.add_nodes_from(list(compress(payloads, keep.data)))
    # iterated lazily: two million tuples at once would wake the collector; unlike
    # add_edges_from, this one makes no list of two million edge indices
    edges: Any = zip(sources.data, users.data, places.data, strict=True)
    dag.extend_from_weighted_edge_list(edges)
    return dag, position[leader]


def _edited(
    source: "rx.PyDiGraph[Any, int]",
    index: NDArray[np.int64],
    offsets: NDArray[np.int64],
    operands: NDArray[np.int32],
    leader: Leaders,
    keep: NDArray[np.bool_],
) -> "rx.PyDiGraph[Any, int] | None":
    """A copy without the nodes that are not kept; None if building is cheaper.

    An edge is removed by walking the operands of its user and the users of its
    operand, so neither may be many.
    """
    arity = np.diff(offsets)
    stays = np.repeat(keep, arity)       # for each operand: its user stays
    users = np.bincount(operands, minlength=len(keep))
    longest = max(arity.max(initial=0), users[operands[~stays]].max(initial=0))
    moved = np.flatnonzero(stays & ~keep[operands])
    moves = len(moved)
    if longest > MANY or 4 * moves > len(operands):
        return None
    dag = source.copy()
    # users before their operands: what goes has no users by then, but those that move; and
    # one number at a time, for half a million of them fill a cache
    gone: Any = index[~keep][::-1]
    dag.remove_nodes_from(memoryview(gone))
    if moves:
        user = np.searchsorted(offsets, moved, side="right") - 1
        columns = (index[leader[operands[moved]]], index[user], moved - offsets[user])
        dag.add_edges_from(list(zip(*(column.tolist() for column in columns), strict=True)))
    return dag


def _payloads(dag: "rx.PyDiGraph[Any, int]", index: NDArray[np.int64]) -> Sequence[Any]:
    if len(index) == 0 or (np.diff(index) > 0).all():
        return dag.nodes()
    return [dag[i] for i in index.tolist()]


def _inverse(values: NDArray[np.int64]) -> NDArray[np.int32]:
    rank = np.full(int(values.max(initial=-1)) + 1, -1, np.int32)
    rank[values] = np.arange(len(values), dtype=np.int32)
    return rank


def _topological_order(dag: "rx.PyDiGraph[Any, int]", rank: NDArray[np.int32] | None) -> NDArray[np.int64]:
    try:
        order = np.asarray(rx.topological_sort(dag)).astype(np.int64)
    except rx.DAGHasCycle:
        cycle = list(rx.digraph_find_cycle(dag))
        raise NodeTableError(
            f"the graph has a cycle through node {cycle[0][0]}",
            "remove one of its edges",
        ) from None
    return order if rank is None else rank[order].astype(np.int64)


def _positions(dag: "rx.PyDiGraph[Any, int]") -> NDArray[Any]:
    payloads = dag.edges()
    try:
        return small_integers(payloads)
    except (TypeError, ValueError, OverflowError):
        odd = next((p for p in payloads if not isinstance(p, int)), "too large for 64 bits")
        raise NodeTableError(f"an edge has payload {odd!r}", "give edges their operand position") from None


def small_integers(values: list[int]) -> NDArray[Any]:
    """Convert a list; through bytes, three times faster, where all are < 256."""
    try:
        return np.frombuffer(bytes(values), np.uint8)
    except ValueError:
        return np.fromiter(values, np.int64, len(values))


def _misplaced(users: NDArray[np.int32], positions: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Edges that are not where their user and position say."""
    return np.arange(len(users)) != offsets[users] + positions
