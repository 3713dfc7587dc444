"""Dead nodes: what neither an output nor an effect needs.

Operands come before their users, so one backward sweep settles reachability.
`prune.py` says the same in plain Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from autograd_opt.passes import flags as _flags
from autograd_opt.passes.leaders import identity_leaders
from autograd_opt.passes.prune import prune as twin

cdef uint8_t never_pruned = _flags.NEVER_PRUNED


cdef int sweep(
    const int64_t[::1] offsets,
    const int32_t[::1] operands,
    const uint8_t[::1] flags,
    const int32_t[::1] leader,
    uint8_t[::1] alive,
) except -1 nogil:
    cdef Py_ssize_t i, j
    for i in range(flags.shape[0] - 1, -1, -1):
        if flags[i] & never_pruned:
            alive[leader[i]] = 1
        if alive[i]:
            for j in range(offsets[i], offsets[i + 1]):
                alive[leader[operands[j]]] = 1
    return 0


def prune(table, outputs, leader=None):
    leader = identity_leaders(len(table)) if leader is None else leader
    alive = np.zeros(len(table), np.uint8)
    alive[leader[table.nodes(outputs)]] = 1
    cdef const int64_t[::1] offsets = table.offsets
    cdef const int32_t[::1] operands = table.operands, leaders = leader
    cdef const uint8_t[::1] flags = table.flags
    cdef uint8_t[::1] living = alive
    with nogil:
        sweep(offsets, operands, flags, leaders, living)
    return alive


prune.__doc__ = twin.__doc__
