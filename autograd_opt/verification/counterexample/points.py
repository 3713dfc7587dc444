"""Counterexamples: a rational point, and rigorous bounds that show two values to differ.

Scalars are exact rationals as long as the operations are rational, and Arb's balls
from the first transcendental function on.  A refutation needs two disjoint intervals (or
two different rationals); overlapping ones prove nothing.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import flint
import numpy as np
from flint import fmpq

from autograd_opt.abi import torch_private as private
from autograd_opt.verification.counterexample.intervals import PRECISION, Rational, apart, bounds
from autograd_opt.verification.counterexample.prime_field import integers
from autograd_opt.verification.program.instructions import DRAWS, FOREIGN, Head
from autograd_opt.verification.result.budget import Budget
from autograd_opt.verification.result.verdict import Counterexample
from autograd_opt.verification.semantics.domain import Outside, TooLarge
from autograd_opt.verification.semantics.evaluate import side_by_side
from autograd_opt.verification.strategies.task import Goal, Task

POOLS: tuple[tuple[fmpq, ...], ...] = (
    tuple(map(fmpq, (0, 1, -1, 2))),
    tuple(fmpq(k, 2) for k in (1, 2, 3, 5)),
    tuple(fmpq(k, 2) for k in (-3, -2, -1, 1, 2, 3, 4)),
    tuple(fmpq(k, 7) for k in range(-15, 16)),
    (fmpq(0),),
    (fmpq(1),),
)

TRIES, SHRINK = 24, 12
"""Points, and tensors of a counterexample that are tried as constants."""


def refute(task: Task, goals: Sequence[Goal], limits: Budget, seed: int) -> Counterexample | str:
    """Look for a point where a goal has two values; a readable one where that is possible.

    Returns
    -------
    Counterexample, or a line that says why there is none.
    """
    deadline = time.monotonic() + limits.seconds
    last = "no difference was found"
    frozen = holds_frozen(task)
    total = limits.elements
    with_precision = flint.ctx.prec
    flint.ctx.prec = PRECISION
    try:
        for attempt in range(TRIES):
            pool = () if frozen and not attempt else POOLS[attempt % len(POOLS)]
            point: dict[str, Any] = {}
            D = Rational(total, deadline)
            for some in (goals, *([g] for g in goals if len(goals) > 1)):
                try:
                    found = evaluate_at(D, task, some, pool, seed * 1000 + attempt, point)
                except Outside as error:
                    last = str(error)
                    continue
                if found is not None and frozen and attempt:
                    return f"{found[0]} differs elsewhere, with masks as recorded, which may be computed"
                if found is not None:
                    if not frozen:
                        only = [g for g in goals if g[0] == found[0]]
                        found, point = shrunk(D, task, only, pool, seed * 1000 + attempt, found, point)
                    goal, element, a, b = found
                    kind = "effect" if any(k.startswith(("draw", "memory")) for k in point) else "value"
                    return Counterexample(kind, goal, element, point, bounds(a), bounds(b))
                if some is goals:
                    break
            total -= D.spent
        return last
    except TooLarge as error:
        return f"{last} ({error})"
    finally:
        flint.ctx.prec = with_precision


def holds_frozen(task: Task) -> bool:
    """True if a mask is a leaf whose run is at hand: it may be computed of other leaves' values in that run."""
    leaves = [h for h in task.used() if h.op == "leaf"]
    return all(task.nodes[h.effect - 1].tensor is not None for h in leaves) and any(
        task.vocabulary.types[h.type].dtype == "bool" for h in leaves)


def recorded(head: Head, nodes: Any, shape: tuple[int, ...]) -> Any:
    """The values of a leaf in the run, exactly.

    Raises
    ------
    Outside : one is not finite.
    """
    tensor = nodes[head.effect - 1].tensor
    with private.DisableTorchFunction():
        values = tensor.detach().cpu().double().reshape(-1).tolist()
    out = np.empty(shape, dtype=object)
    try:
        out.reshape(-1)[:] = [fmpq(*v.as_integer_ratio()) for v in values]
    except (ValueError, OverflowError):
        raise Outside("a value that is not finite") from None
    return out


def shrunk(D: Rational, task: Task, goals: Sequence[Goal], pool: Sequence[fmpq], key: int, found: Any,
           point: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The same difference where as many tensors as possible are one number all over: 0, else 1."""
    fixed: dict[str, fmpq] = {}
    budget = D.budget - D.spent
    large = [name for name, value in point.items() if isinstance(value, list) and not name.startswith("seed")]
    for name in large[:SHRINK]:
        for number in (fmpq(0), fmpq(1)):
            smaller: dict[str, Any] = {}
            D = Rational(budget, D.deadline)
            try:
                other = evaluate_at(D, task, goals, pool, key, smaller, {**fixed, name: number})
            except (Outside, TooLarge):
                other = None
            budget -= D.spent
            if other is not None:
                fixed[name] = number
                found, point = other, smaller
                break
    return found, point


def evaluate_at(D: Rational, task: Task, goals: Sequence[Goal], pool: Sequence[fmpq], key: int, point: dict[str, Any],
                fixed: Mapping[str, fmpq] = MappingProxyType({})) -> Any:
    """The first element that differs at one random point, or None; `fixed` names what is one number all over."""
    made: dict[Any, Any] = {}

    def free(position: int, head: Head, shape: tuple[int, ...]) -> Any:
        if (head.op, head.effect) in made:
            return made[head.op, head.effect]
        if head.op not in ("leaf", "seed") and head.op not in DRAWS | FOREIGN:
            raise Outside(f"{head.op} has no meaning")
        given = integers(head, task)
        if given is None:
            word = hashlib.sha256(f"{key}|{head.op}|{head.effect}".encode()).digest()
            rng = random.Random(word)
            given = np.empty(shape, dtype=object)
            one = head.op == "seed" and given.size == 1
            if not pool and head.op == "leaf":
                given = recorded(head, task.nodes, shape)
            else:
                given.reshape(-1)[:] = [fmpq(1) if one else rng.choice(pool or POOLS[2]) for _ in range(given.size)]
            kind = {"leaf": "%", "seed": "seed "}.get(head.op, "draw %" if head.op in DRAWS else "memory written %")
            name = f"{kind}{head.effect - 1}"
            if name in fixed:
                given.fill(fixed[name])
            point[name] = nested(given)
        made[head.op, head.effect] = given
        return given

    for goal, *values in side_by_side(D, task.original, task.optimized, goals, free):
        left, right = (v.astype(object) for v in values)
        if left.shape != right.shape:
            continue
        for element in np.ndindex(left.shape):
            if apart(left[element], right[element]):
                return goal, element, left[element], right[element]
    return None


def nested(values: Any) -> Any:
    return (
        [nested(v) for v in values]
        if isinstance(values, np.ndarray) and values.ndim
        else str(values.item() if isinstance(values, np.ndarray) else values)
    )
