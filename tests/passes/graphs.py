"""Random graphs in the words of the rules: tables with symbols, data and types that fit together."""

from __future__ import annotations

import random

from autograd_opt.passes import COMMUTATIVE, EFFECT, LEAF, PINNED, NodeTable
from autograd_opt.passes.data import packed
from autograd_opt.passes.rules import COMMUTES, SYMBOLS
from autograd_opt.passes.terms import bits_of

NUMBERS = [1.0, -1.0, 0.0, -0.0, 2.0, 0.5, 3.0]
UNARY = ["negate", "permute", "reshape", "expand", "copy", "exp", "log", "sum"]
WITH_NUMBER = ["times", "over", "plus", "minus"]
BINARY = ["add", "sub", "mul", "matmul"]
ORDERS = [packed(p) for p in ([0, 1, 2], [1, 0, 2], [2, 0, 1], [1, 2, 0])]


def random_graph(seed: int, nodes: int = 60, types: int = 2) -> NodeTable:
    """A table of `nodes`: three leaves, then what the rules speak of, and some that they do not."""
    draw = random.Random(seed)
    rows: list[tuple[int, ...]] = [(), (), ()]
    symbols, data, bits, keys = [0] * 3, [0] * 3, [LEAF] * 3, [("leaf", k) for k in range(3)]
    meta = [0, 0, draw.randrange(types)]
    while len(rows) < nodes:
        kind = draw.random()
        recent = [draw.randrange(max(0, len(rows) - 12), len(rows)) for _ in range(2)]
        name, datum, operands = draw.choice(UNARY), 0, (recent[0],)
        if kind < 0.3:
            name, datum = draw.choice(WITH_NUMBER), bits_of(draw.choice(NUMBERS))
        elif kind < 0.6:
            name, operands = draw.choice(BINARY), (recent[0], recent[1])
        elif kind < 0.7:
            name = draw.choice(["sin", "output", "mystery"])
        if name == "permute":
            datum = draw.choice(ORDERS)
        changes = name in ("reshape", "expand", "copy", "sum") and draw.random() < 0.3
        rows.append(operands)
        symbols.append(SYMBOLS.get(name, 0))
        data.append(datum)
        bits.append((COMMUTATIVE if name in COMMUTES else 0) | (draw.choice([PINNED, EFFECT]) if kind > 0.97 else 0))
        meta.append(draw.randrange(types) if changes else meta[operands[0]])
        keys.append((name, datum, meta[-1]))
    numbers: dict[object, int] = {}
    return NodeTable.from_operands(
        [numbers.setdefault(k, len(numbers)) for k in keys], rows, bits, meta, symbols, data
    )
