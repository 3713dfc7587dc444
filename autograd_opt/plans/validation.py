"""Translation validation of a stretch: what its steps leave in each result is what the program says of that value.

Steps are followed with terms in the places of numbers: a place holds a function and the terms of its operands.
Places are used again and again, and this finds out whether one was taken too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograd_opt.plans import blocks
from autograd_opt.plans.emission import Value
from autograd_opt.plans.fusing import Group
from autograd_opt.plans.program import Ref

Term = tuple[Any, ...]
FUNCTIONS = {code: name for name, code in blocks.NAMES.items()}


def expected(group: Group) -> dict[int, Term]:
    """The term of each value that a group computes, over values from before it."""
    found: dict[int, Term] = {}

    def term(part: Any) -> Term:
        if isinstance(part, Ref):
            return found.get(part.number, ("value", part.number))
        if not isinstance(part, tuple):
            return ("number", float(part).hex())
        value = part[-1].number if isinstance(part[-1], Value) else 0.0
        return (part[0], float(value).hex(), *(term(p) for p in part[1:] if not isinstance(p, Value)))

    for member, expression in group.members:
        found[member.outs[0]] = term(expression)
    return found


def left_by(steps: Sequence[Any], operands: dict[int, int], numbers: dict[int, float]) -> dict[int, Term]:
    """The term in each place after the steps; `operands`: place -> value, `numbers`: place -> constant."""
    places: dict[int, Term] = {place: ("value", n) for place, n in operands.items()}
    places |= {place: ("number", float(x).hex()) for place, x in numbers.items()}
    for code, to, a, b, c, value in steps:
        places[to] = (
            FUNCTIONS[code],
            float(value).hex(),
            *(places.get(p, ("nothing", p)) for p in (a, b, c) if p >= 0),
        )
    return places


def differences(
    group: Group, steps: Sequence[Any], operands: dict[int, int], numbers: dict[int, float], results: dict[int, int]
) -> list[int]:
    """The values that the steps do not leave in their places; `results`: value -> place."""
    wanted, places = expected(group), left_by(steps, operands, numbers)
    if set(operands) & set(results.values()) or set(numbers) & set(results.values()):
        return sorted(results)
    return sorted(n for n, place in results.items() if not same(places.get(place), wanted[n]))


def same(found: Any, wanted: Any) -> bool:
    """True if two terms are equal; each pair of shared parts is compared once."""
    known: set[tuple[int, int]] = set()
    waiting = [(found, wanted)]
    while waiting:
        one, other = waiting.pop()
        if one is other or (id(one), id(other)) in known:
            continue
        known.add((id(one), id(other)))
        if not (isinstance(one, tuple) and isinstance(other, tuple)):
            if one != other:
                return False
        elif len(one) != len(other):
            return False
        else:
            waiting += zip(one, other, strict=True)
    return True
