"""What random programs can name beside torch: Functions of every kind, and modules of torch's and NumPy's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.engine.functions import Square
from tests.made import function, slope, solved

Tensor = torch.Tensor


class Grown(Function):
    """Saves its output, and has its setup apart."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


class Both(Function):
    """Two inputs, two outputs, of which one may have no cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        left = None if g is None else g
        right = None if g is None else g
        if h is not None:
            left = h * y if left is None else left + h * y
            right = h * x if right is None else right + h * x
        return (None if left is None else left.sum_to_size(x.shape),
                None if right is None else right.sum_to_size(y.shape))


class Doubled(Function):
    """Writes its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class Ranked(Function):
    """One output without a gradient, and a rule that is not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        order = x.argsort(-1)
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return x.gather(-1, order), order

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, order, g)


NAMES: dict[str, Any] = {
    **{f.__name__: f for f in (Square, Grown, Both, Doubled, Ranked)},
    "np": np, "copy": copy, "checkpoint": torch.utils.checkpoint.checkpoint, "graph": torch.autograd.graph,
    "functional": torch.autograd.functional, "func": torch.func,
    "function": function, "slope": slope, "solved": solved,
}
"""What the programs written here use besides."""
