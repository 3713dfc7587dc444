"""Which nodes hand their cotangent to their leader."""

from cpython.object cimport PyObject

from autograd_opt.graph.node cimport Node

cdef class Merges:
    cdef public Py_ssize_t twins, merging        # nodes with a leader; those that a cotangent may reach
    cdef public Py_ssize_t handed                # cotangents that have gone to a leader, in all runs so far
    cdef Py_ssize_t resolved, resolved_changes   # so many nodes are decided, after so many changes
    cdef int resolve(self, PyObject **nodes, Py_ssize_t n, Py_ssize_t changes, dict captured) except -1
    cdef int mergeable(self, Node node, dict captured) except -1
