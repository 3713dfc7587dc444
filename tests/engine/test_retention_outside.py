"""`retain_grad` before a context, and a write inside: the gradient of the new value is retained, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "mul_": lambda y: y.mul_(3),
    "part": lambda y: y[:2].mul_(3),
    "setitem": lambda y: y.__setitem__(0, 5.0),
    "view": lambda y: y.view(3, 1).exp_(),
    "twice": lambda y: y.mul_(3).sin_(),
    "none": lambda y: y.mul(3),
    "zero_": lambda y: y.zero_(),
    "under no_grad": lambda y: torch.no_grad()(y.mul_)(3),
}


def retained(write: Callable[[torch.Tensor], Any], inside: Any, *, first: bool) -> list[Any]:
    a = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    y = a * 2
    y.retain_grad()
    if first:
        y.sum().backward(retain_graph=True)
    found: list[Any] = []
    with inside:
        write(y)
        (y * y).sum().backward(retain_graph=True)
        assert y.grad is not None
        found += [y.grad.clone(), y.retains_grad]
        (y * 5).sum().backward(retain_graph=True)
        found.append(y.grad.clone())
        y.grad = None
        torch.autograd.backward(y.exp().sum() * a.sum())
    return [*found, y.grad, a.grad]


@pytest.mark.parametrize("first", [False, True], ids=["new", "after a run of torch's"])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_gradient_of_the_new_value_is_retained(write: Callable[[torch.Tensor], Any], optimize: bool,
                                                   first: bool) -> None:
    expected = retained(write, nullcontext(), first=first)
    for one, other in zip(retained(write, ao.AutogradGraph(optimize=optimize), first=first), expected, strict=True):
        torch.testing.assert_close(one, other)
