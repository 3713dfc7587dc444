"""Merges of equal operations, proved by the theorem of docs/verification.md: its premises are checked, without sweeps.

Let ~ say that two nodes have equal value numbers: the same operation on operands that are ~, bit for bit.  Every node
is merged into one that is ~ it.  Then the cotangents of a class have the same sum before and after.  By induction from
the outputs: what a class receives is what the classes that read it send; the nodes of such a class have one rule,
which reads equal values, so where the rule is additive in the cotangent, what they send together is what the rule
makes of their sum, however that is divided among them.  Where a class is one node, its cotangent is that sum, and it
does not matter what the rule does: it is not traced.  A wanted leaf is alone in its class.

A node that is its operand (a view of the same shape, a copy) is ~ it, and sends its cotangent on as it is, so what
its class receives is counted at the others: it is one of these alone that a rule makes something of.

Premises: leaders are ~, and nothing lives afterwards that did not before; where several nodes of a class get a
cotangent, none is seen by a hook (such a node may stand apart, alone in a class of its own), and their rule is traced
and found additive by the tables of `linear`; operands of `a + b` and `b + a` also get the same from it; of a node that
is its operand, the rule is traced and found to change nothing.  Whatever does not fit is left to a whole proof.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from autograd_opt.graph.node import PINNED
from autograd_opt.verification.cache.memory_cache import Key
from autograd_opt.verification.checker.additive import additive, symmetric
from autograd_opt.verification.checker.numbering import bit_for_bit
from autograd_opt.verification.checker.unchanged import Digest
from autograd_opt.verification.program.instructions import MULTI, Head
from autograd_opt.verification.program.linear import LINEAR
from autograd_opt.verification.program.reading import Recorded, Signature
from autograd_opt.verification.program.rule_traces import Template
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.result.verdict import Status, Verdict, Verification
from autograd_opt.verification.rewrites.identities import OF_ONE, may_be_operand, unchanging
from autograd_opt.verification.strategies.task import SCOPE, Task, conditions, trust


def answer(key: Key | None, task: Task, how: How) -> Verification | None:
    """The proof that this optimization keeps all values and gradients; None where a whole proof has to say."""
    start = time.perf_counter()
    if key is None or "linear" not in how.engines or not task.roots or not task.leaves or task.effects() is not None:
        return None
    identity = list(range(len(task.nodes)))
    watched = {i for i, node in enumerate(task.nodes) if node.hooks is not None or node.flags & PINNED}
    for apart in ((), watched) if watched else ((),):        # the coarser one first: it merges what reads them
        numbers = numbered(task.recorded, identity, apart)
        found = preserved(task, numbers, identity, task.leader)
        if found is not None:
            break
    if found is None or not found.arrives:
        return None
    exact = ["real" if numbers[i] in found.moved else "bitwise" for i in task.leaves] + ["bitwise"] * len(task.roots)
    bits = "real" not in exact
    if how.exact == "bitwise" and not bits:
        return None
    stats = {"nodes": len(task.nodes), "merged": len(task.merged)}
    original, optimized = digests(key, task)
    return Verification(
        Status.PROVED, "bitwise" if bits else "real", SCOPE,
        conditions(found.used, bits, task.differentiator.read_rules),
        trust=trust(() if bits else (h.op for h in found.used if h.op in LINEAR)),
        stats={**stats, "seconds": time.perf_counter() - start},
        goals=tuple([Verdict(goal, Status.PROVED, e) for goal, e in zip(task.goals, exact, strict=True)]),
        original=original, optimized=optimized, engine="congruence")


def digests(key: Key, task: Task) -> tuple[Any, Any]:
    """The hashes of both programs, made when they are read: nothing of the run is held for that."""
    seen = [(n.op, None if n.hooks is None else True) for n in task.nodes]
    rest = replace(task.recorded, nodes=())

    def read() -> Recorded:
        return replace(rest, nodes=[SimpleNamespace(op=op, hooks=hooks) for op, hooks in seen])

    leaders = range(len(seen)), task.leader
    return tuple([Digest(read, leader, task.roots, task.leaves, key) for leader in leaders])  # type: ignore[return-value]


def numbered(recorded: Recorded, leader: Sequence[int], apart: Collection[int] = ()) -> list[int]:
    """Value numbers of the graph in which each node is read off its leader; operands have smaller ones.

    The nodes `apart` are alone in their classes, which is a congruence, too.
    """
    table: dict[Any, int] = {}
    out: list[int] = []
    commutes, same = bit_for_bit(recorded.vocabulary), unchanging(recorded.vocabulary)
    for i, (head, places) in enumerate(zip(recorded.heads, recorded.operands, strict=True)):
        if leader[i] != i:
            out.append(out[leader[i]])
            continue
        if head in same and (one := operand_of(recorded, i)) is not None:
            out.append(out[one])
            continue
        if i in apart:
            key: Any = i
        elif len(places) == 2 and head in commutes and None not in places:
            a, b = sorted([out[o] for o in places if o is not None])
            key = (head, a, b)
        else:
            key = (head, *[None if o is None else out[o] for o in places])
        out.append(table.setdefault(key, len(table)))
    return out


def operand_of(recorded: Recorded, i: int) -> int | None:
    """The one operand of a node, where it has the node's type, and wants a gradient where the node does."""
    heads, places = recorded.vocabulary.heads, [o for o in recorded.operands[i] if o is not None]
    one = places[0] if len(places) == 1 else i
    alike = heads[recorded.heads[i]].type == heads[recorded.heads[one]].type
    return one if one != i and alike and recorded.grad[i] == recorded.grad[one] else None


