"""Common subexpressions without a hash: linear on every input.

Nodes that compute the same value have the same level (length of the longest
path from a source). Level by level, the nodes are split by key, by number of
operands, then by the leader of each operand in turn; what is never split is
equal. A split takes time linear in the group, because colours index an array
directly (Aho, Hopcroft and Ullman's tree isomorphism; Hopcroft's refinement).
Several times slower than hashing where the hash is good, so `cse` comes here
only where it is not. `refine_py.py` says the same in plain Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from autograd_opt.passes import flags as _flags
from autograd_opt.passes.leaders import identity_leaders
from autograd_opt.passes.refine_py import refine as twin

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define AUTOGRAD_OPT_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define AUTOGRAD_OPT_PREFETCH(address)
    #endif
    """
    void prefetch "AUTOGRAD_OPT_PREFETCH"(const void *) noexcept nogil

cdef enum:
    SOON = 8  # places ahead of the one that is read: a group's nodes lie far apart

cdef uint8_t commutative = _flags.COMMUTATIVE
cdef uint8_t never_merges = _flags.NEVER_MERGES


cdef class _Refinement:
    """`order` lists the nodes, level after level; a group is a range of it."""

    cdef const int64_t[::1] key, offsets
    cdef const int32_t[::1] operands, start
    cdef const uint8_t[::1] flags
    cdef int32_t[::1] leader, order, moved, part, size, level_end
    cdef int64_t[::1] part_of_colour
    cdef int32_t[:, ::1] pending
    cdef Py_ssize_t n, levels, top
    cdef int64_t serial

    def __init__(self, table, operands, start, leader):
        key = table.key
        self.n = n = len(table)
        if n and (key.min() < 0 or key.max() > 4 * n):
            key = np.unique(key, return_inverse=True)[1]
        self.key, self.offsets = key, table.offsets
        self.operands, self.flags = operands, table.flags
        self.start, self.leader = start, leader
        self.order, self.moved, self.part = (np.empty(n, np.int32) for _ in range(3))
        self.size, self.level_end = np.empty(n, np.int32), np.zeros(n + 1, np.int32)
        self.pending = np.empty((n + 1, 3), np.int32)
        colours = max(n, key.max(initial=0) + 1, table.arity().max(initial=0) + 1)
        self.part_of_colour = np.zeros(colours, np.int64)

    cdef int run(self) except -1 nogil:
        cdef Py_ssize_t i, level, begin = 0
        self.sort_by_level()
        for level in range(self.levels):
            self.push(begin, self.level_end[level], 0)
            begin = self.level_end[level]
            while self.top:
                self.top -= 1
                self.split(
                    self.pending[self.top, 0],
                    self.pending[self.top, 1],
                    self.pending[self.top, 2],
                )
        for i in range(self.n):
            self.leader[i] = self.leader[self.start[i]]
        return 0

    cdef int sort_by_level(self) except -1 nogil:
        """Counting sort of the nodes that may merge, node order kept."""
        cdef Py_ssize_t i, j
        cdef int32_t deepest, below
        cdef int32_t[::1] level = self.part
        for i in range(self.n):
            if i + 2 * SOON < self.n:
                for j in range(self.offsets[i + 2 * SOON], self.offsets[i + 2 * SOON + 1]):
                    prefetch(&level[self.operands[j]])
            deepest = 0
            for j in range(self.offsets[i], self.offsets[i + 1]):
                below = level[self.operands[j]]
                if below >= deepest:
                    deepest = below + 1
            level[i] = deepest
            self.levels = max(self.levels, <Py_ssize_t>deepest + 1)
            if self.may_merge(i):
                self.level_end[deepest + 1] += 1
        for i in range(self.levels):
            self.level_end[i + 1] += self.level_end[i]
        for i in range(self.n):
            if self.may_merge(i):
                self.order[self.level_end[level[i]]] = <int32_t>i
                self.level_end[level[i]] += 1
        return 0

    cdef inline bint may_merge(self, Py_ssize_t i) except -1 nogil:
        return self.start[i] == i and not self.flags[i] & never_merges

    cdef inline int push(self, Py_ssize_t begin, Py_ssize_t end, int32_t by) except -1 nogil:
        if end - begin > 1:
            self.pending[self.top, 0] = <int32_t>begin
            self.pending[self.top, 1] = <int32_t>end
            self.pending[self.top, 2] = by
            self.top += 1
        return 0

    cdef inline int64_t colour(self, int32_t node, int32_t by) except -1 nogil:
        """Key for by = 0, arity for by = 1, leader of operand by - 2 after that."""
        cdef Py_ssize_t begin = self.offsets[node], end = self.offsets[node + 1]
        cdef int32_t mine, twin
        if by == 0:
            return self.key[node]
        if by == 1:
            return end - begin
        mine = self.leader[self.operands[begin + by - 2]]
        if self.flags[node] & commutative and end - begin == 2:
            twin = self.leader[self.operands[end + 1 - by]]
            return min(mine, twin) if by == 2 else max(mine, twin)
        return mine

    cdef inline int ask(self, Py_ssize_t i, Py_ssize_t end, int32_t by) except -1 nogil:
        """Ask early for what `colour` and `split` will read at places after i."""
        cdef int32_t node
        cdef Py_ssize_t place
        if i + 2 * SOON < end:
            node = self.order[i + 2 * SOON]
            if by == 0:
                prefetch(&self.key[node])
            elif by == 1:
                prefetch(&self.offsets[node])
                prefetch(&self.flags[node])
            else:
                place = self.offsets[node] + by - 2
                prefetch(&self.leader[self.operands[place]])
                if place + 1 < self.offsets[node + 1]:      # for the parts, soon after
                    prefetch(&self.leader[self.operands[place + 1]])
        if i + SOON < end:
            node = self.order[i + SOON]
            if by == 1:
                if self.offsets[node] < self.offsets[node + 1]:
                    prefetch(&self.operands[self.offsets[node]])
            elif by >= 2:
                prefetch(&self.part_of_colour[self.leader[self.operands[self.offsets[node] + by - 2]]])
        return 0

    cdef int split(self, Py_ssize_t begin, Py_ssize_t end, int32_t by) except -1 nogil:
        cdef Py_ssize_t i, parts = 0, at = begin
        cdef int32_t first = self.order[begin], part, count
        cdef int64_t colour
        if end - begin == 2:
            return self.pair(first, self.order[begin + 1], by)
        if by >= 2 and by - 2 == self.offsets[first + 1] - self.offsets[first]:
            for i in range(begin, end):
                self.leader[self.order[i]] = first
            return 0
        self.serial += 1
        for i in range(begin, end):
            self.ask(i, end, by)
            colour = self.colour(self.order[i], by)
            if self.part_of_colour[colour] >> 32 != self.serial:
                self.part_of_colour[colour] = self.serial << 32 | parts
                self.size[parts] = 0
                parts += 1
            part = <int32_t>(self.part_of_colour[colour] & 0x7FFFFFFF)
            self.part[i] = part
            self.size[part] += 1
        if parts == 1:
            return self.push(begin, end, by + 1)
        if parts == end - begin:
            return 0
        for part in range(parts):
            count = self.size[part]
            self.size[part] = <int32_t>at
            self.push(at, at + count, by + 1)
            at += count
        for i in range(begin, end):
            self.moved[self.size[self.part[i]]] = self.order[i]
            self.size[self.part[i]] += 1
        for i in range(begin, end):
            self.order[i] = self.moved[i]
        return 0

    cdef int pair(self, int32_t first, int32_t second, int32_t by) except -1 nogil:
        """What splitting two nodes comes to: they differ somewhere, or are equal."""
        cdef Py_ssize_t arity = self.offsets[first + 1] - self.offsets[first]
        while by < 2 or by - 2 < arity:
            if self.colour(first, by) != self.colour(second, by):
                return 0
            by += 1
        self.leader[second] = first
        return 0


def refine(table, *, leader=None):
    start = identity_leaders(len(table)) if leader is None else leader
    operands = table.operands if leader is None else leader[table.operands]
    result = start.copy()
    cdef _Refinement refinement = _Refinement(table, operands, start, result)
    with nogil:
        refinement.run()
    return result


refine.__doc__ = twin.__doc__
