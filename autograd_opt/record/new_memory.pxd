"""Call kernels whose results are new memory as torch's own nodes call them: without the key for views and writes."""

cdef bint alone(object func, object kwargs) except -1
cdef object call_alone(object func, tuple args, object kwargs, bint *new)
