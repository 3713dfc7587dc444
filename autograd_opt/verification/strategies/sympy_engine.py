"""sympy end to end: whole gradients of small graphs, elementwise, in a process that is ended when it takes too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy

from autograd_opt.verification.program.instruction_names import HOOK
from autograd_opt.verification.program.instructions import Head, Program
from autograd_opt.verification.result.budget import Budget
from autograd_opt.verification.rewrites.conditions import RISKY, harmless, undischarged
from autograd_opt.verification.rewrites.rewrites import Answer
from autograd_opt.verification.semantics.casework import by_cases
from autograd_opt.verification.semantics.domain import Outside, TooLarge
from autograd_opt.verification.semantics.evaluate import needed_for, side_by_side
from autograd_opt.verification.semantics.symbols import Symbols, fresh, is_zero
from autograd_opt.verification.strategies.subprocess_limit import Late, results
from autograd_opt.verification.strategies.task import Goal, Task


def free_symbols(names: Mapping[int, str] | None = None) -> Any:
    """Leaves and seeds as arrays of symbols, the same for both programs."""
    made: dict[Any, Any] = {}

    def free(position: int, head: Head, shape: tuple[int, ...]) -> Any:
        key = head.op, head.effect
        if key not in made:
            if head.op == "seed":
                made[key] = fresh(f"g{head.effect - 1}_", shape) if shape else np.array(sympy.Integer(1), dtype=object)
            elif head.op == "leaf":
                name = (names or {}).get(head.effect - 1, f"x{head.effect - 1}")
                made[key] = fresh(name + ("_" if shape and np.prod(shape) > 1 else ""), shape)
            else:
                raise Outside(f"{head.op} has no meaning" if head.op != HOOK else
                              "a hook or retain_grad sees a cotangent on the way, and may change it")
        return made[key]

    return free


def differ(original: Program, optimized: Program, goals: Sequence[Goal], limit: int) -> str:
    """The first goal that sympy does not show equal, or an empty string.

    Raises
    ------
    Outside, TooLarge : sympy is not asked.
    """

    for program, side in ((original, 1), (optimized, 2)):
        wanted = [goal[side] for goal in goals if goal[side] is not None]
        for k, there in enumerate(needed_for(program, wanted)):  # type: ignore[arg-type]
            if there and math.prod(program.type_of(k).shape or ()) > limit:
                raise TooLarge(f"more than {limit} scalar operations")

    def run(D: Symbols) -> str:
        D.budget, D.named = limit, False
        for name, left, right in side_by_side(D, original, optimized, goals, free_symbols()):
            for p, q in zip(left.reshape(-1), right.reshape(-1), strict=True):
                if not is_zero(D.settled(p - q)):
                    return name
        return ""

    notes: set[str] = set()
    wrong = by_cases(run, notes)
    return wrong or (f"the case {', '.join(notes)} = 0 is open" if notes else "")


def denominators(program: Program, wanted: Sequence[int]) -> set[str]:
    """What sympy's cancelling takes to be defined, finite and nonzero: the partial operators met along the way."""
    ops = set()
    for k, there in enumerate(needed_for(program, wanted)):
        head = program.vocabulary.heads[program.heads[k]]
        if there and head.op in RISKY and not harmless(head):
            ops.add(head.op)
    return ops


def compare(task: Task, goals: Sequence[Goal], budget: Budget) -> Answer:
    """Ask sympy, within these limits, whether all goals are equal."""
    original, optimized = task.original, task.optimized
    try:
        equal, message = next(results(
            partial(answer, original, optimized, goals), [budget.sympy_operations], budget.sympy_seconds))
    except Late as error:
        return Answer(None, str(error), late=True)
    risky = denominators(original, [x for _, x, _ in goals if x is not None])
    risky |= denominators(optimized, [y for _, _, y in goals if y is not None])
    divisors = (f"defined and nonzero: divisors and arguments of {', '.join(sorted(risky))}",) if risky else ()
    conditions = (*divisors, *undischarged(original, optimized, partial=False))
    return Answer(equal, message, conditions=conditions if equal else ())


def answer(original: Program, optimized: Program, goals: Any, limit: int) -> tuple[bool | None, str]:
    """Equal or not, or None where sympy is not asked; and why."""
    try:
        wrong = differ(original, optimized, goals, limit)
    except (Outside, TooLarge) as error:
        return None, f"not asked: {error}"
    return not wrong, f"not shown equal: {wrong}" if wrong else "all elements equal"
