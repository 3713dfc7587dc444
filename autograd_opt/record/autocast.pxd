"""Record what autocast makes of an operator of the table."""

from autograd_opt.graph.node cimport Op

cdef object lowered(Op op, tuple args, dict kwargs)
cdef int install_casts(object route) except -1
