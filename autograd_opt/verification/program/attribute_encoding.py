"""Attribute values as text, bit for bit."""

from __future__ import annotations

import ast
import struct
from typing import Any

import torch

LONG = 1 << 64
"""From here on numbers are written by their bits: Python does not print as many digits as it counts."""
SEQUENCES: dict[str, Any] = {"(": tuple, "[": list, "z": torch.Size}


def encode(value: Any, typed: bool = False) -> str:
    """Text that is equal exactly when two attribute values are the same, bit for bit.

    A list, a tuple and a size are told apart where they are `typed`: for functions of the user's.

    >>> [encode(v) for v in (1, 1.0, True, -0.0)]
    ['i1', 'f000000000000f03f', 'T', 'f0000000000000080']
    >>> encode([1]) == encode((1,)), encode([1], typed=True) == encode((1,), typed=True)
    (True, False)
    """
    kind = type(value)
    if value is None:
        return "N"
    if kind is bool:
        return "T" if value else "F"
    if kind is int:
        return f"i{value}" if -LONG < value < LONG else f"I{value:x}"
    if kind is float:
        return "f" + struct.pack("<d", value).hex()
    if kind is str:
        return f"s{value!r}"
    if kind is complex:
        return "c" + struct.pack("<dd", value.real, value.imag).hex()
    if kind is tuple or kind is list or kind is torch.Size:
        tag = next(t for t, k in SEQUENCES.items() if k is kind) if typed else "("
        return tag + ",".join([f"{len(e)}:{e}" for e in [encode(v, typed) for v in value]]) + ")"
    if kind is slice:
        return "l" + encode((value.start, value.stop, value.step), typed)
    if value is Ellipsis:
        return "E"
    if kind in (torch.dtype, torch.layout, torch.memory_format):
        return f"d{value!r}"
    if kind is torch.device:
        return f"v{value}"
    raise TypeError(kind)


def decode(text: str) -> Any:
    """The value that `encode` wrote."""
    tag, rest = text[0], text[1:]
    if tag in "NTFE":
        return {"N": None, "T": True, "F": False, "E": Ellipsis}[tag]
    if tag == "i" or tag == "I":
        return int(rest, 10 if tag == "i" else 16)
    if tag == "f":
        return struct.unpack("<d", bytes.fromhex(rest))[0]
    if tag == "c":
        return complex(*struct.unpack("<dd", bytes.fromhex(rest)))
    if tag == "s":
        return ast.literal_eval(rest)
    if tag == "d":
        return getattr(torch, rest.removeprefix("torch."))
    if tag == "v":
        return torch.device(rest)
    if tag == "l":
        return slice(*decode(rest))
    out, k, body = [], 0, rest[:-1]
    while k < len(body):
        colon = body.index(":", k)
        size = int(body[k:colon])
        out.append(decode(body[colon + 1 : colon + 1 + size]))
        k = colon + 2 + size
    return SEQUENCES[tag](out)
