"""The structure of a recorded graph as a row of integers."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from autograd_opt.graph.node cimport Node

# What a value is, before its content.
cdef enum Tag:
    NONE = 1, FALSE, TRUE, INT, FLOAT, COMPLEX, WORD, SEQUENCE, SLICE, ELLIPSIS, ALIKE, ATTRIBUTES, STRING

cdef class Structure:
    cdef int64_t *row
    cdef Py_ssize_t n, capacity
    cdef uint64_t hash
    cdef readonly Py_ssize_t nodes
    cdef PyObject *shape                 # borrowed, while nodes are appended: the latest shape, and the one before it
    cdef PyObject *other_shape
    cdef int reserve(self, Py_ssize_t words) except -1
    cdef int push(self, int64_t word) except -1
    cdef int end(self, list roots, list captured) except -1
    cdef int value(self, object v) except -1
    cdef int node(self, Node node, Node last) except -1
