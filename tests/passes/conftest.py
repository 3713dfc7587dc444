"""Passes in both forms, compiled and twin, and graphs written as small programs.

A program is text, one node a line, operands by name::

    x = leaf
    a = add x x
    return a

`add` and `mul` are commutative, `leaf` and `draw` carry LEAF and EFFECT, and
words after a ``#`` are more flags: ``a = add x x # pinned keep``.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from autograd_opt.passes import KeyInterner, NodeTable, cse, flags, prune
from autograd_opt.passes.cse import cse as cse_py
from autograd_opt.passes.prune import prune as prune_py

IMPLIED_FLAGS = {
    "leaf": flags.LEAF,
    "draw": flags.EFFECT,
    "add": flags.COMMUTATIVE,
    "mul": flags.COMMUTATIVE,
}


class Program:
    """A graph as text, as a table, and as text again after passes."""

    def __init__(self, text: str) -> None:
        lines = [line.split() for line in text.strip().splitlines()]
        *nodes, (_, *returned) = lines
        self.names: list[str] = []
        self.operations: list[str] = []
        rows, bits = [], []
        for name, _, operation, *rest in nodes:
            mark = rest.index("#") if "#" in rest else len(rest)
            rows.append([self.names.index(operand) for operand in rest[:mark]])
            extra = [getattr(flags, word.upper()) for word in rest[mark + 1 :]]
            bits.append(sum(extra, IMPLIED_FLAGS.get(operation, 0)))
            self.names.append(name)
            self.operations.append(operation)
        keys = KeyInterner().number_all(o.encode() for o in self.operations)
        self.table = NodeTable.from_operands(keys, rows, bits)
        self.outputs = [self.names.index(name) for name in returned]

    def text(self, leader: np.ndarray, alive: np.ndarray) -> str:
        """Print what is left, operands and outputs by their leaders' names."""
        lines = []
        for node in np.flatnonzero(alive):
            words = [self.names[leader[o]] for o in self.table.operands_of(node)]
            lines.append([self.names[node], "=", self.operations[node], *words])
        lines.append(["return", *(self.names[leader[o]] for o in self.outputs)])
        return "\n".join(" ".join(line) for line in lines)


def dedent(text: str) -> str:
    lines = (line.split("#")[0].strip() for line in text.strip().splitlines())
    return "\n".join(lines)


MERGES = {
    "compiled": cse,
    "twin": cse_py,
    "compiled, hashes 0": partial(cse, degenerate_hash=True),
    "twin, hashes 0": partial(cse_py, degenerate_hash=True),
}
PRUNES = {"compiled": prune, "twin": prune_py}
SWEEPS = {"compiled": cse, "twin": cse_py}


@pytest.fixture(params=MERGES.values(), ids=MERGES.keys())
def merge(request: pytest.FixtureRequest) -> Callable[..., np.ndarray]:
    """Every way to find common subexpressions; all give the same leaders."""
    return request.param


@pytest.fixture(params=SWEEPS.values(), ids=SWEEPS.keys())
def sweep(request: pytest.FixtureRequest) -> Callable[..., np.ndarray]:
    """`cse` with all its arguments, compiled and twin."""
    return request.param


@pytest.fixture(params=PRUNES.values(), ids=PRUNES.keys())
def prune_with(request: pytest.FixtureRequest) -> Callable[..., np.ndarray]:
    return request.param


@pytest.fixture
def program() -> Callable[[str], Program]:
    return Program


@pytest.fixture
def becomes(merge: Callable[..., np.ndarray], prune_with: Callable[..., np.ndarray]) -> Callable[[str, str], None]:
    """Assert that CSE and prune turn one program into another, and once only."""

    def assert_becomes(before: str, after: str) -> None:
        program = Program(before)
        leader = merge(program.table)
        alive = prune_with(program.table, program.outputs, leader)
        assert program.text(leader, alive) == dedent(after)
        assert np.array_equal(merge(program.table, leader=leader), leader)
        second = Program(dedent(after))
        assert np.array_equal(merge(second.table), np.arange(len(second.table)))
        assert prune_with(second.table, second.outputs).all()

    return assert_becomes


@pytest.fixture
def stays(merge: Callable[..., np.ndarray], program: Callable[[str], Program]) -> Callable[[str], None]:
    """Assert that CSE merges nothing in a program."""

    def assert_stays(text: str) -> None:
        table = program(text).table
        assert np.array_equal(merge(table), np.arange(len(table)))

    return assert_stays


@pytest.fixture
def shapes() -> SimpleNamespace:
    """Graphs of n nodes that are hard on one structure or another."""

    def table(key, rows, leaves):  # type: ignore[no-untyped-def]
        arity = np.where(np.arange(len(key)) < leaves, 0, 2)
        bits = np.where(arity == 0, flags.LEAF, 0)
        offsets = np.concatenate([[0], np.cumsum(arity)])
        return NodeTable(key, offsets, np.ravel(rows[leaves:]), bits)

    def pairs(first, second):  # type: ignore[no-untyped-def]
        return np.stack([first, second], 1).astype(np.int32)

    def wide(n):  # type: ignore[no-untyped-def]
        rng = np.random.default_rng(0)
        return table(rng.integers(0, 50, n), rng.integers(0, 100, (n, 2)), 100)

    def deep(n):  # type: ignore[no-untyped-def]
        node = np.arange(n)
        return table(node % 50, pairs(node - 1, node % 100), 100)

    def fan(n):  # type: ignore[no-untyped-def]
        node = np.arange(n)
        return table(node * 0, pairs(node * 0, node - 1), 100)

    def half(n):  # type: ignore[no-untyped-def]
        node = np.arange(n)
        again = 100 + (node - 100) % ((n - 100) // 2)
        shift = np.where(node == again, 0, (n - 100) // 2)
        below = (again * 0.7).astype(int)
        below = np.where(below < 100, below, below + shift)
        return table(again, pairs(below, again % 7), 100)

    return SimpleNamespace(wide=wide, deep=deep, fan=fan, half=half)
