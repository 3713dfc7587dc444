"""Gradients that are views of a computed cotangent: they require grad, and lead nowhere, as in torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": lambda x: x.t(), "sum": lambda x: x.sum(0), "reshape": lambda x: x.reshape(-1),
    "view_as": lambda x: x.view_as(x), "clone": torch.clone, "product": lambda x: x * 2, "part": lambda x: x[1:],
    "exp": torch.exp,
}


def told(operation: Callable[[Tensor], Tensor], batched: bool, computed: bool, context) -> list[object]:
    x = torch.arange(9.0).reshape(3, 3).clone().requires_grad_()
    with context:
        y = operation(x)
        cotangent = torch.stack([y * 2, y * 3]) if batched else y * 2
        if not computed:
            cotangent = cotangent.detach().requires_grad_()
        gradient, = torch.autograd.grad(y, x, cotangent, is_grads_batched=batched)
        results = [gradient * 2, gradient.sum(), gradient[0], gradient.take(torch.tensor([0]))]
        seen: list[object] = [r.requires_grad for r in results]
        seen += [gradient.requires_grad, gradient.is_leaf, gradient is cotangent, [r.tolist() for r in results]]
        if results[0].requires_grad:
            results[0].sum().backward()
            seen += [x.grad is None, cotangent.grad is None if cotangent.is_leaf else None]
    return seen


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_as_in_torch(name: str, batched: bool, computed: bool, optimize: bool) -> None:
    expected = told(OPERATIONS[name], batched, computed, contextlib.nullcontext())
    assert told(OPERATIONS[name], batched, computed, ao.AutogradGraph(optimize=optimize)) == expected


def test_some_require_grad() -> None:
    """The operations above are of both kinds."""
    flags = {told(f, False, True, contextlib.nullcontext())[4] for f in OPERATIONS.values()}
    assert flags == {False, True}
