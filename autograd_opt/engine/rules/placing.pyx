"""Put the cotangent of a part where the part lies, among zeros."""

from autograd_opt.abi.ctorch cimport ao_into, ao_method, ao_use_reads
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.kernels cimport IADD_K, iadd, new_zeros, reshape, sizes
from autograd_opt.engine.rules.passing cimport adds, pass_on
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport MULTI, Node
from autograd_opt.graph.plain_values cimport takes_all

ao_use_reads(reads_address())
cdef object copy_ = private.TensorBase.__dict__["copy_"]
cdef object pad = private.VariableFunctions.constant_pad_nd


cdef int pass_place(GraphTask task, Node node, Node operand, object g, tuple index, bint own) except -1:
    """Zeros of the operand's shape with `g` at a basic index"""
    cdef Node target
    cdef bint fresh = False
    if operand.op.flags & MULTI:
        g = placed(g, operand.shape, index, own, &fresh)
        return pass_on(task, node, operand, g, 0, False)
    target = task.aim(operand)
    if target is None:
        return 0
    if adds(task, target):
        ao_into(IADD_K, iadd, (<object>target.cotangent)[index], (g,))
        return 0
    g = placed(g, operand.shape, index, own, &fresh)
    return task.put(target, g, fresh)


cdef object placed(object g, object shape, tuple index, bint own, bint *fresh):
    """Zeros of `shape` with `g` at a basic `index`, in one kernel where every step is 1.

    `own`: in memory of its own, also where the index takes everything.
    """
    cdef list pads = [], inner = []
    cdef Py_ssize_t axis = 0, skip, start, stop, step
    cdef bint padded = False, plain = True
    fresh[0] = True
    for e in index:
        if e is None:
            plain = False
            continue
        if e is Ellipsis:
            skip = len(shape) - sum([i is not None and i is not Ellipsis for i in index])
            for axis in range(axis, axis + skip):
                inner.append(shape[axis])
                pads.append((0, 0))
            axis = len(inner)
            continue
        if type(e) is int:
            start = e if e >= 0 else e + shape[axis]
            stop = start + 1
            plain = False
        else:
            start, stop, step = e.indices(shape[axis])
            if step != 1:
                out = ao_method(new_zeros, g, sizes(shape))
                out[index] = g
                return out
            stop = max(start, stop)
        inner.append(stop - start)
        pads.append((start, shape[axis] - stop))
        padded = padded or start != 0 or stop != shape[axis]
        axis += 1
    if not plain:
        g = ao_method(reshape, g, sizes((*inner, *shape[axis:])))
    if not padded:
        if own:
            out = ao_method(new_zeros, g, sizes(shape))
            ao_method(copy_, out, (g,))
            return out
        fresh[0] = False
        return g
    return pad(g, [0] * (2 * (len(shape) - axis)) + [n for pair in reversed(pads) for n in pair])


cpdef bint parts_taken(tuple index, object shape) except -1:
    """Does torch take a part for this index?  A slice that stands alone is one even if it takes everything."""
    cdef Py_ssize_t axis = 0, i
    if len(index) == 1:
        return type(index[0]) is slice or type(index[0]) is int
    for entry in index:
        if entry is Ellipsis:
            axis = len(shape)
            for i in range(len(index) - 1, -1, -1):
                if index[i] is Ellipsis:
                    break
                axis -= index[i] is not None
        elif entry is not None:
            if not takes_all(entry, shape[axis]):
                return True
            axis += 1
    return False
