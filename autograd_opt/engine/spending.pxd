"""Drop what nodes have saved, behind a run that frees the graph."""

from libc.stdint cimport int64_t

from autograd_opt.graph.node cimport Leads, Node
from autograd_opt.graph.tape cimport Tape

cdef void spend(Tape tape, Node node) noexcept
cdef void spend_twin(Tape tape, Node node, int64_t task, Leads needed) noexcept
