"""Read properties of plain tensors past the mode."""

cpdef int escaped(object t) except -1
