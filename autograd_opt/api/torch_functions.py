"""torch's own Function in C that `once_differentiable` uses, inside a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.api.function import CustomFunction
from autograd_opt.graph import tape as tapes

_delayed_error: Any = private.functions.DelayedError


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


class DelayedError:
    """`torch._C._functions.DelayedError`, which gives this library's function inside a context."""

    def __new__(cls, *args: Any) -> Any:
        return (delayed_error if tapes.get_recording() is not None else _delayed_error)(*args)


def install() -> None:
    """Put it in place; done once at import."""
    private.functions.DelayedError = DelayedError
