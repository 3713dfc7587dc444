"""Differentiate views, copies and sums by rules in C: the cotangent itself, lying another way."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_shape(GraphTask task, Node node, int hot, object g) except -1
cdef object count(object shape, object dim)
