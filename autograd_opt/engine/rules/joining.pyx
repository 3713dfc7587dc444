"""Differentiate operators that join operands, or take one apart, by rules in C."""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_get, ao_method, ao_own
from autograd_opt.engine.hot cimport UNBIND
from autograd_opt.engine.kernels cimport narrow, new_zeros, sizes
from autograd_opt.engine.rules.passing cimport dense, pass_on
from autograd_opt.engine.rules.placing cimport pass_place
from autograd_opt.engine.saved_values cimport saved
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, Node, attribute, unbroadcast
from autograd_opt.graph.plain_values cimport is_float

cdef object get_data = ao_own(private.TensorBase.__dict__["data"])
cdef object unbind = private.TensorBase.__dict__["unbind"]
cdef object where = private.VariableFunctions.where
cdef object cat = private.VariableFunctions.cat
cdef object stack = private.VariableFunctions.stack
cdef dict _zeros = {}


cdef int native_where(GraphTask task, Node node, tuple operands, object g) except -1:
    """A choice between two operands."""
    cdef object x
    x = saved(node, 0)
    if task.wants(operands[2]):
        pass_on(task, node, operands[2], where(x, zero_of(node.dtype, node.device), g), UNBROADCASTN, True)
    if task.wants(operands[1]):
        pass_on(task, node, operands[1], where(x, g, zero_of(node.dtype, node.device)), UNBROADCAST1, True)
    return 1


cdef object zero_of(object dtype, object device):
    """A zero without axes, made once."""
    found = _zeros.get((dtype, device))
    if found is None:
        found = _zeros[dtype, device] = torch.zeros((), dtype=dtype, device=device)
    return found


cdef int native_stack(GraphTask task, Node node, tuple operands, object g) except -1:
    """Operands side by side along a new axis."""
    cdef Py_ssize_t i
    parts = ao_method(unbind, g, (attribute(node, "dim"),))
    for i in range(len(operands) - 1, -1, -1):
        if task.wants(operands[i]):
            pass_on(task, node, operands[i], parts[i], unbroadcast(i), False)
    return 1


cdef int native_cat(GraphTask task, Node node, tuple operands, object g) except -1:
    """Operands one after the other along an axis."""
    cdef Node other
    cdef Py_ssize_t i, length, start = 0
    dim = attribute(node, "dim")
    for other in operands:
        if other is None or len(other.shape) != len(node.shape):
            return 0
        start += other.shape[dim]
    for i in range(len(operands) - 1, -1, -1):
        other = operands[i]
        length = other.shape[dim]
        start -= length
        if task.wants(other):
            pass_on(task, node, other, ao_method(narrow, g, (dim, start, length)), unbroadcast(i), False)
    return 1


cdef int native_parts(GraphTask task, Node node, int hot, object g) except -1:
    """`unbind` and the kinds of `split`: the cotangents of the outputs, joined."""
    cdef Node a = node.in0
    cdef Py_ssize_t i, only = -1, given = 0, start = 0
    cdef dict zeros = {}
    if a is None or not is_float(a.dtype):
        return 0
    if not task.wants(a):
        return 1
    parts = g.parts
    for i, part in enumerate(parts):
        if part is not None:
            if not dense(part):
                return 0
            only = i
            given += 1
    dim = attribute(node, "dim") % len(<tuple>a.shape)
    if given == 1:
        if hot == UNBIND:
            index = only
        else:
            for i in range(only):
                start += node.shape[i][0][dim]
            index = slice(start, start + node.shape[only][0][dim])
        pass_place(task, node, a, parts[only], (slice(None),) * dim + (index,), True)
        return 1
    joined = list(parts)
    for i, part in enumerate(parts):
        if part is None:
            shape = node.shape[i][0]
            if shape not in zeros:
                zeros[shape] = ao_method(new_zeros, parts[only], sizes(shape))
            joined[i] = zeros[shape]
    # torch's kernel returns a view of memory that eager mode does not show
    whole = ao_get(get_data, stack(joined, dim)) if hot == UNBIND else cat(joined, dim)
    pass_on(task, node, a, whole, UNBROADCAST0, True)
    return 1
