"""Differentiate products of matrices by rules in C."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_matmul(GraphTask task, Node node, object g) except -1
cdef int native_linear(GraphTask task, Node node, tuple operands, object g) except -1
cdef int native_addmm(GraphTask task, Node node, tuple operands, object g) except -1
