"""Record the rules of operators of hot loops."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, Op

cdef int recorded(GraphTask task, Node node, Op op, object g) except -1
