"""Choose the rule in C for an operator of hot loops."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, Op

cdef int native(GraphTask task, Node node, Op op, object g) except -1
