"""Learn at which places of a program values are found again, and numbering calls is worth while."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.graph.node cimport Node

cdef struct Site:
    PyObject *code                   # owned: an address stays one object's
    int lasti
    uint32_t misses                  # calls there that found no value, nor were found, less what the others have saved

cdef uint32_t MORE_MISSES

cdef bint settled() noexcept
cdef bint settled_after(uint32_t misses) noexcept
cdef Site *missed_here(bint req) noexcept
cdef int learn(Node node, Node first) except -1
cdef Py_ssize_t work(Node node) except -1
cdef int learn_function(bint found) noexcept
cdef int forget_sites() except -1
cdef bint all_numbered() noexcept
