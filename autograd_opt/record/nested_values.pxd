"""Find and replace the tensors inside arguments and results."""

cpdef list collect(x, list out=*)
cdef list tensors_of(tuple args, dict kwargs)
