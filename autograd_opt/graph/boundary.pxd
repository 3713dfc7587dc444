"""Where a recorded part of a torch program meets the rest of it."""

from autograd_opt.graph.tape cimport Tape

cpdef tuple boundary(Tape tape)
cpdef list nodes_of(Tape tape, list tensors)
cpdef list reached(Tape tape, list roots, list leaves)
cpdef int lead_on(list leaves, list tensors) except -1
cpdef int loosen(Tape tape, list leaves) except -1
cpdef object hand_over(Tape tape, t)
cpdef int become_torchs(object t) except -1
cpdef list kept_outside(Tape tape, dict known, list but)
cdef bint reaches_all() noexcept