def passing(task: Task, numbers: list[int], before: Sequence[int], after: Sequence[int]
            ) -> tuple[bytearray, set[int]] | None:
    """1 at the nodes that are their operands, and classes whose cotangents one of them passes on over the reals alone.

    None where one in a class that changes is seen, or makes something else of its cotangent.
    """
    recorded = task.recorded
    same, heads = unchanging(task.vocabulary), task.vocabulary.heads
    out = bytearray(len(numbers))
    for i, head in enumerate(recorded.heads):
        out[i] = head in same and before[i] == i and operand_of(recorded, i) is not None
    changed = {numbers[i] for i in range(len(numbers)) if before[i] != after[i]} if any(out) else ()
    rounded = set()
    for i in [i for i, there in enumerate(out) if there and numbers[i] in changed]:
        node = task.nodes[i]
        kind = heads[recorded.heads[i]].type
        signature = recorded.signature(i)
        needs = signature[2]
        made = task.differentiator.template(node.op, *signature) if True in needs else Template((), ())
        if node.hooks is not None or node.flags & PINNED or made is None or (True in needs and not made.results):
            return None
        steps = [heads[h] for h, _ in made.steps]
        if not all(h.type == kind and (h.op in OF_ONE or may_be_operand(task.vocabulary, h)) for h in steps):
            return None
        if any(h.op in OF_ONE for h in steps):
            rounded.add(numbers[i])
    return out, rounded


@dataclass
class Preserved:
    """That the sums of cotangents are the same: what was linear for it, and the classes whose sums may round otherwise.

    `arrives`: a cotangent surely reaches a wanted leaf.
    """

    used: set[Head]
    moved: set[int]
    arrives: bool


def preserved(task: Task, numbers: list[int], before: Sequence[int], after: Sequence[int]) -> Preserved | None:
    """Does following the leaders `after` instead of `before`, of which these are the value numbers, keep the sums?"""
    n = len(numbers)
    for i in range(n):
        to = after[i]
        if numbers[to] != numbers[i] or after[to] != to or (before[i] != i and to == i):
            return None
    passed = passing(task, numbers, before, after)
    if passed is None:
        return None
    through, rounded = passed
    size = [0] * n
    for i in range(n):
        size[numbers[i]] += before[i] == i and not through[i]
    if any(size[numbers[i]] != 1 or before[i] != i or through[i] for i in task.leaves):
        return None
    gathered = {numbers[i] for i in range(n) if through[i] and after[i] != i} & entered_twice(task, numbers, through)
    arrives, moved, several = sweep(task, numbers, before, size, gathered | rounded)
    used: set[Head] = set()
    kept = not several or linear(task, numbers, before, several, used, through)
    return Preserved(used, moved, arrives) if kept else None


