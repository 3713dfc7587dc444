"""Runs that go as written: both programs are one, so what they compute is equal bit for bit.

This follows from leaders, operands, outputs and leaves alone, whatever the gradient rules are.  So none is traced,
but where no cotangent is seen to reach a leaf otherwise.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection

from autograd_opt.verification.checker.numbering import numbering
from autograd_opt.verification.program.instructions import MULTI, Program
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.result.verdict import Reason, Status, Verdict, Verification, undecided
from autograd_opt.verification.strategies.task import BITWISE, SCOPE, Task, trust


def answer(task: Task, how: How) -> Verification | None:
    """The proof that this run goes as written; None where a whole proof has to say."""
    start = time.perf_counter()
    if task.merged or task.alive is not None or not reached(task):
        return None
    other = reused_otherwise(task)
    if other is not None:
        return undecided(Reason.UNDERIVED, f"%{other} has a value of another node, not shown equal")
    goals = tuple([Verdict(goal, Status.PROVED, "bitwise") for goal in task.goals])
    stats = {"nodes": len(task.nodes), "merged": 0, "as written": True, "seconds": time.perf_counter() - start}
    return Verification(Status.PROVED, "bitwise", SCOPE, BITWISE, trust=trust(), stats=stats, goals=goals,
                        **task.digests, engine="structural")


def reused_otherwise(task: Task) -> int | None:
    """The first node whose value was taken from a node that has not its value number, so perhaps not its bits."""
    taken = [(i, task.where.get(id(n.leader), i)) for i, n in enumerate(task.nodes) if n.leader is not None]
    if not taken:
        return None
    recorded = task.recorded
    places = [tuple([o for o in p if o is not None]) for p in recorded.operands]
    (numbers,) = numbering([Program(recorded.vocabulary, recorded.heads, places, array("q"))])
    return next((i for i, to in taken if numbers[i] != numbers[to]), None)


def reached(task: Task) -> bool:
    """Does a cotangent reach a wanted leaf?  Rules for all operands at once, which may leave some out, come last."""
    nodes, grad, operands = task.nodes, task.recorded.grad, task.recorded.operands
    wanted, seen = set(task.leaves), set[int]()
    waiting, together = list(task.roots), list[int]()
    while waiting or together:
        last = not waiting
        i = together.pop() if last else waiting.pop()
        op = nodes[i].op
        if i in wanted:
            return True
        if i in seen:
            continue
        if op.joint is not None and not last:
            together.append(i)
            continue
        seen.add(i)
        given = told(task, i) if last else ()
        waiting += [o for k, o in enumerate(operands[i]) if o is not None and grad[o] and (
            op.name == "output" or k in given or (k < len(op.vjps) and op.vjps[k] is not None))]
    return False


def told(task: Task, i: int) -> Collection[int]:
    """The operands to which the rule for all at once gives a cotangent; none of an operation with several outputs."""
    op, signature = task.nodes[i].op, task.recorded.signature(i)
    if op.flags & MULTI:
        return ()
    made = task.differentiator.traced(op, signature)
    return [k for k, need in enumerate(signature[2]) if need] if made is None else [k for k, _ in made.results]
