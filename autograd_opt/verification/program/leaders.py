"""Which node stands for which: as the executor follows it, or as a pass says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from autograd_opt.graph.node import PINNED
from autograd_opt.verification.program.instructions import Malformed


def followed(nodes: Sequence[Any], where: dict[int, int], kept: Collection[int] = ()) -> list[int]:
    """The leaders that the executor follows: not from or into pinned nodes, nor those `kept` by themselves."""
    out = list(range(len(nodes)))
    for i, node in enumerate(nodes):
        to = node.leader
        if to is None or node.flags & PINNED or to.flags & PINNED:
            continue
        k = where.get(id(to))
        if k is not None and not (kept and (i in kept or k in kept or not meet(node, to, where, out))):
            out[i] = out[k]
    return out


def meet(node: Any, to: Any, where: dict[int, int], out: Sequence[int]) -> bool:
    """Do the operands of both lead to the same nodes?  A merge below that was refused refuses those above it."""
    ends = [[None if o is None else out[where[id(o)]] for o in n.operands] for n in (node, to)]
    return node.op is to.op and ends[0] == ends[1]


def resolve(leader: list[int], n: int) -> list[int]:
    """Chains of leaders followed to their ends."""
    if len(leader) != n:
        raise Malformed(f"leader has {len(leader)} entries for {n} nodes")
    for i in range(n):
        if not 0 <= leader[i] <= i:
            raise Malformed(f"leader[{i}] = {leader[i]}: a leader comes before its followers")
        leader[i] = leader[leader[i]]
    return leader
