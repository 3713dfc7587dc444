"""torch's own Functions in C, for its gradcheck and for `once_differentiable`, inside a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.api.function import CustomFunction
from autograd_opt.graph import thread_state


def replace(name: str, make: Callable[..., Any]) -> None:
    """Let `torch._C._functions.<name>` give this library's function inside a context: the identity, and its derivative.

    `make` takes the arguments of torch's, and returns the function `backward`.
    """
    original = getattr(private.functions, name)

    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        out = tuple(None if t is None else t.detach() for t in tensors)
        return out[0] if len(out) == 1 else out

    def construct(cls: Any, *args: Any) -> Any:
        if thread_state.get_recording() is None:
            return original(*args)
        kind: Any = type(name, (CustomFunction,), {
            "forward": staticmethod(forward), "backward": staticmethod(make(*args))})
        return kind.apply

    setattr(private.functions, name, type(name, (), {"__new__": construct}))


def undefined_grad() -> Callable[..., Any]:
    """A derivative that gives no cotangent."""
    return lambda ctx, *cotangents: (None,) * len(cotangents)


def delayed_error(message: str | bytes, outputs: int) -> Callable[..., Any]:
    """A derivative that raises `message`."""
    def backward(ctx: Any, *cotangents: Any) -> Any:
        raise errors.GraphError(message.decode() if isinstance(message, bytes) else message)

    return backward


def install() -> None:
    """Put them in place; done once at import."""
    replace("UndefinedGrad", undefined_grad)
    replace("DelayedError", delayed_error)
