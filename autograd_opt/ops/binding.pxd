"""What the recorder calls of this module."""

cdef class Plan:
    cdef dict where, fixed
    cdef tuple targets, defaults, lists
    cdef Py_ssize_t count, positional, operands, width
    cdef bint collects, host, real
    cdef tuple bind(self, tuple args, dict kwargs)
    cdef tuple collected(self, tuple args)

cdef class Constant:
    cdef tuple names

cdef object placed(object func, object kwargs)
