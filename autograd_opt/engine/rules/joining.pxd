"""Differentiate operators that join operands, or take one apart, by rules in C."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_where(GraphTask task, Node node, tuple operands, object g) except -1
cdef int native_stack(GraphTask task, Node node, tuple operands, object g) except -1
cdef int native_cat(GraphTask task, Node node, tuple operands, object g) except -1
cdef int native_parts(GraphTask task, Node node, int hot, object g) except -1
