"""Is a gradient rule additive in the cotangent?  Read off the calls that it makes, by the tables of `linear`.

Each call's result is zero, the same whatever the cotangent is, or linear in what has been found so.  Most rules are a
few calls of frequent functions, and run on sketches; of the others the trace is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt.ops.table import MULTI, USERS
from autograd_opt.verify.ir import Head, Type, Vocabulary
from autograd_opt.verify.linear import ZEROS
from autograd_opt.verify.numbering import commutative
from autograd_opt.verify.rules import VIEWS, Template, arguments
from autograd_opt.verify.sketch import ADDITIVE, FIXED, ZERO, Sketch, carried
from autograd_opt.verify.words import FULL


# ----- traces -----
def additive(
    template: Template, vocabulary: Vocabulary, result: int, operands: Sequence[int | None], used: set[Head]
) -> bool:
    """Is the rule, of a node of this type and of these operands, additive in its one cotangent?

    Adds the steps that read the cotangent to `used`.
    """
    types: list[Any] = [result, result, *operands]
    states = [ADDITIVE, FIXED, *[FIXED] * len(operands)]
    for number, refs in template.steps:
        head = vocabulary.heads[number]
        if head.effect:
            return False
        state = FIXED
        found = [states[r] for r in refs]
        if ADDITIVE in found:
            if not vocabulary.floating(head.type) or not carried(
                    head, [vocabulary.floating(types[r]) for r in refs], found):
                return False
            state = ADDITIVE
            used.add(head)
        elif head.op == FULL and head.attributes[0][1] in ZEROS:
            state = ZERO
        types.append(head.type)
        states.append(state)
    return all(states[position] != FIXED for _, position in template.results)


def symmetric(one: Template, other: Template, vocabulary: Vocabulary) -> bool:
    """Does the rule of f(x, y) give x what that of f(y, x), the other, gives it, and y likewise?"""
    table: dict[Any, int] = {}
    commutes = commutative(vocabulary)
    found = []
    for swapped, template in enumerate((one, other)):
        numbers: list[Any] = [-1, -2, -4, -3] if swapped else [-1, -2, -3, -4]
        for head, refs in template.steps:
            reads = [numbers[r] for r in refs]
            key = head, *(sorted(reads) if head in commutes and len(reads) == 2 else reads)
            numbers.append(table.setdefault(key, len(table)))
        found.append({1 - k if swapped else k: numbers[position] for k, position in template.results})
    return found[0] == found[1]


# ----- sketches -----
def sketched(
    vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool]
) -> list[Head] | None:
    """The steps that read the cotangent where the rule is additive in it; None where sketches do not show it.

    The user's rules are traced, which shows more of what they read.
    Runs under `Sketching`.
    """
    if op in USERS or op.joint is not None or op.flags & MULTI or head.unread or op.name in (*VIEWS, "setitem"):
        return None
    numbers = head.values() if None in types else {}
    carrying: list[Head] = []

    def given(type: int, state: int = FIXED) -> Sketch:
        shape, dtype, _, _ = vocabulary.types[type]
        return Sketch(shape or (), getattr(torch, dtype), state, carrying)

    def operand(k: int) -> Any:
        t = types[k]
        return numbers.get(op.operands[k]) if t is None else given(t)

    def ans() -> Sketch:
        return given(head.type)

    try:
        for k in range(len(types) - 1, -1, -1):
            vjp = op.vjps[k] if needs[k] and k < len(op.vjps) else None
            kind = types[k]
            if vjp is None or kind is None:
                continue
            g = given(head.type, ADDITIVE)
            args, kwargs = arguments(vjp, op, head, types, needs, g, ans, operand, vocabulary)
            value = vjp.fn(*args, **kwargs)
            if value is not None and not settled(value, vocabulary.types[kind]):
                return None
    except Exception:  # whatever a rule raises on sketches: its trace is read
        return None
    return carrying


def settled(value: Any, wanted: Type) -> bool:
    """Is a cotangent additive, or zero, when it has been brought to its operand's shape, and has its dtype?"""
    if type(value) is not Sketch or str(value.dtype) != f"torch.{wanted.dtype}":
        return False
    return bool((value if value.shape == wanted.shape else value.sum_to_size(wanted.shape)).state != FIXED)
