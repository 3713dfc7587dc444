"""Calls at the edge of what a function takes: nothing at all, heads without size, reductions left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.abi import torch_private as private

Tensor = torch.Tensor
X = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).reshape(2, 3)
Y, CLASSES = X.flip(0).contiguous(), torch.tensor([1, 2])
LOSSES = {**dict.fromkeys("mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy".split(), Y),
          **dict.fromkeys("nll_loss cross_entropy_loss".split(), CLASSES)}
CALLS: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    **{f"norm {order} of {size}": (lambda a, order=order: torch.linalg.norm(a, order, (-2, -1)), [X.new_zeros(size)])
       for size in ((0, 0), (0, 3), (3, 0), (2, 0, 3)) for order in (torch.inf, -torch.inf, 1, 2, -2, "nuc", "fro")},
    **{f"matrix_norm {order}": (lambda a, order=order: torch.linalg.matrix_norm(a, order), [X.new_zeros(0, 3)])
       for order in (torch.inf, 1, 2)},
    "attention, nothing": (F.scaled_dot_product_attention, [X.new_zeros(1, 2, 0)] * 3),
    "attention, values": (F.scaled_dot_product_attention, [X.new_zeros(1, 2, 0), X.new_zeros(1, 2, 0), X[None]]),
    **{f"{name} of {space}": (lambda x, owner=owner, name=name, t=t: getattr(owner, name)(x, t), [X])
       for name, t in LOSSES.items() for space, owner in (("nn", private.nn), ("aten", torch.ops.aten))},
    "cross entropy, mean": (lambda x: torch.ops.aten.cross_entropy_loss(x, CLASSES, None, 1), [X]),
    "mse by name": (lambda x: private.nn.mse_loss(x, target=Y), [X]),
}


def seen(function: Any, inputs: list[Tensor]) -> list[Any]:
    """Value, flag and gradients; or which error was raised."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    try:
        out = function(*leaves)
    except (TypeError, IndexError, RuntimeError) as error:
        return [next(i for i, kind in enumerate((TypeError, IndexError, RuntimeError)) if isinstance(error, kind))]
    if out.requires_grad:
        out.sum().backward()
    return [out.detach(), out.requires_grad, *[t.grad for t in leaves]]


@pytest.mark.parametrize("name", CALLS)
def test_what_torch_computes_at_the_edge_of_a_call(name: str) -> None:
    function, inputs = CALLS[name]
    wanted = seen(function, inputs)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            torch.testing.assert_close(seen(function, inputs), wanted)
    for wrapped in (ao.optimize(function), ao.compile(function)):
        for _ in range(2):
            torch.testing.assert_close(seen(wrapped, inputs), wanted)


def test_a_size_may_be_a_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        return F.interpolate(x[None], size=torch.tensor([2]))

    wanted = seen(program, [X])
    with ao.AutogradGraph():
        torch.testing.assert_close(seen(program, [X]), wanted)
