"""Rewrites: a node whose value is taken from another computation, each proved on its own.

A rewrite says that a node has the value of its leader, both computed from the nodes of a cut.
Two small programs over the cut, each with its reverse sweep, are compared: equal values, and
equal pullbacks to every node of the cut from any cotangent.  As vector-Jacobian products are
linear, the cotangents of the cut are those of the graph as written then, whatever else reads
what lies between.  A proof is remembered under both programs, whose leaves are numbered in the
order of the cut: so up to renaming.

The cut is searched by opening the youngest node in it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from autograd_opt.graph.node import PINNED
from autograd_opt.ops.table import OPS, USERS
from autograd_opt.verification.checker.additive import additive
from autograd_opt.verification.program.adjoint import Differentiator
from autograd_opt.verification.program.instructions import Program
from autograd_opt.verification.program.reading import Recorded
from autograd_opt.verification.result.budget import Budget
from autograd_opt.verification.strategies.subprocess_limit import Late, results
from autograd_opt.verification.strategies.task import SCOPE, Task

MAX_INNER = 12
"""Nodes between the cut and a rewritten node, at most, where the cut is searched."""
KNOWN_LIMIT = 20_000


@dataclass(frozen=True)
class Answer:
    """Whether two programs are equal; None where sympy did not finish, it being `late`, or was not asked.

    `everywhere`: for all sizes; `conditions`: what was taken for granted, each a line that `assume` may hold.
    """

    equal: bool | None
    message: str = ""
    everywhere: bool = False
    conditions: tuple[str, ...] = ()
    late: bool = False


KNOWN: dict[tuple[str, str], Answer] = {}
"""Answers by the digests of both programs."""


@dataclass(frozen=True)
class Checked:
    """What became of the rewrites: leaders by those that are proved, and why the first other one is not."""

    leader: list[int]
    proved: int
    scope: str = ""
    conditions: tuple[str, ...] = ()
    failed: tuple[int, str] | None = None
    late: str = ""


def check(task: Task, rewritten: Sequence[int], merged: Sequence[int], budget: Budget) -> Checked:
    """Prove that nodes have their leaders' values, one after the other; those before are in force for those after.

    `merged` are the leaders by merges of equal operations, which are in force for all.  A rewrite may change no
    cotangent that is wanted itself.
    """
    deadline = time.monotonic() + budget.sympy_seconds
    recorded, leader = task.recorded, list(merged)
    kept = {k for k in task.leaves if not recorded.nodes[k].is_leaf}
    conditions: set[str] = set()
    everywhere, proved = True, 0
    failed: tuple[int, str] | None = None
    late = ""
    for node in sorted(rewritten):
        target = leader[task.leader[node]]
        if not recorded.pure[node] or not alike(recorded, node, target):
            failed = failed or (node, "it is no pure node, or what replaces it is not of its type")
            continue
        pairs = list(pairs_of(recorded, leader, node, target, kept))
        answer = next((a for a in map(known, pairs) if a is not None and a.equal), None)
        if answer is None and not late:
            answer, late = ask(pairs, deadline - time.monotonic(), budget.sympy_operations)
        if answer is None or not answer.equal:
            why = answer.message if answer is not None else late
            failed = failed or (node, f"its merge is not shown right: {why}")
            continue
        leader[node:] = [target if to == node else to for to in leader[node:]]
        proved += 1
        everywhere &= answer.everywhere
        conditions |= set(answer.conditions)
    scope = SCOPE if everywhere else "these shapes"
    return Checked(leader, proved, scope, tuple(sorted(conditions)), failed, late)


def ask(pairs: Sequence[tuple[Program, Program]], seconds: float, limit: int) -> tuple[Answer | None, str]:
    """The first positive answer about one of the pairs, in a process that is ended in time."""
    from autograd_opt.verification.rewrites import local  # sympy is loaded here, and before its processes start

    found_before = [known(p) for p in pairs]
    equal = next((a for a in found_before if a is not None and a.equal), None)
    if equal is not None:                # found by another thread since the caller has looked
        return equal, ""
    pairs = [p for p, a in zip(pairs, found_before, strict=True) if a is None]
    last: Answer | None = next((a for a in found_before if a is not None), None)
    found = results(lambda pair: local.compare(pair[0], pair[1], limit), pairs, seconds)
    try:
        for pair, answer in zip(pairs, found, strict=True):
            if len(KNOWN) >= KNOWN_LIMIT:
                KNOWN.clear()
            last = answer
            if not any(map(of_users, pair)):
                KNOWN[key_of(pair)] = answer
            if answer.equal:
                break
    except Late as error:
        return last, str(error)
    finally:
        found.close()  # type: ignore[attr-defined]
    return last, ""


def known(pair: tuple[Program, Program]) -> Answer | None:
    """The answer about this pair that was found before; what a user's operator means may be another thing now."""
    return None if any(map(of_users, pair)) else KNOWN.get(key_of(pair))


def of_users(program: Program) -> bool:
    """True if an operator of the user's has a part in the program."""
    heads = program.vocabulary.heads
    return any(heads[h].op in OPS and OPS[heads[h].op] in USERS for h in set(program.heads))


