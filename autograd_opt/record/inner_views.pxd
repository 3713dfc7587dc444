"""Views that a rule reads, and lets nobody see."""

from autograd_opt.graph.node cimport Op
from autograd_opt.graph.tape cimport Tape

cdef object inner_view(Tape tape, Op op, object func, object t)
