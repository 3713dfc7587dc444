"""Bring a cotangent to the shape and dtype of its operand."""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_dtype, ao_method, ao_sum_first, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.kernels cimport sizes
from autograd_opt.graph.handles cimport held_node
from autograd_opt.graph.node cimport LEAF, Node, is_custom, shape_of

ao_use_reads(reads_address())
cdef object summed = private.TensorBase.__dict__["sum"]
cdef object sum_to_size = private.TensorBase.__dict__["sum_to_size"]
cdef tuple LEADING = (0,)


cdef object operand_shape(object g):
    """Return the shape of a cotangent, from its node where a mode would see the read."""
    return g.shape if getattr(g, "_node", None) is not None else shape_of(g)


cdef object dtype_of(object g):
    """Return the dtype of a cotangent, likewise."""
    cdef Node node
    if is_custom(g):
        node = held_node(g)
        if node is not None and not node.flags & LEAF:
            return node.dtype
    return ao_dtype(g)


cdef object sum_to(object g, object have, object shape):
    """Sum over the axes that broadcasting added or stretched."""
    cdef Py_ssize_t lead = len(have) - len(shape), i
    leading = tuple(range(lead))
    inner = tuple([i for i in range(lead, len(have)) if shape[i - lead] == 1 and have[i] != 1])
    if not inner:
        return g.sum(leading) if lead else g
    if not lead:
        return g.sum(inner, keepdim=True)
    return g.sum(leading + inner, keepdim=True).reshape(shape)


cdef object summed_as_view(object g, object have, object shape):
    """Do the same for a target of `grad`: a view where axes are gone, as in torch, whom the user can ask for it."""
    cdef Py_ssize_t lead = len(have) - len(shape), i
    if lead <= 0:
        return sum_to(g, have, shape)
    if not len(shape):
        return g.sum()                       # torch has no axes to give it then
    stretched = tuple([i for i in range(len(have)) if i < lead or shape[i - lead] == 1 and have[i] != 1])
    return g.sum(stretched, keepdim=True).view(shape)


cdef object summed_to(object g, object have, object shape):
    """Do the same on plain values; leading axes alone, as under a bias, need no second kernel."""
    cdef Py_ssize_t rank = len(<tuple>shape), lead = len(<tuple>have) - rank
    if lead > 0 and (rank == 1 and (<tuple>have)[lead] == (<tuple>shape)[0] or have[lead:] == shape):
        return ao_sum_first(summed, g, LEADING) if lead == 1 else ao_method(summed, g, (tuple(range(lead)),))
    return ao_method(sum_to_size, g, sizes(shape))


cdef object fit(object g, Node operand, bint as_view):
    """Sum `g` over broadcast axes and cast it to the operand's dtype (real part of complex)."""
    cdef object have = operand_shape(g)
    if have != operand.shape:
        g = summed_as_view(g, have, operand.shape) if as_view else sum_to(g, have, operand.shape)
    if dtype_of(g) is not operand.dtype:
        if g.is_complex() and not operand.dtype.is_complex:
            g = g.real
        g = g.to(operand.dtype)
    return g
