"""Differentiate layers of networks by one backward kernel each."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef int native_layer(GraphTask task, Node node, int hot, object g) except -1
