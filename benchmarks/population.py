"""Workload `population`: symbolic regression, a new set of 64 formulas at every step.

Crossover copies subtrees from formula to formula, so much of a generation is written
again and again, and no structure is ever seen twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .workload import Leaf, Workload, torch_leaf

TREES, CONSTANTS = 64, 8
LARGEST, ROUND = 40, 4
"""Most nodes of a tree; how many compete to be a parent."""
BINARY = ("add", "sub", "mul", "div")
UNARY = ("sin", "cos", "tanh", "exp")


class Tree(NamedTuple):
    """A formula: an operator and its operands; leaves are `x` and `c0` … `c7`."""

    op: str
    operands: tuple[Tree, ...] = ()

    def __len__(self) -> int:
        return sum(1 for _ in self.subtrees())

    def subtrees(self) -> Iterator[Tree]:
        """The tree and everything below it."""
        yield self
        for operand in self.operands:
            yield from operand.subtrees()


def random_tree(draw: random.Random, depth: int) -> Tree:
    if depth == 0 or draw.random() < 0.1:
        return Tree("x") if draw.random() < 0.5 else Tree(f"c{draw.randrange(CONSTANTS)}")
    if draw.random() < 0.3:
        return Tree(draw.choice(UNARY), (random_tree(draw, depth - 1),))
    return Tree(draw.choice(BINARY), (random_tree(draw, depth - 1), random_tree(draw, depth - 1)))


def replaced(tree: Tree, position: int, new: Tree) -> Tree:
    """`tree` with the subtree at `position`, counted as `subtrees` does, exchanged."""
    if position == 0:
        return new
    position -= 1
    operands = []
    for operand in tree.operands:
        inside = 0 <= position < len(operand)
        operands.append(replaced(operand, position, new) if inside else operand)
        position -= len(operand)
    return Tree(tree.op, tuple(operands))


def crossover(draw: random.Random, mother: Tree, father: Tree) -> Tree:
    """`mother` with one of its subtrees exchanged for one of `father`'s."""
    for _ in range(10):
        given = draw.choice(list(father.subtrees()))
        child = replaced(mother, draw.randrange(len(mother)), given)
        if 3 <= len(child) <= LARGEST:
            return child
    return mother


def generation(draw: random.Random, trees: list[Tree], scores: list[float]) -> list[Tree]:
    """64 children of parents that won a tournament of `ROUND`: mostly by crossover, some copies, some mutants."""

    def winner() -> Tree:
        return trees[min(draw.sample(range(len(trees)), ROUND), key=scores.__getitem__)]

    children = []
    for _ in range(TREES):
        kind = draw.random()
        child = winner()
        if kind < 0.85:
            child = crossover(draw, child, winner())
        elif kind < 0.90:
            child = crossover(draw, child, random_tree(draw, 3))
        children.append(child)
    return children


KERNELS = {"div": 3, "exp": 3}
"""Kernels that `evaluate` runs for an operator; one for the others."""


def unique_share(trees: list[Tree]) -> float:
    """u: kernels of a generation's losses that differ, over kernels written."""

    def kernels(nodes: Iterable[Tree]) -> int:
        return sum(KERNELS.get(node.op, 1) for node in nodes if node.operands)

    # error, square and mean of each formula, and its place in the sum, which is never a repeat
    written = kernels(node for tree in trees for node in tree.subtrees()) + 4 * len(trees)
    unique = kernels({node for tree in trees for node in tree.subtrees()}) + 3 * len(set(trees)) + len(trees)
    return unique / written


def evaluate(tree: Tree, x: Any, constants: tuple[Any, ...], lib: Any = torch) -> Any:
    """The formula on all points; division by 1 + b² instead of b, so that none blows up.

    `lib` is the array library that computes it.
    """
    if not tree.operands:
        return x if tree.op == "x" else constants[int(tree.op[1:])]
    a, *rest = (evaluate(operand, x, constants, lib) for operand in tree.operands)
    match tree.op:
        case "add":
            return a + rest[0]
        case "sub":
            return a - rest[0]
        case "mul":
            return a * rest[0]
        case "div":
            return a / (1.0 + rest[0] * rest[0])
        case "exp":
            return lib.exp(-(a * a))
        case "tanh":
            return lib.tanh(a)
        case "sin":
            return lib.sin(a)
        case _:
            return lib.cos(a)


def population(leaf: Leaf = torch_leaf, points: int = 1000, age: int = 4, depth: int = 6, seed: int = 1) -> Workload:
    """Losses of 64 formulas and their gradient in 8 shared constants; `advance` breeds another 64.

    `age` is the number of generations since the random ones.  Each `advance` breeds from
    the same ancestors: a generation of the same age, never the same one.
    """
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, generator=generator)
    target = torch.sin(x) * x + 0.5
    values = tuple(torch.tensor(0.5 + 0.1 * i) for i in range(CONSTANTS))

    def score(tree: Tree) -> float:
        loss = float(((evaluate(tree, x[:100], values) - target[:100]) ** 2).mean())
        return loss if loss == loss else float("inf")

    ancestors = [random_tree(draw, depth) for _ in range(TREES)]
    for _ in range(age - 1):
        ancestors = generation(draw, ancestors, [score(tree) for tree in ancestors])
    scores = [score(tree) for tree in ancestors]
    trees = generation(draw, ancestors, scores)

    def forward(*constants: Tensor) -> Tensor:
        total = torch.zeros(())
        for tree in trees:
            error = evaluate(tree, x, constants) - target
            total = total + (error * error).mean()
        return total

    workload = Workload(f"population {points:,}", [leaf(v) for v in values], forward,
                        data={"x": x, "target": target, "trees": trees})

    def advance() -> None:
        trees[:] = generation(draw, ancestors, scores)
        workload.facts["u"] = unique_share(trees)

    advance()
    workload.advance = advance
    return workload
