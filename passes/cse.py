"""The twin of `_cse.pyx`: what common subexpressions are, in plain Python."""

from autograd_opt.passes.effort import Effort, degenerate_hash_forced
from autograd_opt.passes.flags import COMMUTATIVE, NEVER_MERGES
from autograd_opt.passes.leaders import Leaders, first_merges, identity_leaders
from autograd_opt.passes.node_table import NodeTable

__all__ = ["cse"]


class _Value:
    """A key and the leaders of the operands; counts how often it is compared."""

    __slots__ = ("content", "effort", "hash")

    def __init__(self, content: tuple[int, ...], effort: Effort, zero: bool) -> None:
        self.content = content
        self.effort = effort
        self.hash = 0 if zero else hash(content)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        self.effort.comparisons += 1
        return isinstance(other, _Value) and self.content == other.content


def cse(
    table: NodeTable,
    *,
    leader: Leaders | None = None,
    limit: int | None = None,
    degenerate_hash: bool | None = None,
    effort: Effort | None = None,
) -> Leaders:
    """Give nodes that compute the same value one leader, the first of them.

    Two nodes compute the same value if their keys are equal and their operands
    have the same leaders in the same order (in any order where a node of two
    operands is COMMUTATIVE). Leaves, effects, pinned and NOMERGE nodes neither
    merge nor are merged into. Expected and worst case are linear in the edges.

    Parameters
    ----------
    table : NodeTable
    leader : int32[n], optional
        Merges made before, which are kept.
    limit : int, optional
        Make at most this many merges, the first in node order, to find a bad
        one by bisection.
    degenerate_hash : bool, optional
        Make every hash 0: slow, same merges. By default what the environment
        variable AUTOGRAD_OPT_DEGENERATE_HASH says.
    effort : Effort, optional
        Counts of work are added here.

    Returns
    -------
    int32[n]
        For each node the smallest node that computes the same value.

    Examples
    --------
    >>> table = NodeTable.from_operands([0, 7, 7, 8], [(), (0, 0), (0, 0), (1, 2)])
    >>> cse(table)
    array([0, 1, 1, 3], dtype=int32)
    """
    start = identity_leaders(len(table)) if leader is None else leader
    if degenerate_hash is None:
        degenerate_hash = degenerate_hash_forced()
    effort = Effort() if effort is None else effort
    result = start.copy()
    seen: dict[_Value, int] = {}
    for node in range(len(table)):
        if start[node] != node:
            result[node] = result[start[node]]
        elif not table.flags[node] & NEVER_MERGES:
            values = [int(result[operand]) for operand in table.operands_of(node)]
            if table.flags[node] & COMMUTATIVE and len(values) == 2:
                values.sort()
            content = (int(table.key[node]), *values)
            value = _Value(content, effort, degenerate_hash)
            effort.probes += 1
            result[node] = seen.setdefault(value, node)
    return result if limit is None else first_merges(result, start, limit)
