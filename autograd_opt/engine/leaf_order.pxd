"""Visit leaves in torch's order, where hooks or neighbours show it."""

from libc.stdint cimport int64_t

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int find_last(GraphTask task, list roots) except -1
cdef list due_leaves(GraphTask task, Node user)
cdef bint beside(GraphTask task, int64_t index) except -1
cdef bint in_turn(GraphTask task, Node bias) except -1
cdef list take_neighbours(GraphTask task, int64_t last)
cdef list heap_order(list leaves)
