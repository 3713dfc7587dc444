"""Record what autocast makes of an operator of the table."""

cdef object lowered(str name, tuple args, dict kwargs)
cdef bint spared(str name) except -1
cdef tuple with_casts(object func, tuple args, dict kwargs)

cdef class autocast_off:
    cdef str device
    cdef bint leave_on(self, tuple args, dict kwargs) except -1
    cdef int back(self) except -1

cdef int install_casts(object recorder) except -1
