"""The tensors in what a function returns: found, and exchanged for others, in whatever structure they are."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph.references import requires_grad
from autograd_opt.graph.tensor import CustomTensor

Tensor = torch.Tensor
detach = torch.Tensor.detach
OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.GeneratorType,
          torch.nn.Module, str, bytes, int, float, complex, torch.dtype, torch.device, torch.Size)
"""Objects that are not looked into."""
DEPTH = 24
"""How far a structure is looked into."""
Exchange = Callable[[CustomTensor], Any]


def exchanged(result: Any, exchange: Exchange) -> Any:
    """The structure with `exchange(t)` in the place of each CustomTensor `t`.

    Tuples are made anew. Lists, dicts and the attributes of other objects are written, so that they stay the objects
    that the function has returned.
    """
    if type(result) is CustomTensor:
        return exchange(result)
    return result if result is None or isinstance(result, (torch.Tensor, *OPAQUE)) else _inside(result, exchange, {}, 0)


def _inside(held: Any, exchange: Exchange, seen: dict[int, Any], depth: int) -> Any:
    """`exchanged` below the first level; `seen` holds what was met before."""
    if type(held) is CustomTensor:
        return exchange(held)
    if held is None or isinstance(held, (torch.Tensor, *OPAQUE)) or depth > DEPTH:
        return held
    if id(held) in seen:
        return seen[id(held)][1]
    seen[id(held)] = held, held
    made = held
    if isinstance(held, tuple):
        items = [_inside(item, exchange, seen, depth + 1) for item in held]
        if any(a is not b for a, b in zip(items, held, strict=True)):
            made = _tuple_like(held, items)
    elif isinstance(held, list):
        for i, item in enumerate(held):
            new = _inside(item, exchange, seen, depth + 1)
            if new is not item:
                held[i] = new
    elif isinstance(held, Mapping):
        for key, item in list(held.items()):
            new = _inside(item, exchange, seen, depth + 1)
            if new is item:
                continue
            try:
                made[key] = new
            except TypeError:                # one that is read only
                made = types.MappingProxyType({**made, key: new})
    if hasattr(made, "__dict__") or dataclasses.is_dataclass(made):
        _attributes(made, exchange, seen, depth)
    seen[id(held)] = held, made
    return made


def _tuple_like(held: Any, items: list[Any]) -> Any:
    """A tuple of the class of `held` with these items, and with its attributes where the class makes it otherwise."""
    if type(held) is tuple:
        return tuple(items)
    if hasattr(held, "_fields"):
        return type(held)._make(items)
    if hasattr(type(held), "n_sequence_fields"):         # of torch.return_types
        return type(held)(items)
    made = tuple.__new__(type(held), items)
    if hasattr(held, "__dict__"):
        vars(made).update(vars(held))
    return made


def _attributes(held: Any, exchange: Exchange, seen: dict[int, Any], depth: int) -> None:
    """Exchange the tensors among the attributes of an object."""
    own = getattr(held, "__dict__", None)
    names = list(own) if own is not None else [f.name for f in dataclasses.fields(held)]
    for name in names:
        item = own[name] if own is not None else getattr(held, name, None)
        new = _inside(item, exchange, seen, depth + 1)
        if new is not item:
            if own is not None:
                own[name] = new
            else:
                object.__setattr__(held, name, new)


def handed_out(results: Sequence[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Ordinary tensors over the memory of results, among which are views.

    Views of a leaf, and of each other, stay views, which torch does not let a program write if it cannot follow. One
    that requires no grad is none of what does, since it would come to require grad with it.
    """
    bases: dict[int, Tensor] = {private.storage_id(t.untyped_storage()): t for t in leaves if t.layout is torch.strided}
    follow = {storage for storage, t in bases.items() if requires_grad(t)}
    out = []
    with torch.no_grad():
        for t in results:
            storage = private.storage_id(t.untyped_storage()) if t.layout is torch.strided else 0
            base = bases.get(storage) if (storage in follow) == requires_grad(t) else None
            if base is not None and base.dtype is t.dtype and not (t.is_conj() or t.is_neg()):
                out.append(base.as_strided(t.shape, t.stride(), t.storage_offset()))
            else:
                out.append(detach(t))
                if storage and storage not in follow:
                    bases[storage] = out[-1]
                    follow |= {storage} if requires_grad(t) else set()
    return out