def entered_twice(task: Task, numbers: list[int], through: bytearray) -> set[int]:
    """Classes of which two nodes get cotangents of others, of more than two in all: where they are one, these are added
    in another order.
    """
    recorded = task.recorded
    entries: dict[int, list[int]] = {}
    for i, places in enumerate(recorded.operands):
        for o in () if through[i] or not recorded.grad[i] else places:
            if o is not None and recorded.grad[o]:
                entries.setdefault(numbers[o], []).append(o)
    for r in task.roots:
        entries.setdefault(numbers[r], []).append(r)
    return {number for number, there in entries.items() if len(there) > 2 and len(set(there)) > 1}


def linear(
    task: Task, numbers: list[int], before: Sequence[int], several: set[int], used: set[Head], through: bytearray
) -> bool:
    """Is every rule additive, and one function, in each of these classes?  Adds what that was read off to `used`."""
    recorded, nodes = task.recorded, task.nodes
    operands = recorded.operands
    rules: dict[Signature, Any] = {}
    commuted: list[tuple[Any, Signature, Signature]] = []
    first: dict[int, tuple[tuple[int | None, ...], Signature]] = {}
    for i, number in enumerate(numbers):
        if number not in several or before[i] != i:
            continue
        node = nodes[i]
        op = node.op
        if through[i] and node.hooks is None and not node.flags & PINNED:
            continue
        if node.hooks is not None or node.flags & PINNED or op.flags & MULTI:
            return False
        reads = tuple([None if o is None else numbers[o] for o in operands[i]])
        known = first.get(number)
        if known is not None and known[0] == reads:
            continue                         # of the same types: equal numbers have equal heads
        signature = recorded.signature(i, before)
        rules[signature] = op
        if known is None:
            first[number] = reads, signature
        elif known[0] == reads[::-1]:
            commuted.append((op, known[1], signature))
        else:
            return False
    return all_additive(task, rules, used) and all(same(task, *pair) for pair in commuted)


def all_additive(task: Task, rules: dict[Signature, Any], used: set[Head]) -> bool:
    """Are the rules of all these operators additive?"""
    for signature, op in rules.items():
        made = task.differentiator.template(op, *signature)
        if made is None or not additive(made, task.vocabulary, signature, used):
            return False
    return True


def same(task: Task, op: Any, one: Signature, other: Signature) -> bool:
    """Does the rule give both operands the same, whichever comes first?"""
    a, b = (task.differentiator.template(op, *signature) for signature in (one, other))
    return a is not None and b is not None and symmetric(a, b, task.vocabulary)


def sweep(task: Task, numbers: list[int], before: Sequence[int], size: list[int], gathered: set[int]
          ) -> tuple[bool, set[int], set[int]]:
    """Does a cotangent surely reach a wanted leaf; in which classes may sums be made otherwise; and which classes of
    several nodes may get cotangents and send some on.
    """
    recorded, nodes = task.recorded, task.nodes
    grad, operands = recorded.grad, recorded.operands
    reached, sure = bytearray(len(numbers)), bytearray(len(numbers))
    moved: set[int] = set()
    several: set[int] = set()
    for r in task.roots:
        reached[before[r]] = sure[before[r]] = 1
    for i in range(len(numbers) - 1, -1, -1):
        if not reached[i]:
            continue
        number, op = numbers[i], nodes[i].op
        if size[number] > 1 or number in gathered:
            moved.add(number)
        vjps, joint, passes = op.vjps, op.joint is not None, op.name == "output"
        sends = False
        for k, o in enumerate(operands[i]):
            if o is None or not grad[before[o]]:
                continue
            rule = passes or (k < len(vjps) and vjps[k] is not None)
            if rule or joint:
                sends = True
                to = before[o]
                reached[to] = 1
                sure[to] |= sure[i] and rule and not joint
                if number in moved:
                    moved.add(numbers[to])
        if sends and size[number] > 1:
            several.add(number)
    return any(sure[i] for i in task.leaves), moved, several
