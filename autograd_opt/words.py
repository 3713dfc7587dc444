"""The words in which the rules of algebra speak of recorded operations.

`passes.rules` knows symbols and data, the recorder operators and attributes; here is the
dictionary between them.  It serves the flat arrays of the passes and, while recording, the
question whether a value is an earlier one in other words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from autograd_opt.node import attribute_key, install_words
from autograd_opt.ops.table import OPS
from autograd_opt.passes.algebra_py import Terms
from autograd_opt.passes.data import MOST_AXES, packed
from autograd_opt.passes.rules import BITS, SYMBOLS, rules_of

RULES = rules_of(BITS)
MOST_WORDS = 8
"""How far down a chain of words an equal value is looked for while recording."""


def axes(node: Any) -> int | None:
    """A node that puts axes in another order, as a packed permutation; None for one that cannot be read."""
    n = len(node.shape)
    if not 0 < n <= MOST_AXES:
        return None
    try:
        return packed(order_of(node.op.name, n, node.raw_attributes or {}))
    except (TypeError, IndexError, KeyError, ValueError):
        return None


def order_of(name: str, n: int, attributes: dict[str, Any]) -> list[int]:
    """Which axis of the operand each axis of the result is.

    >>> order_of("transpose", 3, {"dim0": 0, "dim1": -1}), order_of("T", 2, {})
    ([2, 1, 0], [1, 0])
    """
    order = list(range(n))
    if name == "permute":
        return [d % n for d in attributes["dims"]]
    if name == "movedim":
        return moved(n, attributes["source"], attributes["destination"])
    if name == "T":
        return order[::-1]
    if n > 1:
        a, b = (attributes["dim0"], attributes["dim1"]) if name == "transpose" else (-2, -1)
        order[a], order[b] = order[b], order[a]
    return order


def moved(n: int, source: Any, destination: Any) -> list[int]:
    """The order of axes that `movedim` makes.

    >>> moved(3, 0, 2), moved(4, (0, 1), (-1, 0))
    ([1, 2, 0], [1, 2, 3, 0])
    """
    sources = [source] if isinstance(source, int) else list(source)
    places = [destination] if isinstance(destination, int) else list(destination)
    order = [k for k in range(n) if k not in [s % n for s in sources]]
    for place, axis in sorted((p % n, s % n) for p, s in zip(places, sources, strict=True)):
        order.insert(place, axis)
    return order


def reduction(node: Any) -> int | None:
    """A sum by its attributes, as a number that equal attributes share."""
    try:
        return _number_of(attribute_key(node.raw_attributes))
    except TypeError:
        return None


@functools.lru_cache(4096)
def _number_of(key: bytes) -> int:
    return next(_numbers)


def _counted() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


_numbers = _counted()

Reader = Callable[[Any], int | None]
VALUES_ONLY = frozenset("negate permute reshape expand copy".split())
"""Symbols whose rules hold for every dtype; the others are for real floating numbers."""
TENSORS: dict[str, tuple[str, Reader | None]] = {
    "neg": ("negate", None),
    **dict.fromkeys(("permute", "movedim", "transpose", "t", "T", "mT"), ("permute", axes)),
    **dict.fromkeys(
        "view reshape flatten ravel squeeze unsqueeze unflatten unsafe_view reshape_alias".split(), ("reshape", None)),
    **dict.fromkeys(("expand", "broadcast_to"), ("expand", None)),
    **dict.fromkeys("clone contiguous cast to_float to_double to_half to_bfloat16".split(), ("copy", None)),
    "add": ("add", None), "sub": ("sub", None), "mul": ("mul", None),
    **dict.fromkeys(("matmul", "mm"), ("matmul", None)),
    "exp": ("exp", None), "log": ("log", None), "sum": ("sum", reduction),
}
"""Operator whose operands are all tensors -> symbol, and what reads its datum."""
NUMBERS = {"mul": ("times", 1), "div": ("over", 1), "add": ("plus", 0), "sub": ("minus", 0)}
"""Operator of a tensor and a Python number -> symbol, and the number that may leave the tensor as it was.

The number is the datum of the symbol.
"""


def install() -> None:
    """Tell the operators their words; done once at import."""
    for name, (symbol, reader) in TENSORS.items():
        op = OPS[name]
        op.symbol, op.datum, op.values_only = SYMBOLS[symbol], reader, symbol in VALUES_ONLY
        op.distinct = symbol == "negate"
    for name, (symbol, unit) in NUMBERS.items():
        OPS[name].number_symbol, OPS[name].unit = SYMBOLS[symbol], unit
    install_words(ancestor, SYMBOLS["copy"], SYMBOLS["permute"])


def ancestor(node: Any) -> Any:
    """The nearest node below, along operations of one tensor, that has the value of `node`.

    None where no rule that keeps every bit says so.
    """
    chain, signature, types = [], [], []
    at = node
    while True:
        kind = (at.shape, at.dtype, at.device, at.requires_grad)
        if kind not in types:
            types.append(kind)
        chain.append(at)
        symbol, datum = at.word()
        operands = at.operands
        if not symbol or len(chain) > MOST_WORDS or sum(o is not None for o in operands) != 1:
            signature.append((0, 0, types.index(kind)))
            break
        signature.append((symbol, datum, types.index(kind)))
        at = operands[0] if operands[0] is not None else operands[1]
    place = place_of(tuple(signature))
    return None if place is None else chain[place]


@functools.lru_cache(4096)
def place_of(signature: tuple[tuple[int, int, int], ...]) -> int | None:
    """Which member of a chain has the value of the first: (symbol, datum, type) of each, the last an atom."""
    terms = Terms(RULES)
    values = [terms.atom(signature[-1][2])]
    for symbol, datum, type in reversed(signature[:-1]):
        terms.steps = 0
        values.append(terms.value(symbol, datum, type, (values[-1],)))
    value = values.pop()
    return next((len(values) - k for k in range(len(values) - 1, -1, -1) if values[k] == value), None)
