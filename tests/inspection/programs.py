"""Small graphs that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import autograd_opt as ao


@contextmanager
def mixed() -> Iterator[tuple[ao.AutogradGraph, Any]]:
    """Every kind of node: leaves, constants, merged, pruned, pinned, opaque, several outputs."""
    t1, t2 = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    a = torch.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, name="mixed", sources=False) as graph:
        c = t1 + t2
        d = (t1 + t2) * a
        p, q = d.unbind(0)
        h = d * 2
        h.retain_grad()
        o = torch.cdist(c[None], d[None])
        loss = (t1 + t2 + d).sum() + h.sum() + p * q + o.sum() + c.sum(dim=0, keepdim=True)
        dropped = t1 * 3
        del dropped
        yield graph, loss


@contextmanager
def many(n: int) -> Iterator[ao.AutogradGraph]:
    """A chain of `n` pairs of nodes, every second pair repeated."""
    x = ao.tensor([0.5, 1.5])
    with ao.AutogradGraph(optimize=True, name="many") as graph:
        y = x
        for _ in range(n):
            y = (y * 0.5).sin() + (y * 0.5).sin()
        yield graph


def transformer(layers: int) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def program(kind: str) -> ao.AutogradGraph:
    """A large graph of each kind: followed, by line, and populations that share subtrees."""
    with ao.AutogradGraph(optimize=True, keep=True) as graph:
        x, y = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
        if kind.endswith("trees"):
            shared = [lambda: (x + y) * x, lambda: x.exp() / y, lambda: ((x + y) * x).sin() - y]
            trees = [(shared[k % 3]() * k + shared[k * k % 3]()).sum() for k in range(70)]
            _results = sum(trees) if kind == "summed trees" else trees
        else:
            model = transformer(4)
            if kind == "modules":
                graph.follow(model)
            z = torch.randn(2, 5, 8, requires_grad=True)
            u = model(z)
            _g = torch.autograd.grad(u.square().mean(), z, create_graph=True)
    return graph
