"""Merges by rules, looked at again: do the rules say so, and from what do both sides come?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes.algebra_py import algebra as readable
from autograd_opt.passes.errors import PassResultError
from autograd_opt.passes.flags import NEVER_MERGES
from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.rules import Rule
from autograd_opt.passes.table import NodeTable

__all__ = ["common_ground", "require_derivable"]

MOST_NODES = 256


def require_derivable(
    table: NodeTable,
    before: Leaders,
    leader: Leaders,
    fired: NDArray[np.uint64],
    rules: Sequence[Rule],
    pass_name: str,
) -> None:
    """Refuse a merge by rules that the readable matcher does not find.

    Raises
    ------
    PassResultError
        With the pass, the first such node, and the rules it named.
    """
    nodes = np.flatnonzero(fired)
    if not len(nodes):
        return
    derived = readable(table, rules, leader=before)[0]
    wrong = nodes[leader[nodes] != derived[nodes]]
    if len(wrong):
        node = int(wrong[0])
        names = ", ".join(repr(rule.name) for k, rule in enumerate(rules) if int(fired[node]) >> k & 1)
        fact = f"by {names or 'a rule it does not have'} it was merged into {leader[node]}, which no rule derives"
        raise PassResultError(pass_name, node, fact, "merge what the rules make equal")


def common_ground(table: NodeTable, node: int, other: int) -> tuple[int, ...]:
    """Return the nodes from which both come by what the rules speak of.

    `other` alone where `node` is computed from it; nothing where that reaches
    further than `MOST_NODES`.

    Examples
    --------
    >>> from autograd_opt.passes import LEAF
    >>> table = NodeTable.from_operands([0, 1, 1], [(), (0,), (1,)], [LEAF, 0, 0], symbol=[0, 1, 1])
    >>> common_ground(table, 2, 0)
    (0,)
    """
    assert table.symbol is not None

    def below(root: int, stop: int) -> tuple[set[int], bool]:
        ground: set[int] = set()
        seen: set[int] = set()
        stack = [root]
        met = False
        while stack and len(seen) <= MOST_NODES:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            opaque = not table.symbol[at] or bool(table.flags[at] & NEVER_MERGES)  # type: ignore[index]
            if at == stop and at != root:
                met = True
                ground.add(at)
            elif opaque and at != root:
                ground.add(at)
            else:
                stack += table.operands_of(at)
        return (set(), False) if stack else (ground, met)

    ground, met = below(node, other)
    if met:
        return tuple(sorted(ground))
    return tuple(sorted(ground | below(other, -1)[0]))
