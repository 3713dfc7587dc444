"""The rules that the result of every pass must keep.

Read as a list: each line of `check` is one rule, its breach and its remedy.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autograd_opt.passes.errors import PassResultError
from autograd_opt.passes.flags import COMMUTATIVE, NEVER_MERGES, NEVER_PRUNED, PINNED
from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.node_table import NodeTable

__all__ = ["check"]


def check(
    table: NodeTable,
    outputs: ArrayLike,
    leader: Leaders,
    alive: NDArray[np.uint8],
    *,
    pass_name: str = "?",
    exact: bool = False,
    before: Leaders | None = None,
) -> None:
    """Refuse a result that would change what the graph computes.

    Parameters
    ----------
    table : NodeTable
    outputs : sequence of int
    leader : int32[n]
    alive : uint8[n]
    pass_name : str
        Named in the error.
    exact : bool
        Also require that merged nodes have equal keys and operands of equal
        leaders, as :func:`~autograd_opt.passes._cse` promises.
    before : int32[n], optional
        Leaders before the pass: only its own merges have to be exact.

    Raises
    ------
    PassResultError
        With the pass, the first wrong node, the fact and a remedy.

    Examples
    --------
    >>> table = NodeTable.from_operands([0, 1], [(), (0,)])
    >>> check(table, [1], np.array([0, 1]), np.array([1, 0]), pass_name="mine")
    Traceback (most recent call last):
    autograd_opt.passes.errors.PassResultError: pass 'mine', node 1: \
an output is not alive. Remedy: keep the leaders of the outputs alive.
    """
    node = np.arange(len(table))

    def refuse(wrong: NDArray[Any], fact: str, remedy: str, of: Any = node) -> None:
        if wrong.any():
            first = int(of[wrong.argmax()])
            raise PassResultError(pass_name, first, fact, remedy)

    if len(leader) != len(node) or len(alive) != len(node):
        fact = f"{len(leader)} leaders, {len(alive)} alive for {len(node)} nodes"
        raise PassResultError(pass_name, None, fact, "return one entry per node")

    refuse(alive > 1, f"alive is {alive.max(initial=0)}", "give 1 where it must run, else 0")
    late = (leader > node) | (leader < 0)
    refuse(late, "its leader comes after it", "merge into the earlier node")
    chain = leader[leader] != leader
    refuse(chain, "its leader has another leader", "point to the last leader")

    merged, keep, flags = leader != node, alive != 0, table.flags
    shared = merged & (flags & NEVER_MERGES != 0)
    refuse(shared, "a leaf, effect, pinned or NOMERGE node was merged", "leave it")
    joined = merged & (flags[leader] & PINNED != 0)
    refuse(joined, "it was merged into a pinned node", "leave pinned nodes alone")
    if table.meta is not None:
        changed = table.meta != table.meta[leader]
        refuse(changed, "its leader has another meta", "merge equal meta only")

    refuse(merged & keep, "it is merged and alive", "clear alive where merged")
    lost = (flags & NEVER_PRUNED != 0) & ~keep[leader]
    refuse(lost, "an effect or KEEP node was pruned", "keep its leader alive")
    wanted = table.nodes(outputs)
    gone = ~keep[leader[wanted]]
    refuse(gone, "an output is not alive", "keep the leaders of the outputs alive", wanted)
    user = np.repeat(node, table.arity())
    cut = keep[user] & ~keep[leader[table.operands]]
    refuse(cut, "an operand of it is not alive", "keep operands' leaders alive", user)

    if exact:
        if before is not None:
            merged = merged & (before == node)
        if table.same is not None:
            merged = merged & ((table.same == node) | (leader != leader[table.same]))
        other = merged & ((flags[leader] & NEVER_MERGES != 0) | _differs(table, leader))
        refuse(other, "its leader computes something else", "compare key and operands")


def _differs(table: NodeTable, leader: Leaders) -> NDArray[np.bool_]:
    """Where a node and its leader differ in key, arity or operands."""
    arity = table.arity()
    differs = (table.key != table.key[leader]) | (arity != arity[leader])
    values = leader[table.operands]
    pairs = table.offsets[:-1][(table.flags & COMMUTATIVE != 0) & (arity == 2)]
    low, high = values[pairs], values[pairs + 1]
    values[pairs], values[pairs + 1] = np.minimum(low, high), np.maximum(low, high)
    merged = np.flatnonzero((leader != np.arange(len(table))) & ~differs)
    user = np.repeat(merged, arity[merged])
    place = np.arange(len(user)) - np.repeat(np.cumsum(arity[merged]) - arity[merged], arity[merged])
    mine = values[table.offsets[user] + place]
    theirs = values[table.offsets[leader[user]] + place]
    differs[user[mine != theirs]] = True
    return differs
