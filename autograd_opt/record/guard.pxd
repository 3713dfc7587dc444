"""Switch torch functions off while a tape reads, computes or records."""

from autograd_opt.graph.tape cimport Tape

cdef size_t enter(Tape tape) except? 1
cdef int leave(Tape tape, size_t before) except -1
cdef bint set_grad_mode(bint on) except -1
