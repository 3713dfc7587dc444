"""torch calls in the words of the operator table."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.table import BINDERS, CALLS, OPS, USERS, rename
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instruction_names import BY_FORWARD, SAME, SWAPPED, WORDS


class Untraceable(Exception):
    """A rule does something that has no trace: it looks at values, or is private."""


def name_of(func: Any) -> str:
    """The name of a function of torch's, by itself; of anything else, with its library or module before it."""
    if isinstance(func, (private.OpOverloadPacket, private.OpOverload)):
        packet = func if isinstance(func, private.OpOverloadPacket) else func.overloadpacket
        return str(packet._qualified_op_name).removeprefix("aten::")
    if isinstance(func, FunctionType) and not f"{func.__module__}.".startswith("torch."):
        return f"{func.__module__}::{func.__qualname__}"
    return str(getattr(func, "__name__", "?"))


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """All tensors in values, however deep in lists, tuples and dictionaries."""
    out: list[torch.Tensor] = []
    stack = list(reversed(values))
    while stack:
        v = stack.pop()
        if isinstance(v, torch.Tensor):
            out.append(v)
        elif isinstance(v, (list, tuple)):
            stack += reversed(v)
        elif isinstance(v, dict):
            stack += reversed(v.values())
    return out


def canonical(func: Any, args: Any, kwargs: Any) -> tuple[str, list[Any], dict[str, Any]]:
    """The call in the words of the operator table, or in those of `WORDS`, or as it stands."""
    name = CALLS.get(func) or BY_FORWARD.get(func)
    if func is torch.einsum and "einsum" in OPS:
        operands, attributes = BINDERS["einsum"](args[0], args[1:])
        return "einsum", *split((), operands, attributes, OPS["einsum"].attributes)
    if callable(name):
        name = name(*args, **kwargs)
    if isinstance(name, str):
        try:
            operands, attributes = BINDERS[name](*args, **rename(kwargs, OPS[name].operands))
            if not any(isinstance(v, torch.Tensor) for v in attributes.values()):    # else as the call stands
                return name, *split(OPS[name].operands, operands, attributes, OPS[name].attributes)
        except TypeError:
            pass
    name = name_of(func)
    if name == "__get__":
        name = func.__self__.__name__
    name = name.strip("_") if name.startswith("__") else name
    if not SAME.get(name, "").startswith("logical_") or args[0].dtype is torch.bool:
        name = SAME.get(name, name)
    if name in SWAPPED:
        return SWAPPED[name], *split(OPS[SWAPPED[name]].operands, args[::-1], {}, {})
    if isinstance(func, (private.OpOverloadPacket, private.OpOverload)) and "::" not in name:
        name = f"aten::{name}"
    if name == "to":
        kwargs = {**kwargs, "dtype": func(*args, **kwargs).dtype}
        args = args[:1]
    if name in WORDS:
        names, defaults, binder = WORDS[name]
        operands, attributes = binder(*args, **rename(kwargs, names))
        return name, *split(names, operands, attributes, defaults)
    tensors, attributes = [], {}
    for key, value in [*((f"#{k}", a) for k, a in enumerate(args)), *kwargs.items()]:
        inside = tensors_in(value)
        tensors += inside
        if not isinstance(value, torch.Tensor):
            attributes[key] = beside(value, len(inside)) if inside else value
    if name == "view" and any(isinstance(v, torch.dtype) for v in attributes.values()):
        name = "view_dtype"              # the bits are read anew: no view of the same numbers
    if name in OPS and OPS[name] in USERS:
        raise Untraceable(f"{name} is the name of an operator of the user's")
    return name, tensors, attributes


def beside(value: Any, count: int) -> Any:
    """What a container of tensors holds besides: how many there are, where it is a list of nothing else."""
    def told(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return "a tensor"
        if isinstance(v, dict):
            return tuple([(k, told(part)) for k, part in v.items()])
        return tuple(map(told, v)) if isinstance(v, (list, tuple)) else v

    flat = isinstance(value, (list, tuple)) and len(value) == count
    return f"{count} tensors" if flat and all(isinstance(v, torch.Tensor) for v in value) else told(value)


def split(names: Sequence[str], operands: Any, attributes: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """Tensors on one side, numbers and attributes that are not the default on the other."""
    out = {}
    tensors = []
    for k, value in enumerate(operands):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        else:
            out[names[k] if k < len(names) else f"#{k}"] = value
    for key, value in attributes.items():
        if isinstance(value, torch.Tensor):
            raise Untraceable(f"a tensor as attribute {key}")
        if key not in defaults or encode(defaults[key]) != encode(value):
            out[key] = value
    return tensors, out
