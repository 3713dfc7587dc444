"""Runs that go as written: both programs are one, so what they compute is equal bit for bit.

This follows from leaders, operands, outputs and leaves alone, whatever the gradient rules are.  So none is traced
for the answer; the program is made, and its hash taken, when somebody reads it.
"""

from __future__ import annotations

import functools
import time
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from autograd_opt.verification.cache.memory_cache import Key
from autograd_opt.verification.checker.numbering import numbering
from autograd_opt.verification.program.instructions import MULTI, Program, Vocabulary
from autograd_opt.verification.program.reading import Recorded, Row, convert, kept, restored
from autograd_opt.verification.result.verdict import Reason, Status, Verdict, Verification, undecided
from autograd_opt.verification.strategies.task import BITWISE, SCOPE, goals_of, trust


def answer(key: Key | None, nodes: Sequence[Any], roots: Sequence[Any], leaves: Sequence[int] | None
           ) -> Verification | None:
    """The proof that this run goes as written; None where a whole proof has to say."""
    start = time.perf_counter()
    if key is None or not is_same(key, len(nodes)):
        return None
    outputs, wanted = compared(nodes, roots, leaves)
    if not reached(nodes, outputs, wanted) and not reached(nodes, outputs, wanted, Joint(nodes)):
        return None
    other = reused_otherwise(nodes)
    if other is not None:
        return undecided(Reason.UNDERIVED, f"%{other} has a value of another node, not shown equal")
    digest, _ = digests(key, nodes, roots, leaves, range(len(nodes)))
    goals = tuple([Verdict(goal, Status.PROVED, "bitwise") for goal in goals_of(wanted, outputs)])
    stats = {"nodes": len(nodes), "merged": 0, "as written": True,
             "seconds": time.perf_counter() - start}
    return Verification(Status.PROVED, "bitwise", SCOPE, BITWISE, trust=trust(), stats=stats, goals=goals,
                        original=digest, optimized=digest, engine="structural")


def compared(nodes: Sequence[Any], roots: Sequence[Any], leaves: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Outputs and leaves, by their positions."""
    wanted = [i for i, n in enumerate(nodes) if n.is_leaf and n.requires_grad] if leaves is None else list(leaves)
    return [r.index for r in roots], wanted


def digests(key: Key, nodes: Sequence[Any], roots: Sequence[Any], leaves: Sequence[int] | None, leader: Any
            ) -> tuple[Any, Any]:
    """The hashes of both programs, made when they are read.

    Raises
    ------
    TypeError, LookupError : an attribute cannot be read, or might change.
    """
    outputs, wanted = compared(nodes, roots, leaves)
    read = functools.partial(read_again, kept(nodes))
    merged = [int(i) for i in leader]
    return Digest(read, range(len(nodes)), outputs, wanted, key), Digest(read, merged, outputs, wanted, key)


def reused_otherwise(nodes: Sequence[Any]) -> int | None:
    """The first node whose value was taken from a node that has not its value number, so perhaps not its bits."""
    if all(n.leader is None for n in nodes):
        return None
    recorded = convert(nodes, Vocabulary())
    places = [tuple([o for o in p if o is not None]) for p in recorded.operands]
    (numbers,) = numbering([Program(recorded.vocabulary, recorded.heads, places, array("q"))])
    where = {id(n): i for i, n in enumerate(nodes)}
    taken = [(i, where.get(id(n.leader), i)) for i, n in enumerate(nodes) if n.leader is not None]
    return next((i for i, to in taken if numbers[i] != numbers[to]), None)


def is_same(key: Key, n: int) -> bool:
    """Is each of the n nodes its own leader, and none dropped?"""
    _, leader, alive, *_ = key[0]
    return alive is None and leader == np.arange(n, dtype=np.int64).tobytes()


def read_again(rows: Sequence[Row]) -> Recorded:
    """The graph of which these rows were kept."""
    return convert(restored(rows), Vocabulary())


def reached(nodes: Sequence[Any], roots: Sequence[int], leaves: Sequence[int], joint: Joint | None = None) -> bool:
    """Does a cotangent reach a wanted leaf?  Rules for all operands at once may leave some out: `joint` tells which."""
    wanted = {nodes[i] for i in leaves}
    seen: set[Any] = set()
    waiting = [nodes[r] for r in roots]
    while waiting:
        node = waiting.pop()
        if node in wanted:
            return True
        op = node.op
        if node in seen or (op.joint is not None and joint is None):
            continue
        seen.add(node)
        given = () if op.joint is None or joint is None else joint.operands(node)
        for k, o in enumerate(node.operands):
            if o is not None and o.requires_grad and (
                    op.name == "output" or k in given or (k < len(op.vjps) and op.vjps[k] is not None)):
                waiting.append(o)
    return False


class Joint:
    """Which operands the rules for all at once give a cotangent, read off their traces."""

    def __init__(self, nodes: Sequence[Any]):
        from autograd_opt.verification.program.adjoint import Differentiator

        self.recorded = convert(nodes, Vocabulary())
        self.where = {id(n): i for i, n in enumerate(nodes)}
        self.differentiator = Differentiator(self.recorded)

    def operands(self, node: Any) -> Collection[int]:
        """The places of those operands; none of an operation with several outputs."""
        if node.op.flags & MULTI:
            return ()
        signature = self.recorded.signature(self.where[id(node)])
        made = self.differentiator.template(node.op, *signature)
        return [k for k, need in enumerate(signature[2]) if need] if made is None else [k for k, _ in made.results]


class Digest:
    """The hash of a program of such a graph, made when it is first called, by the rules of when it was proved."""

    def __init__(self, read: Callable[[], Recorded], leader: Sequence[int], roots: Sequence[int],
                 leaves: Sequence[int], key: Key):
        self.asked: Any = read, leader, roots, leaves
        rules, *_, self.dtype = key[0]
        self.rules = [(op, list(more[:-1]), op.joint) for op, *more in rules]
        self.made = ""

    def __call__(self) -> str:
        asked = self.asked
        if asked is not None:
            self.made = self.digest(*asked)
            self.asked = None
        return self.made

    def digest(self, read: Callable[[], Recorded], leader: Sequence[int], roots: Sequence[int], leaves: Sequence[int]
               ) -> str:
        from autograd_opt.verification.program.adjoint import Differentiator

        recorded = read()
        stand = {op: as_it_was(op, vjps, joint) for op, vjps, joint in self.rules}
        nodes = [SimpleNamespace(op=stand[n.op], hooks=n.hooks) for n in recorded.nodes]
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            return Differentiator(replace(recorded, nodes=nodes)).program(leader, roots, leaves).digest()
        finally:
            torch.set_default_dtype(before)


def as_it_was(op: Any, vjps: list[Any], joint: Any) -> Any:
    """An operator with the rules that it had, should they have been replaced since."""
    return op if list(op.vjps) == vjps and op.joint is joint else Former(op, vjps, joint)


class Former:
    """An operator with other rules."""

    def __init__(self, op: Any, vjps: list[Any], joint: Any):
        self.name, self.operands, self.attributes, self.flags = op.name, op.operands, op.attributes, op.flags
        self.vjps, self.joint = vjps, joint
