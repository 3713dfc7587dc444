"""Read what a node has saved, and refuse what was written since."""

from autograd_opt.graph.node cimport Node

cdef object stale(Node node, int i)
cdef object saved(Node node, int i)
cpdef object require_unwritten(Node node)
cdef object answer(Node node, bint recorded)
cdef bint stateless(Node node) except -1
