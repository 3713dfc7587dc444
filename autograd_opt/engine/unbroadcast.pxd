"""Bring a cotangent to the shape and dtype of its operand."""

from autograd_opt.graph.node cimport Node

cdef object operand_shape(object g)
cdef object dtype_of(object g)
cdef object sum_to(object g, object have, object shape)
cdef object summed_as_view(object g, object have, object shape)
cdef object summed_to(object g, object have, object shape)
cdef object fit(object g, Node operand, bint as_view)
