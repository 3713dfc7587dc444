"""Names and arguments of torch's operators, and the operators that differ only in where their result goes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def base_name(function: Any) -> str:
    """The name of an operator without its namespace and overload: `add_` of `aten::add_.Tensor`."""
    return str(function._schema.name).removeprefix("aten::")


@functools.cache
def full_name(function: Any) -> str:
    """`name.overload` of an operator."""
    return f"{base_name(function)}.{function._overloadname or 'default'}"


def signature(function: Any) -> list[tuple[str, bool]]:
    """The types of an operator's arguments, and which of these are keywords."""
    return [(str(argument.type), argument.kwarg_only) for argument in function._schema.arguments]


def overload(name: str, like: Any) -> Any:
    """The operator of another name that takes the arguments of `like`, if there is one: overloads differ in names."""
    packet = getattr(torch.ops.aten, name, None)
    names = [] if packet is None else packet.overloads()
    for other in sorted(names, key=lambda other: other != like._overloadname):
        function = getattr(packet, other)
        if signature(function) == signature(like):
            return function
    return None


@functools.cache
def functional(function: Any) -> Any:
    """The operator that returns what this one writes into its first operand; itself where it writes nothing so."""
    name = base_name(function)
    return overload(name.removesuffix("_"), function) if name.endswith("_") else function


def parts(structure: Any) -> list[Any]:
    """What stands in the arguments or the result of an operator, one by one; lists and dictionaries are looked into."""
    if isinstance(structure, dict):
        structure = structure.values()
    elif not isinstance(structure, (list, tuple)):
        return [structure]
    found: list[Any] = []
    for x in structure:
        if isinstance(x, (list, tuple, dict)):
            found += parts(x)
        else:
            found.append(x)
    return found


def mapped(change: Callable[[Any], Any], structure: Any) -> Any:
    """The same arguments, or result, with each part changed; every tuple becomes a plain one."""
    if isinstance(structure, tuple):
        return tuple([mapped(change, x) for x in structure])
    if isinstance(structure, list):
        return [mapped(change, x) for x in structure]
    if isinstance(structure, dict):
        return {key: mapped(change, x) for key, x in structure.items()}
    return change(structure)
