"""Put the cotangent of a part where the part lies, among zeros."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int pass_place(GraphTask task, Node node, Node operand, object g, tuple index, bint own) except -1
cpdef bint parts_taken(tuple index, object shape) except -1
