"""Gradients of leaves: written once, taken over when nobody else holds them."""

from autograd_opt.graph.node cimport Node

cdef bint hookless(object t) except -1
cdef bint write_grad(Node node, object g, bint sole, bint fresh, bint solid) except -1
