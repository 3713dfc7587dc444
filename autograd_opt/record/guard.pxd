"""Switch torch functions off while a tape reads, computes or records."""

cimport cython

from autograd_opt.graph.tape cimport Tape

cdef size_t enter(Tape tape) except? 1
cdef int leave(Tape tape, size_t before) except -1
cdef bint set_grad_mode(bint on) except -1

@cython.final
cdef class user_state:
    cdef object enabled                  # torch's own switch, where its number is not known
    cdef Tape tape
    cdef int paused, switch
    cdef bint resumed, guarded, grad_mode, pushed
    cdef int begin(self) except -1
    cdef int end(self) except -1
