"""Arithmetic on ``leader``: for each node, the node that computes its value.

``leader[i] <= i``, ``leader[leader[i]] == leader[i]``, and ``leader[i] == i``
where nothing was merged.
"""

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes.errors import ArgumentError, at
from autograd_opt.passes.flags import NEVER_MERGES, PINNED

__all__ = ["Leaders", "canonical", "first_merges", "identity_leaders", "merged_nodes", "require_limit"]

Leaders = NDArray[np.int32]


def identity_leaders(n: int) -> Leaders:
    """Leaders of a graph of `n` nodes in which nothing is merged.

    Examples
    --------
    >>> identity_leaders(3)
    array([0, 1, 2], dtype=int32)
    """
    return np.arange(n, dtype=np.int32)


def merged_nodes(leader: Leaders, start: Leaders | None = None) -> NDArray[np.intp]:
    """Nodes that have a leader other than themselves, in order.

    Parameters
    ----------
    leader : int32[n]
    start : int32[n], optional
        Leaders before the pass; what was merged there already is left out.

    Examples
    --------
    >>> merged_nodes(np.array([0, 1, 1, 0], dtype=np.int32))
    array([2, 3])
    """
    if start is None:
        start = identity_leaders(len(leader))
    return np.flatnonzero((leader != start) & (start == identity_leaders(len(start))))


def first_merges(leader: Leaders, start: Leaders, limit: int) -> Leaders:
    """Keep the first `limit` merges of a pass, in node order, and undo the rest.

    A value is merged by what comes before it only, so the kept merges are
    sound without the others: a bad merge can be found by bisection.

    Parameters
    ----------
    leader, start : int32[n]
        Leaders after and before the pass.
    limit : int
        How many new merges to keep.

    Returns
    -------
    int32[n]
        New array; `leader` itself when it has no more merges than `limit`.

    Examples
    --------
    >>> leader = np.array([0, 0, 2, 2], dtype=np.int32)
    >>> first_merges(leader, identity_leaders(4), limit=1)
    array([0, 0, 2, 3], dtype=int32)
    """
    require_limit(limit)
    merged = merged_nodes(leader, start)
    if len(merged) <= limit:
        return leader
    cut = merged[limit]
    kept = leader.copy()
    kept[cut:] = start[cut:]
    return kept[kept]


def canonical(same: Leaders | None, flags: NDArray[np.uint8], leader: Leaders) -> Leaders:
    """Merge each node whose value is its operand's own, bit for bit, into that operand.

    So what reads the node has the key of what reads the operand. A node that never merges stays apart,
    and so does one over a pinned operand.

    Parameters
    ----------
    same : int32[n] or None
        For each node its own number, or that of the operand; None where no value is an operand's.
    flags : uint8[n]
    leader : int32[n]
        Merges made before, which are kept.

    Examples
    --------
    >>> own = identity_leaders(3)
    >>> canonical(np.array([0, 0, 2], np.int32), np.zeros(3, np.uint8), own)
    array([0, 0, 2], dtype=int32)
    """
    if same is None:
        return leader
    found = leader.copy()
    for node in merged_nodes(same).tolist():
        to = found[same[node]]
        if found[node] == node and not flags[node] & NEVER_MERGES and not flags[to] & PINNED:
            found[node] = to
    return found[found]


def require_limit(limit: int) -> None:
    """Refuse what is no number of merges.

    Raises
    ------
    ArgumentError
        For a negative number, and for what is no integer.

    Examples
    --------
    >>> try:
    ...     require_limit(-1)
    ... except ValueError as error:
    ...     print("at least 0, not -1" in str(error))
    True
    """
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 0:
        raise ArgumentError(at(f"limit is a number of merges, at least 0, not {limit!r}"))
