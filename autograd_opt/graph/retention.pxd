"""Values held only for reuse, and the bytes that they may take."""

from autograd_opt.graph.node cimport Node

cdef Py_ssize_t nbytes(object shape, object dtype) except -1

cdef class Retention:
    cdef public Py_ssize_t missed_bytes, saved_bytes, kept_bytes, peak_kept_bytes
    cdef Py_ssize_t allowance
    cdef bint counting           # are the bytes of living outputs counted?
    cdef Py_ssize_t alive_bytes, largest, expected
    cdef Py_ssize_t freeing      # runs under way that free the graph
    cdef readonly Py_ssize_t most_alive
    cdef public bint steady      # values held for reuse give way to none that comes later
    cdef public bint advance     # the whole allowance from the start, not only once it was missed
    cdef object ring             # deque of nodes whose value is kept for reuse
    cdef Py_ssize_t budget(self) noexcept
    cdef int count(self, Node node) except -1
    cdef void uncount(self, Node node) noexcept
    cdef int lost(self, Node node, bint wanted=*) except -1
    cdef int inherit(self, Node node) except -1
    cdef int keep(self, Node node) except -1
    cdef int evict(self, Py_ssize_t limit) except -1