def key_of(pair: tuple[Program, Program]) -> tuple[str, str]:
    return pair[0].digest(), pair[1].digest()


def alike(recorded: Recorded, a: int, b: int) -> bool:
    """One type, and one answer to whether gradients are wanted."""
    heads = recorded.vocabulary.heads
    return heads[recorded.heads[a]].type == heads[recorded.heads[b]].type and recorded.grad[a] == recorded.grad[b]


def pairs_of(
    recorded: Recorded, leader: Sequence[int], node: int, target: int, kept: Collection[int]
) -> Iterator[tuple[Program, Program]]:
    """Both computations over ever lower cuts."""
    cut = {leader[o] for o in operands(recorded, node)}
    cut |= {target} if reaches(recorded, leader, node, target) else {leader[o] for o in operands(recorded, target)}
    for _ in range(MAX_INNER):
        found = over(recorded, leader, node, target, cut, kept)
        if found is not None:
            yield found
        open_ones = [c for c in cut if recorded.pure[c] and recorded.operands[c] and c != target]
        if not open_ones:
            return
        youngest = max(open_ones)
        cut = (cut - {youngest}) | {leader[o] for o in operands(recorded, youngest)}


def reaches(recorded: Recorded, leader: Sequence[int], node: int, target: int) -> bool:
    """Does `node` read `target`, within so many steps that a cut could be between them?"""
    seen: set[int] = set()
    stack = [node]
    while stack and len(seen) <= 4 * MAX_INNER:
        k = stack.pop()
        if k == target:
            return True
        if k not in seen and k > target:
            seen.add(k)
            stack += [leader[o] for o in operands(recorded, k)]
    return False


def operands(recorded: Recorded, k: int) -> list[int]:
    return [o for o in recorded.operands[k] if o is not None]


def over(
    recorded: Recorded, leader: Sequence[int], node: int, target: int, cut: set[int], kept: Collection[int]
) -> tuple[Program, Program] | None:
    """Programs of `node` and of `target` over the cut, or None where something else is read or must stay as it is."""
    left, right = between(recorded, leader, node, cut), between(recorded, leader, target, cut)
    if left is None or right is None or node in cut or any(untouchable(recorded, k, kept) for k in (*left, *right)):
        return None
    if not all(sums(recorded, leader, k) for k in {*left, *right} if recorded.nodes[k].op in USERS):
        return None
    places = sorted(cut)
    return program(recorded, leader, places, left, node), program(recorded, leader, places, right, target)


def untouchable(recorded: Recorded, k: int, kept: Collection[int]) -> bool:
    """Is the node's own cotangent seen by someone?"""
    node = recorded.nodes[k]
    return node.hooks is not None or bool(node.flags & PINNED) or k in kept


def sums(recorded: Recorded, leader: Sequence[int], k: int) -> bool:
    """Is the rule of an operator of the user's additive?  What lies between gets another part of its cotangent then."""
    signature = recorded.signature(k, leader)
    made = Differentiator(recorded).template(recorded.nodes[k].op, *signature)
    return made is not None and additive(made, recorded.vocabulary, signature, set())


def between(recorded: Recorded, leader: Sequence[int], node: int, cut: set[int]) -> list[int] | None:
    """The nodes that compute `node` from the cut, in order; None where the cut does not suffice."""
    inner: set[int] = set()
    stack = [node]
    while stack:
        k = stack.pop()
        if k in cut or k in inner:
            continue
        if not recorded.pure[k] or not recorded.operands[k] or len(inner) > 4 * MAX_INNER:
            return None
        inner.add(k)
        stack += [leader[o] for o in operands(recorded, k)]
    return sorted(inner)


def program(recorded: Recorded, leader: Sequence[int], cut: list[int], inner: list[int], root: int) -> Program:
    """Value and pullbacks of `root`, the nodes of the cut being leaves."""
    vocabulary = recorded.vocabulary
    place = {n: k for k, n in enumerate([*cut, *inner])}
    leaf = SimpleNamespace(op=OPS["leaf"], hooks=None, is_leaf=True)
    heads = [
        vocabulary.head("leaf", (), vocabulary.heads[recorded.heads[c]].type, bool(recorded.grad[c]), k + 1)
        for k, c in enumerate(cut)
    ]
    small = Recorded(
        vocabulary,
        [leaf] * len(cut) + [SimpleNamespace(op=recorded.nodes[n].op, hooks=None, is_leaf=False) for n in inner],
        heads + [recorded.heads[n] for n in inner],
        [()] * len(cut)
        + [tuple([None if o is None else place[leader[o]] for o in recorded.operands[n]]) for n in inner],
        bytearray([1] * len(place)),
        bytearray([recorded.grad[n] for n in [*cut, *inner]]),
    )
    roots = [place[root]]
    leaves = [k for k, c in enumerate(cut) if recorded.grad[c] and recorded.grad[root]]
    return Differentiator(small).program(range(len(place)), roots, leaves)
