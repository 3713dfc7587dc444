"""The checker: is every optimized cotangent the sum of the original ones?

One pass over the original program, one over the optimized one, with a shared table of
value numbers.  A value is a linear combination of value numbers; sums of two terms and
more get a name and are expanded only on demand.  At the whole cotangent of a merged node
the optimizer's claim `optimized = sum of the members' original cotangents` is checked and
then used: an operator that is linear in a slot is distributed over it, which meets the
original's value numbers again.  A claim that fails is dropped; the goals decide.

Trusted: `numbering`, `linear_combinations`, `propagate` and this file, the tables of `linear`
(each line proved by `lemmas`), and the programs' construction (`reading`, `tracer`, `calls`, `shapes`,
`rule_traces`, `user_rules`, `user_rule_variants`, `adjoint`).
Not trusted: leaders, claims, passes, executor, kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autograd_opt.verification.checker.linear_combinations import OutOfBudget
from autograd_opt.verification.checker.numbering import numbering
from autograd_opt.verification.checker.propagate import Simulation
from autograd_opt.verification.program.instructions import Program
from autograd_opt.verification.rewrites.identities import unchanging


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


def structural(original: Program, optimized: Program, leader: Sequence[int]) -> Outcome:
    """What value numbers alone say: which goals are equal bit for bit."""
    pairs = goals(original, optimized)
    if original.same(optimized):
        same = [True] * len(pairs)
        return Outcome(same, list(same), stats=dict.fromkeys(("original", "optimized"), len(original.heads)))
    a, b = numbering((original, optimized))
    bitwise = [x is y is None or (x is not None and y is not None and a[x] == b[y]) for x, y in pairs]
    stats: dict[str, Any] = {"original": len(a), "optimized": len(b), "numbers": len(set(a) | set(b))}
    failed = [] if all(bitwise) else [
        (i, "its value is not that of its leader")
        for i in range(original.forward)
        if leader[i] != i and a[i] != b[leader[i]]
    ]
    return Outcome(list(bitwise), bitwise, failed, stats=stats, numbers=a)


def goals(original: Program, optimized: Program) -> list[tuple[int | None, int | None]]:
    """Positions of what is compared: gradients of leaves, then values of outputs."""
    pairs = list(zip(original.gradients, optimized.gradients, strict=True))
    return [*pairs, *zip(original.values, optimized.values, strict=True)]


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
    outcome = structural(original, optimized, leader)
    if all(outcome.bitwise):
        return outcome
    checker = Simulation(original.vocabulary, expansions, deadline)
    pairs = goals(original, optimized)
    outcome.equal = [False] * len(pairs)
    try:
        first = checker.run(original)
        claims = checker.combined(original, optimized, claimed_sums(original, optimized, leader), first)
        rejected: list[tuple[int, str]] = []
        second = checker.run(optimized, claims, rejected)
        outcome.failed += [(optimized.origin[p], text) for p, text in rejected]
        for k, (x, y) in enumerate(pairs):
            if x is None and y is None:
                outcome.equal[k] = True
            elif x is not None and y is not None:  # one missing gradient is a difference, whatever the other is
                outcome.equal[k] = checker.same(first[x], second[y])
        outcome.stats["claims"] = len(claims)
    except OutOfBudget as error:
        outcome.budget = True
        outcome.stats["budget"] = str(error)
    outcome.stats["expansions"] = checker.spent
    return outcome


def claimed_sums(original: Program, optimized: Program, leader: Sequence[int]) -> dict[int, list[int]]:
    """For every node with a whole cotangent in the optimized sweep: positions of the original ones that it sums.

    A member that is its operand, of the same class, has sent its cotangent on to it, and counts there.  Views are not
    merged, though what reads equal ones may be.  Where that has happened, the cotangent is the sum of what the members
    of all readers have sent.
    """
    members: dict[int, list[int]] = {}
    same = unchanging(original.vocabulary)
    for i in original.cotangents:
        if not (original.heads[i] in same and leader[original.operands[i][0]] == leader[i]):
            members.setdefault(leader[i], []).append(i)
    parts = {node: [original.cotangents[i] for i in members.get(node, ())] for node in optimized.cotangents}
    return parts | sent_elsewhere(original, optimized, leader, members)


def sent_elsewhere(
    original: Program, optimized: Program, leader: Sequence[int], members: dict[int, list[int]]
) -> dict[int, list[int]]:
    """Nodes one of whose readers sends its part to another one now: what all members of the readers sent as written."""
    read = original.operands
    shared = {
        leader[i]
        for r in [r for there in members.values() for r in there]
        if leader[r] != r
        for i in {leader[i] for i in read[r]} ^ {leader[i] for i in read[leader[r]]}
    }
    if not shared:
        return {}
    sent: dict[tuple[int, int], list[int]] = {}
    for r, place, position in original.sent:
        sent.setdefault((r, place), []).append(position)
    out: dict[int, list[int]] = {node: [] for node in shared if node in optimized.cotangents}
    for r, place, _ in optimized.sent:
        node = leader[read[r][place]] if r >= 0 else leader[place]
        if node in out:
            out[node] += [p for i in (members.get(r, ()) if r >= 0 else (r,)) for p in sent.get((i, place), ())]
    return out
