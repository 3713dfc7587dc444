"""Record any operator of the table: `apply`."""

from autograd_opt.graph.node cimport Op
from autograd_opt.graph.tape cimport Tape

cpdef apply(Op op, func, tuple args, dict kwargs, tuple operands, dict attrs)
cdef object recorded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact)
cdef object record(Tape tape, Op op, object func, tuple args, tuple operands, dict attrs)
