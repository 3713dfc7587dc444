"""Torch calls on tensors of a graph that is not open: nothing is recorded, and results say what they lack."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.errors import GraphError, InplaceError, at
from autograd_opt.graph.node import stand_in
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.graph.torch_names import numbered
from autograd_opt.record.dispatch import METADATA, SPECIAL, original
from autograd_opt.record.nested_values import collect
from autograd_opt.record.unrecorded import own_memory

DUNDERS = frozenset({"__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__and__",
                     "__or__", "__xor__", "__lshift__", "__rshift__"})
"""Operators that have a form in place."""
NO_WRITES = frozenset({"requires_grad_", "detach_", "rename_", "share_memory_", "set_", "resize_", "resize_as_"})
"""Methods named as those that write, which leave the values of a tensor as they are or are refused by torch."""


def outside(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch call on CustomTensors outside any context: nothing is recorded.

    A tensor of a graph that needs no gradient is a constant to torch, whose own autograd follows the other operands.
    """
    with private.DisableTorchFunction():
        if kwargs.get("out") is not None:
            own_memory(kwargs["out"])
        known = func if func in SPECIAL or not isinstance(func, types.FunctionType) else original(func)
        if args and type(args[0]) is CustomTensor and torch.is_grad_enabled() and writes(func):
            refuse_leaf(args[0])
        if known in SPECIAL and known is not torch.Tensor.__setitem__ and own(args[:1] or tuple(kwargs.values())):
            return SPECIAL[known](known, args, kwargs)
        followed = tracked((args, kwargs)) if torch.is_grad_enabled() else []
        if followed and private.get_tracing_state() is not None:
            raise GraphError(at(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or "
                "detaching the gradient"
            ))
        result = func(*args, **kwargs)
        if followed:
            mark(result, {id(x) for x in (*args, *kwargs.values())}, recorded_before(func, followed), func)
        return result


def writes(func: Any) -> bool:
    """True if a function writes its first argument, as its name says."""
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and f"__{name[3:]}" in DUNDERS)
    return name.endswith("_") and name not in NO_WRITES


def refuse_leaf(t: CustomTensor) -> None:
    """Refuse a write to a leaf, in torch's words: no context would know of it."""
    if t.requires_grad and t.is_leaf:
        raise InplaceError(at(
            "a leaf Variable that requires grad is being used in an in-place operation. Use torch.no_grad() to update "
            "it, or write to a clone()"
        ))


def own(values: Any) -> list[CustomTensor]:
    """The CustomTensors in `values`."""
    found: list[torch.Tensor] = []
    collect(values, found)
    return [t for t in found if type(t) is CustomTensor]


def tracked(values: Any) -> list[CustomTensor]:
    """The CustomTensors in `values` that a gradient would go through."""
    return [t for t in own(values) if t.requires_grad or "_outside" in t.__dict__]


def recorded_before(func: Any, followed: list[CustomTensor]) -> Any:
    """The node of a left graph that a gradient of `func` of these would go on to; None where there is none."""
    if getattr(func, "__name__", "") in METADATA:
        return None
    left = (t.__dict__.get("_node") for t in followed)
    return next((node for node in left if node is not None and not node.is_leaf and node.requires_grad), None)


def mark(result: Any, given: set[int], origin: Any, func: Any) -> None:
    """Results that would need a gradient of a graph's are CustomTensors, whose backward says why it fails.

    One with a history that starts at `origin` is no leaf, also where another graph reads it.
    """
    if type(result) is torch.Tensor:
        if private.is_functorch_wrapped_tensor(result):
            _kept.met = True                    # the transform's results are marked
        elif id(result) not in given:
            result.__class__ = CustomTensor
            result._outside = True  # type: ignore[attr-defined]
            if origin is not None and (result.is_floating_point() or result.is_complex()):
                result._node = stand_in(  # type: ignore[attr-defined]
                    result, origin, numbered(getattr(func, "__name__", "call").strip("_"), 0))
    elif isinstance(result, (tuple, list)):
        for r in result:
            mark(r, given, origin, func)


_kept = threading.local()


def marked(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a transform outside any context returns, marked where it has closed over tensors of a graph.

    So are the results of a function that it returns, as `vjp` does.
    """
    before, _kept.met = getattr(_kept, "met", False), False
    try:
        result = call(*args, **kwargs)
        if not _kept.met:
            return result
        found: list[torch.Tensor] = []
        given: list[torch.Tensor] = []
        collect(result, found)
        collect((args, kwargs), given)
        with private.DisableTorchFunction():
            mark([t for t in found if not (t.is_leaf and t.requires_grad)], set(map(id, given)), None, call)
        if isinstance(result, tuple):
            return tuple(marked_later(r) if isinstance(r, types.FunctionType) else r for r in result)
        return result
    finally:
        _kept.met = _kept.met or before


def marked_later(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, all results of which are marked."""
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        _kept.met = True
        return result

    return functools.wraps(function)(lambda *args, **kwargs: marked(noted, args, kwargs))
