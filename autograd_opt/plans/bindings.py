"""Find the compiled function of torch's that calls an operator in the shortest way.

An operator's overload can always be called by its schema, which costs about 3 us.  A binding, which programs call,
costs 0.5 us and chooses among overloads by its arguments.  Its choice is asked here without running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.dispatch_modes import ThreadedMode
from autograd_opt.plans.operators import base_name, mapped
from autograd_opt.plans.optimizing import typed

Tensor = torch.Tensor


class Stopped(BaseException):
    """Ends a call at its first operator."""


class FirstCall(ThreadedMode):
    """Keep the first operator that is called, with its arguments, and do not run it."""

    call: Any = None

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.call = function, comparable((args, kwargs or {}))
        raise Stopped


def comparable(structure: Any) -> Any:
    """Arguments such that equal means the same; tensors by identity."""
    return typed(mapped(lambda x: ("tensor", id(x)) if isinstance(x, Tensor) else x, structure))


def candidates(name: str) -> Iterator[Callable[..., Any]]:
    """The method and the functions of torch's that are named as an operator."""
    method = private.TensorBase.__dict__.get(name)
    for found in (method, *(getattr(place, name, None) for place in private.FUNCTION_NAMESPACES)):
        if callable(found):
            yield found


def binding_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The binding that calls just this operator with just these arguments, or the operator by its schema."""
    wanted = function, comparable((args, kwargs))
    for candidate in candidates(base_name(function)):
        first = FirstCall()
        try:
            with torch.no_grad(), first:
                candidate(*args, **kwargs)
        except Stopped:
            if first.call == wanted:
                return candidate
        except Exception:
            continue  # it takes other arguments
    entry: Callable[..., Any] = private.direct(function)
    return entry
