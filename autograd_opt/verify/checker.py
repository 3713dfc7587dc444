"""The checker: is every optimized cotangent the sum of the original ones?

One pass over the original program, one over the optimized one, with a shared table of
value numbers.  A value is a linear combination of value numbers; sums of two terms and
more get a name and are expanded only on demand.  At the whole cotangent of a merged node
the optimizer's claim `optimized = sum of the members' original cotangents` is checked and
then used: an operator that is linear in a slot is distributed over it, which meets the
original's value numbers again.  A claim that fails is dropped; the goals decide.

Trusted: `numbering`, `sums`, `simulation` and this file, the tables of `linear` (each line
proved by `lemmas`), and the programs' construction (`reading`, `tracer`, `rules`, `sweep`).
Not trusted: leaders, claims, passes, executor, kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autograd_opt.verify.ir import Program
from autograd_opt.verify.numbering import numbering
from autograd_opt.verify.simulation import Simulation
from autograd_opt.verify.sums import Combo, OutOfBudget


@dataclass
class Outcome:
    """What a check found; `equal[k]` and `bitwise[k]` belong to goal k.

    `numbers` are the structural value numbers of the original's instructions.
    """

    equal: list[bool]
    bitwise: list[bool]
    failed: list[tuple[int, str]] = field(default_factory=list)
    budget: bool = False
    stats: dict[str, Any] = field(default_factory=dict)
    numbers: Sequence[int] = ()


def check(
    original: Program,
    optimized: Program,
    leader: Sequence[int],
    *,
    expansions: int = 1_000_000,
    deadline: float | None = None,
) -> Outcome:
    """Compare all goals of two programs: gradients of leaves, then values of outputs.

    Returns
    -------
    Outcome : per goal whether it is equal over the reals and bit for bit; where a claim or
        a merge failed (record number of the node, what was expected), earliest first.
    """
    vocabulary = original.vocabulary
    a, b = numbering((original, optimized))
    pairs = list(zip(original.gradients, optimized.gradients, strict=True))
    pairs += list(zip(original.values, optimized.values, strict=True))
    bitwise = [x is y is None or (x is not None and y is not None and a[x] == b[y]) for x, y in pairs]
    stats: dict[str, Any] = {"original": len(a), "optimized": len(b), "numbers": len(set(a) | set(b))}
    if all(bitwise):
        return Outcome(list(bitwise), bitwise, stats=stats, numbers=a)
    failed = [
        (i, "its value is not that of its leader")
        for i in range(original.forward)
        if leader[i] != i and a[i] != b[leader[i]]
    ]
    checker = Simulation(vocabulary, expansions, deadline)
    outcome = Outcome([False] * len(pairs), bitwise, failed, stats=stats, numbers=a)
    try:
        first = checker.run(original)
        claims = claims_of(original, optimized, leader, first, checker)
        rejected: list[tuple[int, str]] = []
        second = checker.run(optimized, claims, rejected)
        outcome.failed += [(optimized.origin[p], text) for p, text in rejected]
        for k, (x, y) in enumerate(pairs):
            if x is None and y is None:
                outcome.equal[k] = True
            elif x is not None and y is not None:  # one missing gradient is a difference, whatever the other is
                outcome.equal[k] = checker.same(first[x], second[y])
        stats["claims"] = len(claims)
    except OutOfBudget as error:
        outcome.budget = True
        stats["budget"] = str(error)
    stats["expansions"] = checker.spent
    return outcome


def claims_of(
    original: Program, optimized: Program, leader: Sequence[int], states: list[Any], checker: Simulation
) -> dict[int, Combo]:
    """For every whole cotangent of the optimized sweep: the sum of the members' original ones."""
    members: dict[int, list[int]] = {}
    for i in original.cotangents:
        members.setdefault(leader[i], []).append(i)
    types = [h.type for h in checker.vocabulary.heads]
    claims: dict[int, Combo] = {}
    for node, position in optimized.cotangents.items():
        combo: Combo = {}
        for i in members.get(node, ()):
            where = original.cotangents[i]
            state = states[where]
            if type(state) is dict and len(state) > 1:
                state = checker.name(state, types[original.heads[where]])
            for vn, k in ((state, 1),) if type(state) is int else state.items():
                total = combo.get(vn, 0) + k
                if total:
                    combo[vn] = total
                else:
                    del combo[vn]
        if combo:
            claims[position] = combo
    return claims
