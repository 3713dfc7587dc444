"""Calls in the words of torch's schemas: arguments by the schema's names, and operators of `torch.ops.aten`.

The operator table has torch's functions and methods, whose arguments have the same places as the schema's.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from autograd_opt.abi import torch_private as private

OPERATORS = (private.OpOverload, private.OpOverloadPacket)
OWNERS = (*private.FUNCTION_NAMESPACES, torch.Tensor)
"""Where torch keeps the Python functions of its operators."""


def twin_of(func: Any) -> Any:
    """torch's own function, or method, for an operator of `torch.ops.aten`, or its packet; None for anything else.

    >>> twin_of(torch.ops.aten.flip.default) is torch.flip
    True
    """
    if not isinstance(func, OPERATORS):
        return None
    whole: str = func.name() if isinstance(func, private.OpOverload) else func._qualified_op_name
    namespace, _, name = whole.partition("::")
    if namespace != "aten":
        return None
    name = name.partition(".")[0]
    return next((found for owner in OWNERS if isinstance(
        found := getattr(owner, name, None), (types.BuiltinFunctionType, types.MethodDescriptorType))),
        func.overloadpacket if isinstance(func, private.OpOverload) else None)


@functools.lru_cache(maxsize=4096)
def signatures(name: str) -> tuple[tuple[tuple[tuple[str, bool], ...], frozenset[str]], ...]:
    """For each overload of `torch.ops.aten.name`: what has a place, in order, and all names.

    What has a place is its name, and whether it is a tensor.  It ends where another overload has another name.

    >>> signatures("flip")[0][0]
    (('self', True), ('dims', False))
    """
    packet = getattr(torch.ops.aten, name, None)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []
    schemas = [schema for schema in schemas if any("Tensor" in str(r.type) for r in schema.returns)]
    placed = [[a for a in schema.arguments if not a.kwarg_only] for schema in schemas]
    agreed = 0
    while len({row[agreed].name for row in placed if len(row) > agreed}) == 1:
        agreed += 1
    return tuple([(tuple([(a.name, "Tensor" in str(a.type)) for a in row[:agreed]]),
                   frozenset([a.name for a in schema.arguments])) for row, schema in zip(placed, schemas, strict=True)])


def place_of(func: Any, word: str) -> int:
    """The place of an argument of an operator by its name; 0 where it has none.

    >>> place_of(torch.ops.aten.mse_loss, "reduction")
    2
    """
    for parameters, _ in signatures(getattr(func, "__name__", "").partition(".")[0]):
        return next((i for i, (name, _) in enumerate(parameters) if name == word), 0)
    return 0


def by_position(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The arguments of the same call with those by position that have a place in a schema; None where none has one.

    Returns `(args, kwargs)`.

    >>> by_position(torch.pow, (2.0,), {"exponent": torch.zeros(1)})
    ((2.0, tensor([0.])), {})
    >>> by_position(torch.sum, (torch.zeros(1),), {"keepdim": True})
    """
    if isinstance(func, types.FunctionType):
        return None                             # Python's own parameters may have other names
    first = "self" if isinstance(func, OPERATORS) else "input"
    for parameters, known in signatures(getattr(func, "__name__", "").partition(".")[0]):
        placed, left = list(args), dict(kwargs)
        for name, is_tensor in parameters[len(args):]:
            word = first if name == "self" else name
            if word not in left or is_tensor < isinstance(left[word], torch.Tensor):
                break
            placed.append(left.pop(word))
        if len(placed) > len(args) and left.keys() <= known:
            return tuple(placed), left
    return None
