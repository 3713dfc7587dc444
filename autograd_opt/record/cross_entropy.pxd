"""Record `cross_entropy` as the two operators that it is made of."""

from autograd_opt.graph.node cimport Op

cdef class CrossEntropy:
    cdef Op log_softmax, nll
    cdef dict attributes, reductions
    cdef object whole
    cdef object record(self, tuple args, dict kwargs)
    cdef object uncast(self, tuple args, dict kwargs)
