"""The twin of `_prune.pyx`: which nodes are needed, in plain Python."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autograd_opt.passes.flags import NEVER_PRUNED
from autograd_opt.passes.leaders import Leaders, identity_leaders
from autograd_opt.passes.node_table import NodeTable

__all__ = ["prune"]


def prune(table: NodeTable, outputs: ArrayLike, leader: Leaders | None = None) -> NDArray[np.uint8]:
    """Mark the nodes that an output, an effect or a KEEP node needs.

    A merged node is never alive: its leader is, in its place.

    Parameters
    ----------
    table : NodeTable
    outputs : sequence of int
        Nodes whose values are asked for.
    leader : int32[n], optional
        From :func:`~autograd_opt.passes._cse`; by default nothing is merged.

    Returns
    -------
    uint8[n]
        1 where the node must run, else 0.

    Examples
    --------
    >>> table = NodeTable.from_operands([0, 1, 2, 3], [(), (0,), (0,), (2,)])
    >>> prune(table, [3])
    array([1, 0, 1, 1], dtype=uint8)
    """
    leader = identity_leaders(len(table)) if leader is None else leader
    alive = np.zeros(len(table), np.uint8)
    alive[leader[table.nodes(outputs)]] = 1
    for node in reversed(range(len(table))):
        if table.flags[node] & NEVER_PRUNED:
            alive[leader[node]] = 1
        if alive[node]:
            alive[leader[table.operands_of(node)]] = 1
    return alive
