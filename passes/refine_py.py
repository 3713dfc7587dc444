"""The twin of `refine.pyx`: common subexpressions by level, without a hash."""

from itertools import groupby

from autograd_opt.passes.flags import COMMUTATIVE, NEVER_MERGES
from autograd_opt.passes.leaders import Leaders, identity_leaders
from autograd_opt.passes.table import NodeTable

__all__ = ["refine"]


def refine(table: NodeTable, *, leader: Leaders | None = None) -> Leaders:
    """Give nodes that compute the same value one leader, the first of them.

    Same result as :func:`~autograd_opt.passes.cse`, by another way: nodes of
    one level are grouped by key and operand leaders, lower levels first.

    Parameters
    ----------
    table : NodeTable
    leader : int32[n], optional
        Merges made before, which are kept.

    Returns
    -------
    int32[n]

    Examples
    --------
    >>> table = NodeTable.from_operands([0, 7, 7, 8], [(), (0, 0), (0, 0), (1, 2)])
    >>> refine(table)
    array([0, 1, 1, 3], dtype=int32)
    """
    start = identity_leaders(len(table)) if leader is None else leader
    result = start.copy()

    def content(node: int) -> list[int]:
        values = [int(result[start[operand]]) for operand in table.operands_of(node)]
        if table.flags[node] & COMMUTATIVE and len(values) == 2:
            values.sort()
        return [int(table.key[node]), *values]

    level: list[int] = []
    levels: dict[int, list[int]] = {}
    for node in range(len(table)):
        below = [level[start[operand]] for operand in table.operands_of(node)]
        level.append(1 + max(below, default=-1))
        if start[node] == node and not table.flags[node] & NEVER_MERGES:
            levels.setdefault(level[node], []).append(node)
    for _, nodes in sorted(levels.items()):
        for _, group in groupby(sorted(nodes, key=content), key=content):
            equal = list(group)
            result[equal] = equal[0]
    return result[start]
