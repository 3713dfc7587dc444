"""The classes under which nodes are shown."""

from autograd_opt.graph.node cimport Node

cdef Node shown(Node node)
