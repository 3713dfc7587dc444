"""`NodeTable`: a graph as flat integer arrays, the form every pass works on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import rustworkx as rx
from numpy.typing import ArrayLike, NDArray

from autograd_opt.passes.errors import NodeTableError
from autograd_opt.passes.graph_io import read_dag, small_integers, write_dag
from autograd_opt.passes.keys import KeyInterner
from autograd_opt.passes.leaders import Leaders

__all__ = ["NodeTable"]

Column = Callable[[Any], int] | ArrayLike | None
"""A value per node: computed from its payload, given as an array, or zeros."""


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Nodes 0 … n-1 in topological order: operands come before their users.

    Arrays are converted to the types below without a copy where they fit, and
    are read-only from then on. Their content is checked once, here, because the
    compiled passes trust it.

    Parameters
    ----------
    key : int64[n]
        Equal numbers exactly where operation, attributes, dtype, device, grad
        mode, versions, … are equal: everything but the operands.
    offsets : int64[n + 1]
        Operands of node i are ``operands[offsets[i]:offsets[i + 1]]``.
    operands : int32[m]
        Node numbers in operand order, duplicates kept, as in ``x * x``.
    flags : uint8[n]
        Bits from :mod:`~autograd_opt.passes.flags`.
    meta : int64[n], optional
        Equal numbers exactly where shape, dtype, device and ``requires_grad`` of the
        value are equal. Nodes of different meta never merge: the checker refuses it.
    dag_index : int64[n], optional
        Index of each node in the rustworkx graph it was read from.
    same : int32[n], optional
        For each node its own number, or that of the operand whose value it has, bit
        for bit: a view of its own shape, a clone, a product with 1.

    Raises
    ------
    NodeTableError
        If lengths disagree or an operand does not come before its user.

    Examples
    --------
    ``a = x + y; b = x + y; c = a * b``, with x and y leaves:

    >>> from autograd_opt.passes import LEAF, cse
    >>> table = NodeTable.from_operands(
    ...     [0, 0, 1, 1, 2], [(), (), (0, 1), (0, 1), (2, 3)], [LEAF, LEAF, 0, 0, 0]
    ... )
    >>> cse(table)
    array([0, 1, 2, 2, 4], dtype=int32)
    """

    key: NDArray[np.int64]
    offsets: NDArray[np.int64]
    operands: NDArray[np.int32]
    flags: NDArray[np.uint8]
    meta: NDArray[np.int64] | None = None
    dag_index: NDArray[np.int64] | None = None
    same: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _frozen(name, array, dtype))
        self._validate()

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def from_operands(
        cls,
        key: ArrayLike,
        operands: Iterable[Sequence[int]],
        flags: ArrayLike | None = None,
        meta: ArrayLike | None = None,
        same: ArrayLike | None = None,
    ) -> Self:
        """Build a table from one sequence of operands per node (small graphs)."""
        rows = list(operands)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = np.array([node for row in rows for node in row], np.int32)
        bits = np.zeros(len(rows), np.uint8) if flags is None else np.asarray(flags)
        rest = {"meta": meta, "same": same}
        return cls(
            np.asarray(key), offsets, flat, bits, **{k: None if v is None else np.asarray(v) for k, v in rest.items()}
        )

    @classmethod
    def from_dag(
        cls,
        dag: "rx.PyDiGraph[Any, int]",
        *,
        key: Callable[[Any], bytes] | NDArray[np.int64],
        flags: Column = None,
        meta: Column = None,
        interner: KeyInterner | None = None,
    ) -> Self:
        """Read a rustworkx graph whose edge payloads are operand positions.

        Parameters
        ----------
        dag : rustworkx.PyDiGraph
            An edge from operand to user carries the operand's position, 0, 1, …
        key : callable or int64[n]
            Key bytes of a payload (``operator.attrgetter`` is fastest), or
            numbers in the order of ``dag.node_indices()``.
        flags, meta : callable or array, optional
            Likewise, as integers.
        interner : KeyInterner, optional
            Where key bytes get their numbers; a new one by default.

        Raises
        ------
        NodeTableError
            If the graph has a cycle, or positions are missing or doubled.
        """
        read = read_dag(dag)

        def column(source: Callable[[Any], int] | ArrayLike) -> NDArray[Any]:
            if callable(source):
                return small_integers(list(map(source, read.payloads)))
            return read.in_table_order(np.asarray(source))

        if callable(key):
            interner = KeyInterner() if interner is None else interner
            numbers = interner.number_all(map(key, read.payloads), len(read.index))
        else:
            numbers = column(key)
        return cls(
            numbers,
            read.offsets,
            read.operands,
            np.zeros(len(read.index), np.uint8) if flags is None else column(flags),
            None if meta is None else column(meta),
            read.index,
        )

    def to_dag(
        self,
        source: "rx.PyDiGraph[Any, int] | Sequence[Any]",
        leader: Leaders,
        alive: NDArray[np.uint8],
    ) -> "tuple[rx.PyDiGraph[Any, int], NDArray[np.int32]]":
        """Build a new rustworkx graph of the nodes that are alive.

        Parameters
        ----------
        source : rustworkx.PyDiGraph or sequence
            The graph this table was read from, or one payload per node.
        leader : int32[n]
        alive : uint8[n]

        Returns
        -------
        dag : rustworkx.PyDiGraph
            Payloads are the leaders' own objects; edges carry positions.
        position : int32[n]
            For each node of the table the index in `dag` of the node that
            computes its value, -1 where that was pruned.
        """
        return write_dag(source, self.dag_index, self.offsets, self.operands, leader, alive)

    def operands_of(self, node: int) -> list[int]:
        """Return the operands of one node, in order."""
        begin, end = self.offsets[node : node + 2]
        return self.operands[begin:end].tolist()

    def nodes(self, nodes: ArrayLike) -> NDArray[np.int64]:
        """Return node numbers as an array, after a look at their range.

        Raises
        ------
        NodeTableError
            If one of them is no node of this table.
        """
        array = np.asarray(nodes, np.int64).reshape(-1)
        outside = (array < 0) | (array >= len(self))
        if outside.any():
            raise NodeTableError(
                f"{array[outside.argmax()]} is no node of a table of {len(self)}",
                "give node numbers of the table, not indices of the graph",
            )
        return array

    def arity(self) -> NDArray[np.int64]:
        """Return the number of operands of each node."""
        return np.diff(self.offsets)

    def _validate(self) -> None:
        n, m = len(self.key), len(self.operands)
        for name in ("flags", "meta", "dag_index", "same"):
            array = getattr(self, name)
            if array is not None and len(array) != n:
                raise NodeTableError(
                    f"{name} has {len(array)} entries for {n} nodes",
                    "give one entry per node",
                )
        if len(self.offsets) != n + 1 or self.offsets[0] != 0 or self.offsets[-1] != m:
            raise NodeTableError(
                f"offsets do not run from 0 to {m} in {n + 1} entries",
                "give the running total of operand counts, beginning with 0",
            )
        arity = self.arity()
        if n and arity.min() < 0:
            raise NodeTableError(
                f"node {arity.argmin()} has a negative number of operands",
                "offsets must not decrease",
            )
        user = np.repeat(np.arange(n, dtype=np.int32), arity)
        # as unsigned numbers, so that a negative operand is too large as well
        late = self.operands.view(np.uint32) >= user.view(np.uint32)
        if late.any():
            edge = int(late.argmax())
            raise NodeTableError(
                f"node {user[edge]} has operand {self.operands[edge]}",
                "number the nodes so that operands come before their users",
            )
        if self.same is not None:
            other = (self.same < 0) | (self.same > np.arange(n))
            if other.any():
                node = int(other.argmax())
                raise NodeTableError(f"node {node} has the value of {self.same[node]}", "name it or an operand of it")


_DTYPES: dict[str, type[np.generic]] = {
    "key": np.int64,
    "offsets": np.int64,
    "operands": np.int32,
    "flags": np.uint8,
    "meta": np.int64,
    "dag_index": np.int64,
    "same": np.int32,
}


def _frozen(name: str, array: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    given = np.asarray(array)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iub"):
        raise NodeTableError(
            f"{name} is {given.ndim}-dimensional {given.dtype}",
            f"give a 1-dimensional array of {dtype.__name__}",
        )
    view = np.ascontiguousarray(given, dtype).view()
    if not np.can_cast(given.dtype, dtype) and (given != view).any():
        raise NodeTableError(
            f"{name} holds {given[(given != view).argmax()]}",
            f"give numbers that fit into {dtype.__name__}",
        )
    view.flags.writeable = False
    return view
