"""Translation validation of a stretch: what its steps leave in each result is what the program says of that value.

Steps are followed with terms in the places of numbers: a place holds a function and the terms of its operands.
Places are used again and again, and this finds out whether one was taken too early.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from autograd_opt.plans import blocks
from autograd_opt.plans.emission import Value
from autograd_opt.plans.fusing import Group
from autograd_opt.plans.program import Ref

FUNCTIONS = {code: name for name, code in blocks.NAMES.items()}


Terms = dict[tuple[Any, ...], int]
"""A number for each term, given when it is first asked for: terms are equal if their operands have equal numbers."""


def expected(group: Group, terms: Terms) -> dict[int, int]:
    """The term of each value that a group computes, over values from before it."""
    found: dict[int, int] = {}

    def term(part: Any) -> int:
        if isinstance(part, Ref):
            return found[part.number] if part.number in found else terms["value", part.number]
        if not isinstance(part, tuple):
            return terms["number", float(part).hex()]
        value = part[-1].number if isinstance(part[-1], Value) else 0.0
        return terms[part[0], float(value).hex(), *(term(p) for p in part[1:] if not isinstance(p, Value))]

    for member, expression in group.members:
        found[member.outs[0]] = term(expression)
    return found


def left_by(steps: Sequence[Any], operands: dict[int, int], numbers: dict[int, float], terms: Terms) -> dict[int, int]:
    """The term in each place after the steps; `operands`: place -> value, `numbers`: place -> constant."""
    places = {place: terms["value", n] for place, n in operands.items()}
    places |= {place: terms["number", float(x).hex()] for place, x in numbers.items()}
    for code, to, a, b, c, value in steps:
        read = [places[p] if p in places else terms["nothing", p] for p in (a, b, c) if p >= 0]
        places[to] = terms[FUNCTIONS[code], float(value).hex(), *read]
    return places


def differences(
    group: Group, steps: Sequence[Any], operands: dict[int, int], numbers: dict[int, float], results: dict[int, int]
) -> list[int]:
    """The values that the steps do not leave in their places; `results`: value -> place."""
    terms: Terms = defaultdict(itertools.count().__next__)
    wanted, places = expected(group, terms), left_by(steps, operands, numbers, terms)
    if set(operands) & set(results.values()) or set(numbers) & set(results.values()):
        return sorted(results)
    return sorted(n for n, place in results.items() if places.get(place) != wanted[n])
