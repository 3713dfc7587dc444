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
