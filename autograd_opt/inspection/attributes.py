"""In which bit two attributes differ: they are one value exactly where their keys are equal."""

from __future__ import annotations

import struct
from typing import Any

from autograd_opt.graph import program_text
from autograd_opt.graph.plain_values import attribute_key

KEYLESS = "{} has no key: such a value is taken for equal to none"


def attribute_difference(name: str, x: Any, y: Any, typed: bool = False) -> str | None:
    """What differs between two values of the attribute `name`; None where their keys are equal.

    `typed`: a list is no tuple, to functions of the user's.

    >>> attribute_difference("y", (1, 0.0), (1, -0.0))
    'attribute y[1]: 0.0 and -0.0'
    >>> attribute_difference("y", 2, 2.0)
    'attribute y: 2 and 2.0'
    """
    keys = key(x, typed), key(y, typed)
    if keys[0] == keys[1] and keys[0] is not None:
        return None
    path, x, y = innermost(x, y, typed)
    first, second = (program_text.value_text(v) for v in (x, y))
    if first == second:
        first, second = further(x, y)
    texts = shortened(first, second)
    without = [v for v in (x, y) if key(v) is None]
    reason = f"; {KEYLESS.format(type(without[0]).__name__)}" if without else ""
    return f"attribute {name}{path}: {texts[0]} and {texts[1]}{reason}"


def key(value: Any, typed: bool = False) -> bytes | None:
    """The bytes that stand for an attribute's value; None for a value without a key."""
    try:
        return bytes(attribute_key({"": value}, typed))
    except (TypeError, RecursionError):
        return None


def innermost(x: Any, y: Any, typed: bool) -> tuple[str, Any, Any]:
    """The first two parts that differ, and the way to them."""
    path = ""
    while True:
        pairs = parts(x, y)
        found = next(((k, a, b) for k, a, b in pairs if key(a, typed) is None or key(a, typed) != key(b, typed)),
                     None)
        if found is None:
            return path, x, y
        path, x, y = path + found[0], found[1], found[2]


def parts(x: Any, y: Any) -> list[tuple[str, Any, Any]]:
    """(way, part of x, part of y) of two sequences of one length, or of two slices."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)) and len(x) == len(y):
        return [(f"[{k}]", a, b) for k, (a, b) in enumerate(zip(x, y, strict=True))]
    if type(x) is slice and type(y) is slice:
        return [(f".{k}", getattr(x, k), getattr(y, k)) for k in ("start", "stop", "step")]
    return []


def further(x: Any, y: Any) -> tuple[str, str]:
    """Two values that print alike, with what tells them apart."""
    text = program_text.value_text(x)
    if type(x) is not type(y):
        return f"{text} ({type(x).__name__})", f"{text} ({type(y).__name__})"
    if type(x) is float:
        return f"{text} (bits {bits(x)})", f"{text} (bits {bits(y)})"
    if type(x) is complex:
        return tuple(f"{text} (bits {bits(v.real)} and {bits(v.imag)})" for v in (x, y))  # type: ignore[return-value]
    return text, "another of the same text"


def bits(x: float) -> str:
    """The bits of a float, in hexadecimal.

    >>> bits(-0.0)
    '0x8000000000000000'
    """
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016x}"


def shortened(first: str, second: str) -> tuple[str, str]:
    """Two texts that differ, short; where the difference would be left out, from there on."""
    short = program_text.shorten(first), program_text.shorten(second)
    if short[0] != short[1]:
        return short
    start = next(i for i in range(len(first) + 1) if first[i:i + 1] != second[i:i + 1])
    return program_text.shorten(f"…{first[start:]}"), program_text.shorten(f"…{second[start:]}")
