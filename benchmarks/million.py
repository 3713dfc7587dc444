"""`million`: synthetic graphs of 10³ … 10⁶ nodes; is every pass linear?

Theano's merge took 677 s on 290,000 nodes, XLA's CSE 6.5 h on 100,000 slices,
MLX "forever" on 40,000 adds. Each shape below is one that broke one of them.
Times are per node, the best of several runs, in nanoseconds of processor time.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from autograd_opt.passes import LEAF, Effort, NodeTable, cse, prune

__all__ = ["SHAPES", "Payload", "Shape", "measure"]

KINDS = 50
LEAVES = 1000
SEED = 20260101


class Payload:
    """What a node of the benchmark's graph carries, in place of a recorded one."""

    __slots__ = ("flags", "key")

    def __init__(self, key: bytes, flags: int) -> None:
        self.key = key
        self.flags = flags


@dataclass(frozen=True)
class Shape:
    """A synthetic graph as flat arrays."""

    name: str
    key: NDArray[np.int64]
    offsets: NDArray[np.int64]
    operands: NDArray[np.int32]
    flags: NDArray[np.uint8]
    outputs: NDArray[np.int64]
    degenerate_hash: bool = False

    def operations(self) -> Iterator[tuple[int, list[int]]]:
        """Kind and operands of each node, in order; leaves have none."""
        for i, kind in enumerate(self.key.tolist()):
            yield kind, self.operands[self.offsets[i] : self.offsets[i + 1]].tolist()

    def table(self) -> NodeTable:
        """Return the graph as the passes take it."""
        return NodeTable(self.key, self.offsets, self.operands, self.flags)

    def dag(self) -> "rx.PyDiGraph[Payload, int]":
        """Return the graph as a recorder would have written it."""
        dag: rx.PyDiGraph[Payload, int] = rx.PyDiGraph(multigraph=True)
        names = [b"operation %d float32 cpu" % k for k in range(KINDS)]
        dag.add_nodes_from([Payload(names[k], f) for k, f in zip(self.key, self.flags, strict=True)])
        user = np.repeat(np.arange(len(self.key)), np.diff(self.offsets))
        place = np.arange(len(user)) - self.offsets[user]
        columns = (self.operands.tolist(), user.tolist(), place.tolist())
        dag.add_edges_from(list(zip(*columns, strict=True)))
        return dag


def wide(n: int) -> Shape:
    """Operations on random pairs of leaves, every one an output."""
    rng = np.random.default_rng(SEED)
    pairs = rng.integers(0, _leaves(n), (n - _leaves(n), 2))
    return _binary("wide", n, pairs, np.arange(_leaves(n), n))


def deep(n: int) -> Shape:
    """One chain, each link taking the link before it and a leaf."""
    rng = np.random.default_rng(SEED)
    node = np.arange(_leaves(n), n)
    pairs = np.stack([node - 1, rng.integers(0, _leaves(n), len(node))], 1)
    return _binary("deep", n, pairs, np.array([n - 1]))


def scattered(n: int, leaves: int | None = None) -> Shape:
    """Operations on random pairs of all nodes before them: no locality at all."""
    rng = np.random.default_rng(SEED)
    node = np.arange(_leaves(n) if leaves is None else leaves, n)
    pairs = (rng.random((len(node), 2)) * node[:, None]).astype(np.int64)
    return _binary("scattered", n, pairs, np.arange(n // 2, n))


def fan(n: int) -> Shape:
    """Nodes with 40,000 users each, or half of `n` if that is less."""
    rng = np.random.default_rng(SEED)
    node = np.arange(_leaves(n), n)
    users = min(40_000, n // 2)
    hub = node - 1 - (node - _leaves(n)) % users
    pairs = np.stack([hub, rng.integers(0, _leaves(n), len(node))], 1)
    return _binary("fan 40,000", n, pairs, node)


def half(n: int) -> Shape:
    """`scattered`, then all its operations again: half of the graph repeats."""
    leaves = _leaves(n)
    once = scattered(leaves + (n - leaves) // 2, leaves)
    shift = len(once.operands) // 2
    again = once.operands + np.where(once.operands >= leaves, shift, 0)
    pairs = np.concatenate([once.operands, again]).reshape(-1, 2)
    total = leaves + len(pairs)
    shape = _binary("half repeated", total, pairs, np.arange(total // 4, total))
    shape.key[leaves + shift :] = shape.key[leaves : leaves + shift]
    return shape


def colliding(n: int) -> Shape:
    """`half` with every hash forced to 0."""
    shape = half(n)
    arrays = (shape.key, shape.offsets, shape.operands, shape.flags, shape.outputs)
    return Shape("all hashes 0", *arrays, degenerate_hash=True)


SHAPES: tuple[Callable[[int], Shape], ...] = (
    wide,
    deep,
    scattered,
    fan,
    half,
    colliding,
)


def measure(shape: Shape, repeats: int = 5) -> dict[str, float]:
    """Return nanoseconds per node of each stage, and what was merged.

    ``arrays`` is CSE and prune alone; ``total`` goes from the rustworkx graph
    and back to one.
    """
    dag, n = shape.dag(), len(shape.key)
    best: dict[str, float] = {}
    for _ in range(repeats):
        gc.collect()
        marks = [time.process_time()]
        table = NodeTable.from_dag(dag, key=attrgetter("key"), flags=attrgetter("flags"))
        marks.append(time.process_time())
        effort = Effort()
        leader = cse(table, degenerate_hash=shape.degenerate_hash, effort=effort)
        marks.append(time.process_time())
        alive = prune(table, shape.outputs, leader)
        marks.append(time.process_time())
        optimized, _ = table.to_dag(dag, leader, alive)
        marks.append(time.process_time())
        spans = np.diff(marks) / n * 1e9
        names = ("from dag", "cse", "prune", "to dag", "arrays", "total")
        values = (*spans, spans[1] + spans[2], spans.sum())
        for name, value in zip(names, values, strict=True):
            best[name] = min(best.get(name, np.inf), float(value))
        left = optimized.num_nodes() / n
        del table, leader, alive, optimized
    return best | {"left": left, "comparisons": effort.comparisons / n}


def _binary(name: str, n: int, pairs: NDArray[Any], outputs: NDArray[np.int64]) -> Shape:
    leaves = n - len(pairs)
    arity = np.full(n, 2)
    arity[:leaves] = 0
    flags = np.zeros(n, np.uint8)
    flags[:leaves] = LEAF
    key = np.random.default_rng(SEED + 1).integers(0, KINDS, n)
    offsets = np.concatenate([[0], np.cumsum(arity)])
    return Shape(name, key, offsets, pairs.reshape(-1).astype(np.int32), flags, outputs)


def _leaves(n: int) -> int:
    return min(LEAVES, n // 10)
