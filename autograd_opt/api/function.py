"""CustomFunction, and unmodified `torch.autograd.Function` classes met inside a context.

Both have the same protocol; inside a context the forward runs without recording and the
class's own backward is the rule of the node (`function_calls.pyx`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from autograd_opt.api.function_calls import apply

R = TypeVar("R", covariant=True)


class Forward(Protocol[R]):
    """A class with a static `forward`, whose results those of `apply` are."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> R: ...


class CustomFunction(torch.autograd.Function):
    """A user-defined operation: subclass it with static `forward` and `backward`.

    The protocol of `torch.autograd.Function`: `forward(ctx, *args)` computes with plain
    torch calls, `backward(ctx, *cotangents)` returns one cotangent (or None) for each
    argument of forward.

    >>> import autograd_opt as ao
    >>> class Cube(CustomFunction):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = ao.tensor([2.0])
    >>> with ao.AutogradGraph():
    ...     Cube.apply(x).sum().backward()
    >>> x.grad
    tensor([12.])
    """

    if TYPE_CHECKING:
        def __init__(self) -> None: ...

        @classmethod
        def apply(cls: type[Forward[R]], *args: object, **kwargs: object) -> R: ...


def install() -> None:
    """Route `Function.apply` through this module (it asks per thread whether a graph records)."""
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
