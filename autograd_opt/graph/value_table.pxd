"""The table of values of one graph: which node was the first of a value."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

cdef struct Entry:
    int64_t a
    int64_t b
    uint64_t kind
    PyObject *first              # borrowed Node: the leader

cdef class ValueTable:
    cdef Entry *entries
    cdef size_t mask, used
    cdef Py_ssize_t moves        # how often entries were moved or forgotten
    cdef bint degenerate         # are all hashes forced to be equal, so that only comparisons tell values apart?
    cdef int allocate(self, size_t capacity) except -1
    cdef int grow(self) except -1
    cdef void clear(self) noexcept

cdef inline Entry *find(ValueTable table, int64_t a, int64_t b, uint64_t kind) except NULL:
    """The entry of this key, empty (`first == NULL`) where it is new."""
    cdef uint64_t h
    cdef size_t i
    cdef Entry *e
    if 2 * table.used > table.mask:
        table.grow()
    h = (<uint64_t>a * 0x9E3779B97F4A7C15ULL) ^ (<uint64_t>b * 0xC2B2AE3D27D4EB4FULL) ^ (kind * 0x165667B19E3779F9ULL)
    h ^= h >> 29
    h *= 0xBF58476D1CE4E5B9ULL
    h ^= h >> 32
    if table.degenerate:
        h = 0
    i = <size_t>h & table.mask
    while True:
        e = &table.entries[i]
        if e.first == NULL:
            e.a, e.b, e.kind = a, b, kind
            return e
        if e.a == a and e.b == b and e.kind == kind:
            return e
        i = (i + 1) & table.mask
