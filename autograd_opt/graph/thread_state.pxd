"""A thread's state: which tape records in it, and autograd's dispatch keys around calls that torch itself differentiates."""

from cpython.object cimport PyObject


cdef class included_autograd:
    cdef int excluded                    # which of the keys were out

    cdef int enter(self) except -1
    cdef int leave(self) except -1


cdef class torch_autograd:
    cdef bint grad, functions, mode
    cdef int paused
    cdef size_t before                   # what torch functions were
    cdef object guard
    cdef included_autograd included


cdef bint exclude_views() except -1
cdef int include_views() except -1
cdef int exclude_autograd() except -1
cdef int include_autograd(int included) except -1
cdef PyObject *active() noexcept
cdef PyObject *recording() noexcept
cdef int forget_active(PyObject *tape) noexcept
cdef int set_paused(int value) noexcept
