"""Where a tensor itself is among others."""

cdef Py_ssize_t place_of(object t, object several) except -2
