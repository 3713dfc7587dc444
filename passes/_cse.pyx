"""Common subexpressions: nodes that compute the same value get one leader.

One forward sweep of hash-consing. A node is its key and the leaders of its
operands; an open-addressing table holds one node of each kind seen so far. The
hash only says where to look: the full content decides. Should the hash fail
(more than a few probes a node), the sweep begins again with another, drawn at
random. `cse.py` says the same in plain Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import os

import numpy as np

from autograd_opt.passes import flags as _flags
from autograd_opt.passes.cse import cse as twin
from autograd_opt.passes.effort import degenerate_hash_forced
from autograd_opt.passes.leaders import first_merges, identity_leaders

cdef uint8_t commutative = _flags.COMMUTATIVE
cdef uint8_t never_merges = _flags.NEVER_MERGES
cdef uint64_t odd = 0x9E3779B97F4A7C15u  # 2^64 / golden ratio
cdef uint64_t tag_bits = 0xFFFFFFFF00000000u


cdef enum:
    EARLY = 4096    # probes, beside 16 for each node so far, that tell a hash that always collides soon
    HASHES = 8      # after so many that fail, the last one is kept to


cdef struct Counts:
    Py_ssize_t probes
    Py_ssize_t comparisons


cdef inline uint64_t hash_node(
    Py_ssize_t i,
    uint64_t spread,
    const int64_t[::1] key,
    const int64_t[::1] offsets,
    const int32_t[::1] operands,
    const uint8_t[::1] flags,
    const int32_t[::1] leader,
    int32_t[::1] value,
) except? 0 nogil:
    """Write `value` of node i from today's leaders and hash it with its key."""
    cdef Py_ssize_t begin = offsets[i], end = offsets[i + 1], j
    cdef uint64_t h = <uint64_t>key[i] * spread
    cdef int32_t first
    for j in range(begin, end):
        value[j] = leader[operands[j]]
    if flags[i] & commutative and end - begin == 2 and value[begin] > value[begin + 1]:
        first = value[begin]
        value[begin] = value[begin + 1]
        value[begin + 1] = first
    for j in range(begin, end):
        h = (h ^ <uint32_t>value[j]) * spread
        h ^= h >> 32
    return h * spread


cdef inline bint same(
    int32_t a,
    int32_t b,
    const int64_t[::1] key,
    const int64_t[::1] offsets,
    const int32_t[::1] value,
) except -1 nogil:
    cdef Py_ssize_t i = offsets[a], j = offsets[b], end = offsets[a + 1]
    if key[a] != key[b] or end - i != offsets[b + 1] - j:
        return False
    while i < end and value[i] == value[j]:
        i += 1
        j += 1
    return i == end


cdef bint sweep(
    uint64_t spread,
    const int64_t[::1] key,
    const int64_t[::1] offsets,
    const int32_t[::1] operands,
    const uint8_t[::1] flags,
    int32_t[::1] leader,
    int32_t[::1] value,
    uint64_t[::1] slot,
    Counts *counts,
    bint bounded,
) except -1 nogil:
    """Set `leader`; return False if too many probes were needed and their number is bounded.

    `value` gets the leaders of all operands, ordered where the order is free. A
    slot holds half a hash as a tag, above a node number + 1; 0 is empty.
    """
    cdef Py_ssize_t n = key.shape[0], mask = slot.shape[0] - 1
    cdef Py_ssize_t i, p, probes = 0, comparisons = 0, most = 65536 + 4 * n
    cdef int32_t other
    cdef uint64_t h, entry
    cdef uint8_t never = never_merges
    for i in range(n):
        if leader[i] != i:
            leader[i] = leader[leader[i]]
            continue
        if flags[i] & never:
            continue
        h = hash_node(i, spread, key, offsets, operands, flags, leader, value)
        p = <Py_ssize_t>(h >> 16) & mask
        h &= tag_bits
        while True:
            probes += 1
            entry = slot[p]
            if entry == 0:
                slot[p] = h | <uint32_t>(i + 1)
                break
            if entry & tag_bits == h:
                comparisons += 1
                other = <int32_t>(<uint32_t>entry - 1)
                if same(<int32_t>i, other, key, offsets, value):
                    leader[i] = other
                    break
            p = (p + 1) & mask
        if bounded and (probes > most or probes > EARLY + 16 * i):
            break
    else:
        i = n
    counts.probes += probes
    counts.comparisons += comparisons
    return i == n


cdef Py_ssize_t slots_for(Py_ssize_t n) noexcept nogil:
    """The power of two that leaves a third of the slots free, or more."""
    cdef Py_ssize_t slots = 16
    while 2 * slots < 3 * n:
        slots *= 2
    return slots


def cse(table, *, leader=None, limit=None, degenerate_hash=None, effort=None):
    start = identity_leaders(len(table)) if leader is None else leader
    if degenerate_hash is None:
        degenerate_hash = degenerate_hash_forced()
    result = start.copy()
    cdef uint64_t spread = 0 if degenerate_hash else odd
    cdef const int64_t[::1] key = table.key, offsets = table.offsets
    cdef const int32_t[::1] operands = table.operands
    cdef const uint8_t[::1] flags = table.flags
    cdef int32_t[::1] leaders = result
    cdef int32_t[::1] value = np.empty(len(operands), np.int32)
    cdef uint64_t[::1] slot = np.zeros(slots_for(len(key)), np.uint64)
    cdef Counts counts
    cdef int tries = 1
    cdef bint done
    counts.probes = counts.comparisons = 0
    with nogil:
        done = sweep(spread, key, offsets, operands, flags, leaders, value, slot, &counts, True)
    while not done:
        # whoever has chosen the keys cannot know this hash
        spread = int.from_bytes(os.urandom(8), "little") | 1
        result[:] = start
        slot[:] = 0
        tries += 1
        with nogil:
            done = sweep(spread, key, offsets, operands, flags, leaders, value, slot, &counts, tries < HASHES)
    if effort is not None:
        effort.probes += counts.probes
        effort.comparisons += counts.comparisons
        effort.hashes += tries
    return result if limit is None else first_merges(result, start, limit)


cse.__doc__ = twin.__doc__
