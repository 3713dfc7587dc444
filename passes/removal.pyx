"""What it costs to remove nodes from a copy of a graph, whose edges are linked lists.

An edge goes by a walk over the operands of its user and the users of its operand.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

include "early.pxi"

cdef enum:
    SOON = 16
    FULL = 255


cdef int count(
    const int64_t[::1] offsets,
    const int32_t[::1] operands,
    const uint8_t[::1] kept,
    uint8_t[::1] users,
    Py_ssize_t *longest,
    Py_ssize_t *moved,
) except -1 nogil:
    """`users` of each node are counted up to `FULL`, in a byte: the array is read and written at random."""
    cdef Py_ssize_t i, j, n = kept.shape[0], m = operands.shape[0], most = 0, moving = 0
    cdef int32_t operand
    for j in range(m):
        if j + SOON < m:
            prefetch(&users[operands[j + SOON]])
        operand = operands[j]
        users[operand] += users[operand] != FULL
    for i in range(n):
        most = max(most, <Py_ssize_t>(offsets[i + 1] - offsets[i]))
        if kept[i]:
            for j in range(offsets[i], offsets[i + 1]):
                moving += not kept[operands[j]]
        else:
            for j in range(offsets[i], offsets[i + 1]):
                most = max(most, <Py_ssize_t>users[operands[j]])
    longest[0], moved[0] = most, moving
    return 0


def removal(offsets, operands, kept):
    """Return the longest list to walk when all that is not kept goes, and how many edges of kept nodes it takes along.

    Users are counted up to 255 only.

    Examples
    --------
    Nodes 0 and 1 are leaves, 2 and 3 take both; 3 and 1 go:

    >>> removal(np.array([0, 0, 0, 2, 4]), np.array([0, 1, 0, 1], np.int32), np.array([1, 0, 1, 0], np.uint8))
    (2, 1)
    """
    cdef Py_ssize_t longest, moved
    cdef const int64_t[::1] begins = offsets
    cdef const int32_t[::1] taken = operands
    cdef const uint8_t[::1] stays = kept
    cdef uint8_t[::1] users = np.zeros(len(kept), np.uint8)
    with nogil:
        count(begins, taken, stays, users, &longest, &moved)
    return longest, moved
