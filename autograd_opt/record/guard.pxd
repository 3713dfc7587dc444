"""Switch torch functions off while a tape reads, computes or records."""

from autograd_opt.graph.tape cimport Tape

cdef object enter(Tape tape)
cdef int leave(Tape tape, object switch) except -1
cdef bint set_grad_mode(bint on) except -1
