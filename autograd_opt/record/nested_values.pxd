"""Find and replace the tensors inside arguments and results."""

cpdef object collect(x, list out)
cdef list tensors_of(tuple args, dict kwargs)
