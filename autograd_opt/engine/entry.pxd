"""Run the backward of an ordinary training step, or an ordinary part of a run of torch's."""

from autograd_opt.graph.tape cimport Tape

cdef bint plain_cotangent(object g) except -1
cpdef list run_for_torch(Tape tape, list roots, list cotangents, list targets, bint retain, bint onward,
                         bint everything)
