"""Is a gradient rule additive in the cotangent?  Read off its trace, by the tables of `linear`.

Each call's result is zero, the same whatever the cotangent is, or linear in what has been found so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograd_opt.verification.checker.numbering import commutative
from autograd_opt.verification.program.instruction_names import FULL
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.linear import ZEROS, joint_slots, slots
from autograd_opt.verification.program.reading import Signature
from autograd_opt.verification.program.rule_traces import Template

FIXED, ADDITIVE, ZERO = 0, 1, 2
"""How a value depends on the cotangent: not, additively, or it is zero."""


def carried(head: Head, floating: Sequence[bool], states: Sequence[int]) -> bool:
    """True if an instruction of such operands, one of them additive in the cotangent, is additive in it, too."""
    touched = [k for k, state in enumerate(states) if state == ADDITIVE]
    if len(touched) == 1 and touched[0] in slots(head, floating):
        return True
    together = joint_slots(head, floating)
    return set(touched) <= set(together) and all(states[k] != FIXED for k in together)


def additive(template: Template, vocabulary: Vocabulary, signature: Signature, used: set[Head]) -> bool:
    """Is the rule, of a node of this signature, additive in its one cotangent?

    Adds the steps that read the cotangent to `used`.
    """
    head_number, operands, _ = signature
    result = vocabulary.heads[head_number].type
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
    found = one.numbered((-1, -2, -3, -4), table, commutes)
    swapped = other.numbered((-1, -2, -4, -3), table, commutes)
    return found == {1 - k: number for k, number in swapped.items()}
