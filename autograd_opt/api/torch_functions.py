"""torch's own Functions in C, for tests and for `once_differentiable`, inside a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.api.function import CustomFunction
from autograd_opt.graph import thread_state


def replace(name: str, make: Callable[..., Any]) -> None:
    """Let `torch._C._functions.<name>` give this library's function inside a context."""
    original = getattr(private.functions, name)

    def construct(cls: Any, *args: Any) -> Any:
        return make(*args) if thread_state.get_recording() is not None else original(*args)

    setattr(private.functions, name, type(name, (), {"__new__": construct}))


def undefined_grad() -> Callable[..., Any]:
    """The identity, whose cotangent is None."""
    class UndefinedGrad(CustomFunction):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.set_materialize_grads(False)
            out = tuple(None if t is None else t.detach() for t in tensors)
            return out[0] if len(out) == 1 else out

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return (None,) * len(cotangents)

    return UndefinedGrad.apply


def delayed_error(message: str | bytes, outputs: int) -> Callable[..., Any]:
    """The identity, whose derivative raises `message`."""
    text = message.decode() if isinstance(message, bytes) else message

    class DelayedError(CustomFunction):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            out = tuple(None if t is None else t.detach() for t in tensors)
            return out[0] if len(out) == 1 else out

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            raise errors.GraphError(text)

    return DelayedError.apply


def install() -> None:
    """Put them in place; done once at import."""
    replace("UndefinedGrad", undefined_grad)
    replace("DelayedError", delayed_error)
