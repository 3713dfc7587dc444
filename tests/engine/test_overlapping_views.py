"""Writes through views whose elements share memory: values and gradients are torch's.

So are second derivatives, but for rules that read the result: torch then counts a place once for each of its elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "unfold": lambda b: b.unfold(0, 2, 1),
    "as_strided": lambda b: b.as_strided((2, 2), (1, 1), 1),
    "far apart": lambda b: b.as_strided((2, 3), (2, 1)),
    "of a view": lambda b: b.view(2, 3).unfold(1, 2, 1),
    "turned": lambda b: b.unfold(0, 3, 2).t(),
    "some": lambda b: b.unfold(0, 3, 1)[1:],
    "one, alone": lambda b: b.unfold(0, 3, 1)[1],
}
WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "number": lambda v, w: v.mul_(2).add_(1),
    "product": lambda v, w: v.mul_(w.as_strided(v.shape, (1, 2))),
    "copy": lambda v, w: v.copy_(w.as_strided(v.shape, (1, 2))),
    "zeros": lambda v, w: v.zero_(),
    "of the value": lambda v, w: v.sin_(),
    "of the result": lambda v, w: v.exp_(),
    "fill": lambda v, w: v.fill_(w[0]),
    "a row": lambda v, w: v.__setitem__(0, w[0]),
    "masked": lambda v, w: v.masked_fill_(v > 0.5, w[0]),
    "without a rule": lambda v, w: v.digamma_(),
}
READS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "base": lambda b, v, w: b.cos().sum(),
    "view": lambda b, v, w: v.cos().sum(),
    "both": lambda b, v, w: (v * v).sum() + (b * b).sum(),
    "base written": lambda b, v, w: (b.mul_(w[:6]).sin().sum() + v.cos().sum()),
}


def derivatives(view: str, write: str, read: str) -> list[Any]:
    """The value, its gradients, and those of their squares; or what was raised."""
    x = torch.linspace(0.1, 0.9, 6, dtype=torch.float64, requires_grad=True)
    w = torch.linspace(0.3, 1.4, 12, dtype=torch.float64, requires_grad=True)
    b = x * 1.0
    v = VIEWS[view](b)
    try:
        WRITES[write](v, w)
        loss = READS[read](b, v, w)
        first = torch.autograd.grad(loss, (x, w), create_graph=True, allow_unused=True)
    except RuntimeError:
        return []
    square = sum(((g * g).sum() for g in first if g is not None and g.requires_grad), torch.zeros(()))
    second = torch.autograd.grad(square, (x, w), allow_unused=True) \
        if square.requires_grad and write != "of the result" else ()
    return [None if t is None else t.detach() for t in (loss, *first, *second)]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_elements_that_share_memory(view: str, read: str) -> None:
    for write in WRITES:
        wanted = derivatives(view, write, read)
        for optimize in (False, True):
            with ao.AutogradGraph(optimize=optimize):
                found = derivatives(view, write, read)
            torch.testing.assert_close(found, wanted, msg=lambda m, write=write: f"{write}: {m}")
