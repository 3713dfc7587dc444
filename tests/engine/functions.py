"""Functions of a user's that many tests apply."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function

Tensor = torch.Tensor


class Double(Function):
    """2 x, which saves nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        return gs[0] * 2


class Square(Function):
    """x², which saves its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gs[0]


class Cube(Function):
    """x³, whose derivative is differentiable again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gs[0] * 3 * x ** 2


class Two(Function):
    """2 x and 3 x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        return gs[0] * 2 + gs[1] * 3


class Fails(Function):
    """A copy, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Tensor:
        raise ValueError("simulated")
