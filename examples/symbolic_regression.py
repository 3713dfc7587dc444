"""Symbolic regression on real data: which formula predicts the progression of diabetes best?

A population of small expression trees is bred for a few generations; the constants of every
tree are fitted by gradient descent.  Trees of one population share much of their structure:
a subtree that a hundred trees have inherited is computed and differentiated once.
Data: scikit-learn's diabetes set (Efron et al., 2004), 442 patients, ten measurements.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor

import autograd_opt as ao

# %%
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}
UNARY: dict[str, Callable[[Any], Any]] = {"tanh": lambda a: a.tanh(), "sin": lambda a: a.sin()}
CONSTANTS = 8
Tree = tuple[Any, ...]


def grow(rng: random.Random, variables: int, depth: int) -> Tree:
    """A random tree: ("x", i), ("c", i), (unary, tree) or (binary, tree, tree)."""
    if depth == 0 or rng.random() < 0.2:
        return ("x", rng.randrange(variables)) if rng.random() < 0.6 else ("c", rng.randrange(CONSTANTS))
    if rng.random() < 0.25:
        return (rng.choice(list(UNARY)), grow(rng, variables, depth - 1))
    return (rng.choice(list(BINARY)), grow(rng, variables, depth - 1), grow(rng, variables, depth - 1))


def evaluate(tree: Tree, x: list[Tensor], c: list[Tensor]) -> Tensor:
    """The value of a tree at every data point; nothing is cached here."""
    if tree[0] == "x":
        return x[tree[1]]
    if tree[0] == "c":
        return c[tree[1]]
    if tree[0] in UNARY:
        return UNARY[tree[0]](evaluate(tree[1], x, c))
    return BINARY[tree[0]](evaluate(tree[1], x, c), evaluate(tree[2], x, c))


# %% [markdown]
# Breeding: a subtree of one parent is grafted onto the other, so subtrees spread through the population.
# %%
def subtrees(tree: Tree) -> list[Tree]:
    """The tree and everything below it."""
    return [tree] + [s for child in tree[1:] if isinstance(child, tuple) for s in subtrees(child)]


def cross(rng: random.Random, a: Tree, b: Tree) -> Tree:
    """`a` with one of its subtrees replaced by one of `b`'s."""
    target, graft = rng.choice(subtrees(a)), rng.choice(subtrees(b))

    def replace(tree: Tree) -> Tree:
        if tree is target:
            return graft
        return tuple(replace(part) if isinstance(part, tuple) else part for part in tree)

    grown = replace(a)
    return grown if len(subtrees(grown)) <= 31 else a


# %%
def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Breed; returns the best mean squared error of the first and the last generation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--population", type=int, default=32)
    options = parser.parse_args(arguments)
    rng = random.Random(0)
    torch.manual_seed(0)
    data = load_diabetes()
    table = torch.tensor(data.data, dtype=torch.float32)
    x = [column * 20 for column in table.unbind(1)]
    y = torch.tensor(data.target, dtype=torch.float32)
    y = (y - y.mean()) / y.std()
    c = [torch.randn(()).requires_grad_() for _ in range(CONSTANTS)]
    optimizer = torch.optim.Adam(c, 0.02)
    trees = [grow(rng, len(x), 4) for _ in range(options.population)]
    best: list[float] = []
    for generation in range(options.generations):
        for _ in range(3):
            optimizer.zero_grad()
            with ao.AutogradGraph(optimize=True) as graph:
                errors = [(evaluate(tree, x, c) - y).square().mean() for tree in trees]
                total = torch.stack([e.clamp(max=10) for e in errors]).sum()
                if total.requires_grad:  # some generation may have lost every constant
                    total.backward()
                scores = [float(e) for e in errors]
                reused, nodes = graph.report().reused, len(graph)
            optimizer.step()
        order = sorted(range(len(trees)), key=scores.__getitem__)
        best.append(scores[order[0]])
        print(f"generation {generation}: best error {best[-1]:.3f}, {reused} of {nodes} values taken over")
        parents = [trees[i] for i in order[:len(trees) // 2]]
        missing = len(trees) - len(parents)
        trees = parents + [cross(rng, rng.choice(parents), rng.choice(parents)) for _ in range(missing)]
    print(f"best error {best[0]:.3f} → {best[-1]:.3f} (1.0 is the mean of the data)")
    return best[0], best[-1]


if __name__ == "__main__":
    main()

# %% [notebook]
# first, last = main(["--generations", "8", "--population", "32"])
# %% [markdown]
# Most values of each step are taken over: the population repeats itself more and more. Nothing in `evaluate` caches
# anything; the recorder looks up every operation by what it computes.
