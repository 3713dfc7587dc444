"""Nodes asked for before they are read: a walk over all nodes of a graph otherwise waits for memory at each."""

from cpython.object cimport PyObject

include "../passes/early.pxi"

cdef inline void ao_ask_early(PyObject **nodes, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    cdef const char *p
    if i + 8 < n:
        p = <const char *>nodes[i + 8]
        prefetch(p)
        prefetch(p + 64)
        prefetch(p + 128)
