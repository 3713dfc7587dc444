"""Differentiate one fused layer of the long short-term memory."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_lstm(GraphTask task, Node node, object g) except -1
