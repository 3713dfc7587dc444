"""Names of torch's operators, and the ones that differ only in where their result goes."""

from __future__ import annotations

from typing import Any

import torch


def base_name(function: Any) -> str:
    """The name of an operator without its namespace and overload: `add_` of `aten::add_.Tensor`."""
    return str(function._schema.name).removeprefix("aten::")


def full_name(function: Any) -> str:
    """`name.overload` of an operator."""
    return f"{base_name(function)}.{function._overloadname or 'default'}"


def overload(name: str, like: Any) -> Any:
    """The operator of another name with the overload of `like`; None where there is none."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or like._overloadname not in packet.overloads():
        return None
    return getattr(packet, like._overloadname)


def functional(function: Any) -> Any:
    """The operator that returns what this one writes into its first operand; itself where it writes nothing so."""
    name = base_name(function)
    return overload(name.removesuffix("_"), function) if name.endswith("_") else function
