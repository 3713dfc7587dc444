"""The nodes on the ways from the roots of a run to its targets."""

from autograd_opt.graph.node cimport Leads
from autograd_opt.graph.tape cimport Tape

cdef Leads needed_for(Tape tape, list roots, dict targets, set makers, bint merge)
cdef bint intermediate(inputs) except -1
cdef set makers_of(list inputs)
cdef list called_at(list inputs)
