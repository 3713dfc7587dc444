"""Which line of the user's has last written a memory without a record."""

from autograd_opt.graph.node cimport Node


cdef class UnrecordedWrites:
    cdef dict known              # storage -> a weak reference to it, and where its latest unrecorded write was
    cdef Py_ssize_t due          # so many are looked through for memory that is gone

    cdef int note(self, object t) except -1
    cdef int forget(self) except -1
    cpdef int locate(self, Node node, object t) except -1
    cdef int clear(self) except -1
