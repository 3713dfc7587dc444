"""Optimizers that are wrong in the ways optimizers are: real graphs, recorded and run through the real passes.

Each mutant breaks what the passes are told of a graph (keys, flags, operands, shapes) or what is done with
their result, lets them run, and returns the verification of what came out.  `value` says that
some finite real point shows the mistake in a value or a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.optimizer import merging
from autograd_opt.passes import EFFECT, NOMERGE, PINNED, Pipeline
from autograd_opt.verification.result.budget import How
from autograd_opt.verify import Budget, Verification, verify

BUDGET = Budget(seconds=5, sympy_seconds=5)


@dataclass(frozen=True)
class PassMutant:
    number: int
    text: str
    run: Callable[[], Verification]
    value: bool


PASS_MUTANTS: list[PassMutant] = []


def mutant(number: int, text: str, value: bool = True) -> Any:
    def register(run: Callable[[], Verification]) -> Callable[[], Verification]:
        PASS_MUTANTS.append(PassMutant(number, text, run, value))
        return run

    return register


def leaf(*shape: int) -> Any:
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


class Broken:
    """A recorded graph whose table is falsified before the passes see it."""

    def __init__(self, graph: Any, loss: Any):
        self.nodes, self.roots = graph.tape.snapshot(), [loss.grad_fn]
        self.where = {id(n): i for i, n in enumerate(self.nodes)}
        self.table = merging.table_of(graph.tape)

    def position(self, t: Any) -> int:
        return self.where[id(t._node)]

    def forget(self, flag: int, *tensors: Any) -> Broken:
        """The passes no longer see this flag."""
        flags = self.table.flags.copy()
        for t in tensors:
            flags[self.position(t)] &= 255 ^ flag
        self.table = replace(self.table, flags=flags)
        return self

    def confuse(self, a: Any, b: Any) -> Broken:
        """What tells the two operations apart is lost from their keys, and so are their shapes."""
        i, j = self.position(a), self.position(b)
        key, meta = self.table.key.copy(), None if self.table.meta is None else self.table.meta.copy()
        key[j] = key[i]
        if meta is not None:
            meta[j] = meta[i]
        self.table = replace(self.table, key=key, meta=meta)
        return self.forget(NOMERGE, a, b)

    def same_operands(self, a: Any, b: Any) -> Broken:
        """The second operation is said to read what the first one reads."""
        i, j = self.position(a), self.position(b)
        operands = self.table.operands.copy()
        offsets = self.table.offsets
        operands[offsets[j]:offsets[j + 1]] = operands[offsets[i]:offsets[i + 1]]
        self.table = replace(self.table, operands=operands)
        return self.confuse(a, b)

    def verified(self) -> Verification:
        """What the passes make of it, verified."""
        out = Pipeline(("cse", "prune")).run(self.table, np.array([self.where[id(r)] for r in self.roots]))
        leader, alive = out.leader.tolist(), out.alive.tolist()
        return verify(self.nodes, self.roots, None, leader, alive=alive, budget=BUDGET)


@mutant(45, "an unused dropout is pruned, and later draws are others", value=False)
def unused_draw() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(4)
        unused = F.dropout(x, 0.5)
        loss = (F.dropout(x, 0.5) * x).sum()
        return Broken(graph, loss).forget(EFFECT, unused).verified()


@mutant(46, "a value read before and after a write through a view")
def write_through_a_view() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(4)
        y = x * 1.5
        before = y * 2
        y[1:3].mul_(3.0)
        after = y * 2
        loss = (before.sin() * after).sum()
        return Broken(graph, loss).same_operands(before, after).verified()


@mutant(47, "two gradients in one storage: what a hook does to one is seen in the other", value=False)
def shared_storage() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = leaf(3), leaf(3)
        u, v = a * 1.0, b * 1.0
        u.register_hook(lambda g: g.mul_(2))
        loss = (u + v).sum()
        broken = Broken(graph, loss)
        from autograd_opt.verification.strategies.task import Task

        task = Task(broken.nodes, broken.roots, None, None, None)
        task.optimized.gradients[1] = task.optimized.gradients[0]
        return task.run(How(("structural", "linear", "field", "points", "sympy"), BUDGET, "real", (), 0))


@mutant(48, "what a rule saved was freed before it ran", value=False)
def freed_early() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        loss = torch.addcmul(x, x.sin(), x.sin(), value=2.0).sum()
        broken = Broken(graph, loss)
        loss.backward()
        graph.clear()
        broken.nodes = graph.tape.snapshot()
        return verify(broken.nodes, broken.roots, budget=BUDGET)


@mutant(49, "strides lost: a transposed value is taken for a reshaped one")
def strides() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(2, 3)
        u, v = x.t(), x.reshape(3, 2)
        loss = ((u * 1.0).sin() * (v * 2.0)).sum()
        return Broken(graph, loss).confuse(u, v).verified()


@mutant(50, "a product in half precision taken for the same one in full", value=False)
def autocast() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = ao.tensor(torch.rand(2, 2)), ao.tensor(torch.rand(2, 2))
        u = a @ b
        with torch.autocast("cpu", dtype=torch.bfloat16):
            v = a @ b
        loss = (u * 2).sum() + (v.float() * a).sum()
        return Broken(graph, loss).forget(EFFECT, v).same_operands(u, v).verified()


@mutant(51, "a node with a hook is merged away", value=False)
def merged_hook() -> Verification:
    with ao.AutogradGraph() as graph:
        x = leaf(3)
        u, v = x.sin(), x.sin()
        v.register_hook(lambda g: g * 2)
        loss = (u * 2 + v * x).sum()
        return Broken(graph, loss).forget(PINNED, u, v).confuse(u, v).verified()


@mutant(151, "a node with retain_grad is merged away", value=False)
def merged_retained() -> Verification:
    with ao.AutogradGraph() as graph:
        x = leaf(3)
        u, v = x.sin(), x.sin()
        v.retain_grad()
        loss = (u * 2 + v * x).sum()
        return Broken(graph, loss).forget(PINNED, u, v).confuse(u, v).verified()


@mutant(52, "second derivatives through a node merged with another operation's")
def double_backward() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x, w = leaf(3), leaf(3)
        y = (x * w).tanh() * x
        (g,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
        u, v = g * w, g * x
        loss = (u.sin() * v).sum()
        return Broken(graph, loss).same_operands(u, v).verified()


@mutant(53, "int8 products folded as if they did not overflow", value=False)
def overflow() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        k = torch.tensor([1, 2, 3], dtype=torch.int8)
        u, v = k * 100 * 2, k * 2 * 100
        f, h = u.double(), v.double() + 256.0
        loss = (x * f).sum() + (x.sin() * h).sum()
        return Broken(graph, loss).same_operands(f, h).verified()


@mutant(54, "a draw under recomputation taken for the first one")
def recomputed_draw() -> Verification:
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(6)
        u, v = F.dropout(x * 2, 0.5), F.dropout(x * 2, 0.5)
        loss = (u.sin() + v * x).sum()
        return Broken(graph, loss).forget(EFFECT, u, v).confuse(u, v).verified()


@mutant(55, "what held for one row is used for two: a sum over rows taken for its operand")
def shape_guard() -> Verification:
    def record(rows: int) -> Any:
        x = leaf(rows, 3)
        y = x * 2
        u = y.sum(0, keepdim=True)
        loss = (u.sin() * y.cos()).sum()
        return loss, y, u

    with ao.AutogradGraph() as graph:
        loss, y, u = record(1)
        small = Broken(graph, loss)
        leader = list(range(len(small.nodes)))
        leader[small.position(u)] = small.position(y)
    with ao.AutogradGraph() as graph:
        loss, y, u = record(2)
        nodes = graph.tape.snapshot()
        return verify(nodes, [loss.grad_fn], None, leader, budget=BUDGET)
