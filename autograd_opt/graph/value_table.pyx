"""The table of values of one graph: keys of three integers, found by hashing and compared in full."""

import os

from libc.string cimport memset
cimport cython

from autograd_opt.graph.blocks cimport give, take

cdef bint degenerate = bool(os.environ.get("AUTOGRAD_OPT_DEGENERATE_HASH"))


@cython.no_gc
@cython.final
cdef class ValueTable:
    """Entries by open addressing; `find` is in the .pxd, so that it stands in its callers' loops."""

    def __cinit__(self):
        self.degenerate = degenerate

    def __dealloc__(self):
        give(self.entries, (self.mask + 1) * sizeof(Entry))

    cdef int allocate(self, size_t capacity) except -1:
        self.entries = <Entry *>take(capacity * sizeof(Entry))
        memset(self.entries, 0, capacity * sizeof(Entry))
        self.mask = capacity - 1
        self.used = 0
        return 0

    cdef int grow(self) except -1:
        cdef Entry *old = self.entries
        cdef size_t n = self.mask + 1, i
        cdef Entry *e
        self.moves += 1
        self.allocate(2 * n)
        for i in range(n):
            if old[i].first != NULL:
                e = find(self, old[i].a, old[i].b, old[i].kind)
                e[0] = old[i]
                self.used += 1
        give(old, n * sizeof(Entry))
        return 0

    cdef void clear(self) noexcept:
        """Forget every value."""
        if self.entries != NULL and self.used:
            memset(self.entries, 0, (self.mask + 1) * sizeof(Entry))
            self.used = 0
        self.moves += 1
