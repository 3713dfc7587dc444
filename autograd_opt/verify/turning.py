"""Rewrites that only turn axes, such as the transpose of a transpose: shown for all sizes without sympy.

Every value of both programs is a leaf or a seed with its axes in some order.  The order is read off the operator's
meaning, run on an array of numbers whose sizes all differ, twice; the operators are those whose meanings know axes
only, by their numbers.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from autograd_opt.verify.domain import Domain, Outside
from autograd_opt.verify.evaluate import apply
from autograd_opt.verify.ir import Head, Program, same_goals
from autograd_opt.verify.meaning import MEANING
from autograd_opt.verify.moving import MOVEMENTS
from autograd_opt.verify.stored import Answer
from autograd_opt.verify.words import MERGED, SEED

TURNS: dict[str, frozenset[str]] = {
    "mT": frozenset(), "T": frozenset(), "t": frozenset(), "transpose": frozenset({"dim0", "dim1"}),
    "permute": frozenset({"dims"}), "movedim": frozenset({"source", "destination"})}
"""Operators that turn axes, and the attributes that say how."""
ORDERS: dict[Any, tuple[int, ...]] = {}
"""The orders read off, by meaning, operator, attributes and rank."""
MOST_ORDERS = 1_000
SIZES = (2, 3, 4, 5, 6), (7, 5, 3, 2, 4)

Turned = tuple[str, int, tuple[int, ...]]
"""Which leaf or seed, and its axes in their new order."""


def compare(left: Program, right: Program) -> Answer | None:
    """That two programs over the same leaves turn the same axes, values and pullbacks; None where it is not shown."""
    if left.vocabulary is not right.vocabulary:
        return None
    try:
        a, b = turned(left), turned(right)
    except Outside:
        return None
    return Answer(True, "", True, ()) if same_goals(left, right, a, b) else None


def turned(program: Program) -> list[Turned]:
    """Every value of the program.

    Raises
    ------
    Outside : an instruction does something else.
    """
    out: list[Turned] = []
    for k, (number, refs) in enumerate(zip(program.heads, program.operands, strict=True)):
        head = program.vocabulary.heads[number]
        shape = program.type_of(k).shape
        if shape is None:
            raise Outside("several outputs")
        if head.op == MERGED:
            out.append(out[refs[0]])
        elif head.op in ("leaf", SEED) and head.effect:
            out.append((head.op, head.effect, tuple(range(len(shape)))))
        elif head.op in TURNS and len(refs) == 1 and not head.effect:
            name, which, axes = out[refs[0]]
            if program.type_of(refs[0]).dtype != program.type_of(k).dtype:
                raise Outside("another dtype")
            out.append((name, which, tuple([axes[i] for i in order_of(program, head, len(axes))])))
        else:
            raise Outside(f"{head.op} does more than turn axes")
    return out


def order_of(program: Program, head: Head, rank: int) -> tuple[int, ...]:
    """The order in which an operator's meaning leaves the axes of its operand."""
    meaning = MEANING.get(head.op)
    if meaning not in MOVEMENTS or not {name for name, _ in head.attributes} <= TURNS[head.op] or rank > len(SIZES[0]):
        raise Outside(f"{head.op}, used so")
    key = meaning, head.op, head.attributes, rank
    known = ORDERS.get(key)
    if known is None:
        found = {probed(functools.partial(apply, Domain(), program.vocabulary, head), sizes[:rank]) for sizes in SIZES}
        if len(found) > 1:
            raise Outside(f"{head.op} looks at sizes")
        if len(ORDERS) >= MOST_ORDERS:
            ORDERS.clear()
        known = ORDERS[key] = found.pop()
    return known


def probed(meaning: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """How it orders the axes of an array of these sizes, which all differ."""
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    try:
        result = np.asarray(meaning([numbers], []))
        order = tuple([sizes.index(n) for n in result.shape])
    except Exception as error:  # a meaning that fails on this array shows nothing
        raise Outside(str(error)) from error
    if sorted(order) != list(range(len(sizes))) or not np.array_equal(result, numbers.transpose(order)):
        raise Outside("more than an order of axes")
    return order
