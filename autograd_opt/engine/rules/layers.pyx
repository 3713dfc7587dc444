"""Differentiate layers of networks: one backward kernel each, with what its forward kernel has kept."""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_direct_nll_back, ao_dtype, ao_nll_back, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.hot cimport AXES, CONV, DROPOUT, EMBEDDING, LAYER_NORM, MAX_POOL, NLL
from autograd_opt.engine.kernels cimport Tensor
from autograd_opt.engine.rules.passing cimport pass_on, tensor_like, times, writable
from autograd_opt.engine.rules.views cimport turned_back
from autograd_opt.engine.saved_values cimport saved
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, attribute
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.record.saved_tensors import Packed

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

ao_use_reads(reads_address())
cdef object aten = torch.ops.aten
cdef object convolution_backward = private.direct(aten.convolution_backward.default)
cdef object batch_norm_backward = private.direct(aten.native_batch_norm_backward.default)
cdef object batch_norm_index_backward = private.direct(aten._batch_norm_impl_index_backward.default)
cdef object layer_norm_backward = private.direct(aten.native_layer_norm_backward.default)
cdef object max_pool_backward = private.direct(aten.max_pool2d_with_indices_backward.default)
cdef object nll_backward = private.direct(aten.nll_loss_backward.default)
cdef object embedding_backward = private.direct(aten.embedding_dense_backward.default)


cdef int native_layer(GraphTask task, Node node, int hot, object g) except -1:
    """Dropout, convolutions, normalizations, pooling, embedding, the loss of a classifier."""
    cdef object extra, t
    cdef tuple operands = node.more
    if hot == AXES:
        return turned_back(task, node, g)
    if operands is None:
        if hot != EMBEDDING or node.in1 is None or not task.wants(node.in0):
            return 0
        t = embedding_backward(g, saved(node, 1), node.in0.shape[0], attribute(node, "padding_idx"),
                               attribute(node, "scale_grad_by_freq"))
        pass_on(task, node, node.in0, t, 0, True)
        return 1
    if node.saved_more is None:
        return 0
    if hot == CONV:
        return native_convolution(task, node, operands, g)
    extra = node.saved_more[2]
    if extra is None or type(extra) is Packed:
        return 0
    if hot == DROPOUT:
        if not task.wants(operands[0]):
            return 1
        if type(extra) is not Tensor:
            return 0
        t = times(writable(task, g, Py_REFCNT(g)), g, (extra,))
        pass_on(task, node, operands[0], t, 0, True)
        return 1
    if hot == NLL:
        if not task.wants(operands[0]):
            return 0
        t = nll_backward_of(g, saved(node, 0), saved(node, 1), saved(node, 2), attribute(node, "reduction"),
                            attribute(node, "ignore_index"), extra)
        pass_on(task, node, operands[0], t, 0, True)
        return 1
    if hot == MAX_POOL:
        if not task.wants(operands[0]):
            return 1
        kernel, stride = attribute(node, "kernel_size"), attribute(node, "stride")
        t = max_pool_backward(
            g, saved(node, 0), pair(kernel), pair(kernel if stride is None or stride == () or stride == [] else stride),
            pair(attribute(node, "padding")), pair(attribute(node, "dilation")), attribute(node, "ceil_mode"), extra)
        pass_on(task, node, operands[0], t, 0, True)
        return 1
    return native_normalization(task, node, hot, operands, extra, g)


cdef int native_normalization(GraphTask task, Node node, int hot, tuple operands, object extra, object g) except -1:
    """Normalizations of layers and of batches; `extra`: the statistics that the forward kernel has kept."""
    cdef object x
    for x in extra:
        if type(x) is Packed:
            return 0
    needs = [task.wants(n) for n in operands[:3]]
    if True not in needs:
        return 1                         # a view made without gradients, say, for which nothing was saved
    if hot == LAYER_NORM:
        results = layer_norm_backward(g, saved(node, 0), attribute(node, "normalized_shape"), extra[0], extra[1],
                                      saved(node, 1), saved(node, 2), needs)
    elif extra[3] == 0:                      # torch's own kernel, with nothing in reserve
        results = batch_norm_backward(g, saved(node, 0), saved(node, 1), None, None, extra[0], extra[1], True,
                                      attribute(node, "eps"), needs)
    else:
        results = batch_norm_index_backward(extra[3], saved(node, 0), g, saved(node, 1), None, None, extra[0], extra[1],
                                            True, attribute(node, "eps"), needs, extra[2])
    return hand_on(task, node, operands, needs, results)


cdef object nll_backward_of(object g, object x, object target, object weight, object reduction, object ignored, object total):
    if type(reduction) is int and type(ignored) is int and tensor_like(x) and tensor_like(target) \
            and (weight is None or tensor_like(weight)) and tensor_like(total) \
            and ao_direct_nll_back(g, x, target, weight, total):
        return ao_nll_back(g, x, target, weight, reduction, ignored, total)
    return nll_backward(g, x, target, weight, reduction, ignored, total)


cdef int hand_on(GraphTask task, Node node, tuple operands, list needs, object results) except -1:
    """Cotangents that one kernel has made, each in memory of its own, to the operands that want them."""
    cdef Py_ssize_t i
    cdef Node other
    for i in range(len(needs) - 1, -1, -1):
        if not needs[i] or results[i] is None:
            continue
        other, result = operands[i], results[i]
        if ao_dtype(result) is not other.dtype:
            result = result.to(other.dtype)
        pass_on(task, node, other, result, 0, True)
    return 1


cdef int native_convolution(GraphTask task, Node node, tuple operands, object g) except -1:
    cdef Node x = operands[0], w = operands[1], b = operands[2]
    if len(<tuple>x.shape) != len(<tuple>w.shape) or not is_float(x.dtype) or not is_float(w.dtype):
        return 0
    needs = [task.wants(x), task.wants(w), task.wants(b)]
    stride = attribute(node, "stride")
    results = convolution_backward(
        g, saved(node, 0), saved(node, 1), None if b is None else b.shape, stride, attribute(node, "padding"),
        attribute(node, "dilation"), False, [0] * len(stride), attribute(node, "groups"), needs)
    return hand_on(task, node, operands, needs, results)


cdef list pair(object value):
    """A size along both axes."""
    return [value, value] if isinstance(value, int) else list(value) * (2 if len(value) == 1 else 1)
