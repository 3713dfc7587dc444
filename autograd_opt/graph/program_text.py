"""The graph as a small program: one line a node, the same text at every run.

    %0 = leaf()  # f32[2]
    %1 = leaf()  # f32[2]
    %2 = add(%0, %1)  # f32[2] train.py:12

Numbers are record numbers.  Attributes appear where they differ from the operator's default;
nothing that changes from run to run (addresses, folders, times) is printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from autograd_opt._common.callsite import place_text
from autograd_opt.graph.node import PINNED

SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "complex64": "c64", "complex128": "c128", "complex32": "c32", "bool": "bool", "uint8": "u8",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}
"""dtype name -> the word printed for it."""
LONGEST = 60
"""Characters of one attribute value; more are left out in the middle."""


def dtype_text(dtype: Any) -> str:
    """A dtype as one short word.

    >>> dtype_text(torch.float64)
    'f64'
    """
    name = str(dtype).removeprefix("torch.")
    return SHORT.get(name, name)


def type_text(node: Any) -> str:
    """dtype, shape and, off the CPU, device of a node's value; a tuple for several outputs."""
    if node.dtype is None:
        metas = node.shape or ()
        return f"({', '.join('?' if m is None else _type(*m) for m in metas)})"
    return _type(node.shape, node.dtype, node.device)


def _type(shape: Any, dtype: Any, device: Any) -> str:
    place = "" if device is None or device.type == "cpu" else f"@{device}"
    return f"{dtype_text(dtype)}[{', '.join(map(str, shape))}]{place}"


def source_text(source: str | None) -> str:
    """`folder/file.py:12` as `file.py:12`, a line of a notebook's cell as `In[3]:12`."""
    return "" if source is None else os.path.basename(place_text(source))


def value_text(value: Any) -> str:
    """An attribute value, short and without anything that changes from run to run.

    >>> value_text((1, slice(0, 3), torch.float32, torch.zeros(2)))
    '(1, 0:3, f32, f32[2])'
    """
    if isinstance(value, torch.Tensor):
        return _type(tuple(value.shape), value.dtype, value.device)
    if isinstance(value, torch.dtype):
        return dtype_text(value)
    if isinstance(value, slice):
        parts = ["" if v is None else value_text(v) for v in (value.start, value.stop, value.step)]
        return ":".join(parts if value.step is not None else parts[:2])
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.Size):
        return value_text(tuple(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    text = str(value)
    if " at 0x" in text:
        text = getattr(value, "__name__", type(value).__name__)
    return text


def shorten(text: str, longest: int = LONGEST) -> str:
    """At most `longest` characters, the middle left out."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def is_opaque(node: Any) -> bool:
    """Is this a call recorded whole, differentiated by torch itself?"""
    return node.op.name in ("opaque", "opaque_multi")


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes worth printing: those that differ from the operator's defaults."""
    defaults = node.op.attributes
    return {
        name: value for name, value in node.attributes.items()
        if name not in node.op.operands and not (name in defaults and same(value, defaults[name]))
    }


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, so that 1, 1.0 and True are three values."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    try:
        return type(a) is type(b) and bool(a == b)
    except (RuntimeError, ValueError):
        return False


def operator_text(node: Any) -> str:
    """The operator's name; of an opaque call, that of the torch function."""
    if is_opaque(node):
        return f"torch.{node.attributes.get('call', 'call')}"
    if node.is_constant:
        return "constant"
    return str(node.op.name)


def expression(node: Any) -> str:
    """What computes a node, as a call: `add(%0, %1)`."""
    operands = node.operands
    if node.op.name == "output" and operands and operands[0] is not None:
        return f"{number(operands[0])}[{node.attributes.get('i', 0)}]"
    names = node.op.operands
    values = node.attributes
    arguments = []
    for i, operand in enumerate(operands):
        if operand is not None:
            arguments.append(number(operand))
        elif i < len(names):
            arguments.append(shorten(value_text(values.get(names[i]))))
    while arguments and arguments[-1] == "None":
        arguments.pop()
    extra = {} if is_opaque(node) else attributes_of(node)
    arguments += [f"{name}={shorten(value_text(value))}" for name, value in extra.items()]
    return f"{operator_text(node)}({', '.join(arguments)})"


def number(node: Any) -> str:
    """`%3`; `%?` for a node whose record has been released."""
    return "%?" if node.index < 0 else f"%{node.index}"


def line(node: Any) -> str:
    """The program line of one node."""
    remarks = [type_text(node)]
    if node.source:
        remarks.append(source_text(node.source))
    text = f"{number(node)} = {expression(node)}  # {' '.join(remarks)}"
    if is_opaque(node):
        text += ", opaque"
    if node.leader is not None and node.leader.index >= 0:
        pinned = (node.flags | node.leader.flags) & PINNED
        text += f", {'value of' if pinned else 'same as'} {number(node.leader)}"
    return text


def program(nodes: Iterable[Any]) -> str:
    """The whole graph, one line a node; what `print(graph)` shows.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph(sources=False) as graph:
    ...     y = (x * 3).sum()
    ...     print(graph)
    %0 = leaf()  # f32[2]
    %1 = mul(%0, 3)  # f32[2]
    %2 = sum(%1)  # f32[]
    """
    return "\n".join(map(line, nodes))


def excerpt(nodes: Sequence[Any], fault: Any, lines: int = 10) -> str:
    """About `lines` lines of the program around `fault`, which is marked, for error messages."""
    if not 0 <= fault.index < len(nodes):
        return f"> {line(fault)}"
    first = max(0, min(fault.index - lines // 2, len(nodes) - lines))
    part = nodes[first:first + lines]
    text = [f"{'>' if n is fault else ' '} {line(n)}" for n in part]
    if first:
        text.insert(0, "  …")
    if first + lines < len(nodes):
        text.append("  …")
    return "\n".join(text)
