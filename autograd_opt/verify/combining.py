"""Rewrites by numbers, such as x 1 = x or -(-x) = x: shown for all sizes without sympy.

Both programs are followed as the checker does, with sums and multiples of values as linear combinations; goals must be
the same combinations of the same value numbers.  Nothing is distributed, so no table of linear operators is used, and
both must compute the same other values: what only one of them computes may be undefined.
"""

from __future__ import annotations

from typing import Any

from autograd_opt.verify.ir import Program, same_goals
from autograd_opt.verify.simulation import PLUS, SCALE, Simulation
from autograd_opt.verify.stored import Answer
from autograd_opt.verify.words import MERGED


class Distributed(Exception):
    """An operator stands over a sum or a multiple."""


class Combining(Simulation):
    """The checker's pass, with sums and multiples alone."""

    def distribute(self, *asked: Any) -> Any:
        raise Distributed

    def apart(self, *asked: Any) -> Any:
        raise Distributed


def compare(left: Program, right: Program) -> Answer | None:
    """That two programs over the same leaves have the same values and pullbacks; None where it is not shown."""
    if left.vocabulary is not right.vocabulary:
        return None
    both = Combining(left.vocabulary)
    try:
        a, b = both.run(left), both.run(right)
    except Distributed:
        return None
    if computed(both, left, a) != computed(both, right, b):
        return None
    return Answer(True, "", True, ()) if same_goals(left, right, a, b) else None


def computed(both: Combining, program: Program, states: list[Any]) -> set[Any]:
    """What it computes beside sums and multiples."""
    heads = both.vocabulary.heads
    out = set()
    for k, refs in enumerate(program.operands):
        types = tuple([heads[program.heads[r]].type for r in refs])
        if refs and heads[program.heads[k]].op != MERGED and both.kind(program.heads[k], types)[0] not in (PLUS, SCALE):
            out.add(states[k] if type(states[k]) is int else -1 - k)
    return out
