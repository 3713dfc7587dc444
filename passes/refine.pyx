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
from libc.string cimport memcpy

import numpy as np

from autograd_opt.passes import flags as _flags
from autograd_opt.passes.heap import blocks_kept
from autograd_opt.passes.leaders import identity_leaders
from autograd_opt.passes.refine_py import refine as twin

include "early.pxi"

cdef enum:
    SOON = 8  # places ahead of the one that is read: a level's nodes lie far apart


cdef uint8_t commutative = _flags.COMMUTATIVE
cdef uint8_t never_merges = _flags.NEVER_MERGES


cdef struct Record:
    int32_t node
    int32_t key
    int32_t arity
    int32_t first   # the first two operands, the second one inverted where their order is free; when the level
    int32_t second  # begins, their leaders, then the smaller one first


cdef class _Refinement:
    """`record` lists the nodes, level after level; a group is a range of it.

    All that is asked of a node lies in its record, so that what is far apart, the leaders of its operands, is read
    once, when its level begins and those below it are final.
    """

    cdef const int64_t[::1] key, offsets
    cdef const int32_t[::1] operands, start
    cdef const uint8_t[::1] flags
    cdef int32_t[::1] leader, part, size, level_end, part_of_colour
    cdef int32_t[:, ::1] records, moved_records, pending
    cdef bint merged_before
    cdef Record *record
    cdef Record *moved
    cdef Py_ssize_t n, levels, top
    cdef int32_t base

    def __init__(self, table, operands, start, leader):
        key = table.key
        self.n = n = len(table)
        if n and (key.min() < 0 or key.max() > min(4 * n, 0x7FFFFFFF)):
            key = np.unique(key, return_inverse=True)[1]
        self.key, self.offsets = key, table.offsets
        self.operands, self.flags = operands, table.flags
        self.start, self.leader = start, leader
        self.level_end, self.part = np.zeros(n + 1, np.int32), np.empty(n, np.int32)
        self.records = np.empty((n + 1, 5), np.int32)
        self.record = <Record *>&self.records[0, 0]
        colours = max(n, key.max(initial=0) + 1, table.arity().max(initial=0) + 1)
        self.part_of_colour = np.zeros(colours, np.int32)
        self.base = 1

    def run(self):
        cdef Py_ssize_t most
        with nogil:
            most = self.sort_by_level()
        self.size = np.empty(most, np.int32)
        self.moved_records, self.pending = np.empty((most + 1, 5), np.int32), np.empty((most + 1, 3), np.int32)
        self.moved = <Record *>&self.moved_records[0, 0]
        with nogil:
            self.refine_levels()

    cdef int refine_levels(self) except -1 nogil:
        cdef Py_ssize_t i, level, begin = 0
        for level in range(self.levels):
            self.look_up(begin, self.level_end[level])
            self.push(begin, self.level_end[level], 0)
            begin = self.level_end[level]
            while self.top:
                self.top -= 1
                self.split(
                    self.pending[self.top, 0],
                    self.pending[self.top, 1],
                    self.pending[self.top, 2],
                )
        if self.merged_before:
            for i in range(self.n):
                self.leader[i] = self.leader[self.start[i]]
        return 0

    cdef Py_ssize_t sort_by_level(self) except -1 nogil:
        """Counting sort of the nodes that may merge, node order kept; the size of the largest level."""
        cdef Py_ssize_t i, j, most = 0
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
            most = max(most, <Py_ssize_t>self.level_end[i + 1])
            self.level_end[i + 1] += self.level_end[i]
        for i in range(self.n):
            if self.may_merge(i):
                self.write(&self.record[self.level_end[level[i]]], <int32_t>i)
                self.level_end[level[i]] += 1
        return most

    cdef inline bint may_merge(self, Py_ssize_t i) except -1 nogil:
        return self.start[i] == i and not self.flags[i] & never_merges

    cdef inline int write(self, Record *record, int32_t node) except -1 nogil:
        cdef Py_ssize_t at = self.offsets[node]
        record.node, record.key = node, <int32_t>self.key[node]
        record.arity = <int32_t>(self.offsets[node + 1] - at)
        record.first = self.operands[at] if record.arity > 0 else 0
        record.second = self.operands[at + 1] if record.arity > 1 else 0
        if record.arity == 2 and self.flags[node] & commutative:
            record.second = ~record.second
        return 0

    cdef int look_up(self, Py_ssize_t begin, Py_ssize_t end) except -1 nogil:
        """Put leaders in place of operands."""
        cdef Py_ssize_t i
        cdef int32_t first, second
        cdef Record *record
        for i in range(begin, end):
            if i + 2 * SOON < end:
                record = &self.record[i + 2 * SOON]
                prefetch(&self.leader[record.first])
                prefetch(&self.leader[record.second if record.second >= 0 else ~record.second])
            record = &self.record[i]
            first, second = record.first, record.second
            if second >= 0:
                if record.arity > 0:
                    record.first = self.leader[first]
                if record.arity > 1:
                    record.second = self.leader[second]
            else:
                first, second = self.leader[first], self.leader[~second]
                record.first, record.second = min(first, second), max(first, second)
        return 0

    cdef inline int push(self, Py_ssize_t begin, Py_ssize_t end, int32_t by) except -1 nogil:
        if end - begin > 1:
            self.pending[self.top, 0] = <int32_t>begin
            self.pending[self.top, 1] = <int32_t>end
            self.pending[self.top, 2] = by
            self.top += 1
        return 0

    cdef inline int32_t colour(self, const Record *record, int32_t by) except -1 nogil:
        """Key for by = 0, arity for by = 1, leader of operand by - 2 after that."""
        if by == 0:
            return record.key
        if by == 1:
            return record.arity
        if by == 2:
            return record.first
        if by == 3:
            return record.second
        return self.leader[self.operands[self.offsets[record.node] + by - 2]]

    cdef int split(self, Py_ssize_t begin, Py_ssize_t end, int32_t by) except -1 nogil:
        cdef Py_ssize_t i, at = begin
        cdef int32_t first = self.record[begin].node, part, parts = 0, count, colour
        if end - begin == 2:
            return self.pair(&self.record[begin], &self.record[begin + 1])
        if by >= 2 and by - 2 == self.record[begin].arity:
            for i in range(begin, end):
                self.leader[self.record[i].node] = first
            return 0
        if self.base > 0x7FFFFFFF - (end - begin):
            self.part_of_colour[:] = 0
            self.base = 1
        for i in range(begin, end):
            if by >= 2 and i + SOON < end:
                prefetch(&self.part_of_colour[self.colour(&self.record[i + SOON], by)])
            colour = self.colour(&self.record[i], by)
            part = self.part_of_colour[colour] - self.base      # negative: not met in this split
            if part < 0:
                part = parts
                self.part_of_colour[colour] = self.base + part
                self.size[part] = 0
                parts += 1
            self.part[i] = part
            self.size[part] += 1
        self.base += parts
        if parts == 1:
            return self.push(begin, end, by + 1)
        if parts == end - begin:
            return 0
        for part in range(parts):
            count = self.size[part]
            self.size[part] = <int32_t>(at - begin)
            self.push(at, at + count, by + 1)
            at += count
        for i in range(begin, end):
            self.moved[self.size[self.part[i]]] = self.record[i]
            self.size[self.part[i]] += 1
        memcpy(&self.record[begin], self.moved, (end - begin) * sizeof(Record))
        return 0

    cdef int pair(self, const Record *first, const Record *second) except -1 nogil:
        """What splitting two nodes comes to: they differ somewhere, or are equal."""
        cdef int32_t by
        if first.key != second.key or first.arity != second.arity or first.first != second.first \
                or first.second != second.second:
            return 0
        for by in range(4, 2 + first.arity):
            if self.colour(first, by) != self.colour(second, by):
                return 0
        self.leader[second.node] = first.node
        return 0


def refine(table, *, leader=None):
    with blocks_kept(len(table)):
        return _refined(table, leader)


def _refined(table, leader):
    start = identity_leaders(len(table)) if leader is None else leader
    operands = table.operands if leader is None else leader[table.operands]
    result = start.copy()
    cdef _Refinement refinement = _Refinement(table, operands, start, result)
    refinement.merged_before = leader is not None
    refinement.run()
    return result


refine.__doc__ = twin.__doc__
