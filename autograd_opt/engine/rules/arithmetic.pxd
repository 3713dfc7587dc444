"""Differentiate arithmetic and functions of one operand by rules in C."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_arithmetic(GraphTask task, Node node, int hot, object g) except -1
cdef int native_function(GraphTask task, Node node, int hot, object g) except -1
cdef int native_bend(GraphTask task, Node node, int hot, object h) except -1
