"""Whether numbering values pays in the graphs that are opened at one place of a program."""

from autograd_opt.graph.tape cimport Tape

cdef bint rests(object place) except -1
cdef int learn_graph(object place, Tape tape) except -1
cdef int forget_graphs() except -1
