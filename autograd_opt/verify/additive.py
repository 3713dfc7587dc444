"""Is a gradient rule additive in the cotangent?  Read off its trace, by the tables of `linear`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograd_opt.verify.ir import Head, Vocabulary
from autograd_opt.verify.linear import ZEROS, joint_slots, slots
from autograd_opt.verify.numbering import commutative
from autograd_opt.verify.rules import Template
from autograd_opt.verify.words import FULL


def additive(
    template: Template, vocabulary: Vocabulary, result: int, operands: Sequence[int | None], used: set[Head]
) -> bool:
    """Is the rule, of a node of this type and of these operands, additive in its one cotangent?

    Each step is zero, the same whatever the cotangent is, or linear in what has been found so.  Adds the steps that
    read the cotangent to `used`.
    """
    types: list[Any] = [result, result, *operands]
    additive, zeros = {0}, set()
    for number, refs in template.steps:
        head = vocabulary.heads[number]
        here = len(types)
        types.append(head.type)
        touched = [k for k, r in enumerate(refs) if r in additive]
        if head.effect:
            return False
        if not touched:
            if head.op == FULL and head.attributes[0][1] in ZEROS:
                zeros.add(here)
            continue
        floating = [vocabulary.floating(types[r]) for r in refs]
        if not vocabulary.floating(head.type):
            return False
        if not (len(touched) == 1 and touched[0] in slots(head, floating)):
            together = joint_slots(head, floating)
            if not (set(touched) <= set(together) and all(refs[k] in additive or refs[k] in zeros for k in together)):
                return False
        additive.add(here)
        used.add(head)
    return all(position in additive or position in zeros for _, position in template.results)


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
