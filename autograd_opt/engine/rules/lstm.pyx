"""Differentiate one fused layer of the long short-term memory, which `ops/binding.pyx` has run."""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_method
from autograd_opt.engine.kernels cimport select, transpose, unsqueeze
from autograd_opt.engine.rules.passing cimport dense, pass_on
from autograd_opt.engine.saved_values cimport saved, stale
from autograd_opt.engine.task cimport FILLED, GraphTask
from autograd_opt.graph.node cimport NO_MERGE, Node, attribute, version_of

cdef object lstm_backward = private.direct(torch.ops.aten.mkldnn_rnn_layer_backward.default)
cdef object TURNED = (0, 1)
cdef object FIRST = (0, 0)
cdef object IN_FRONT = (0,)
cdef int LSTM_CELL = 2                   # what torch calls this kind of cell


cdef int native_lstm(GraphTask task, Node node, object g) except -1:
    """By torch's kernel, whose results are memory of their own."""
    cdef tuple operands = node.more, step
    cdef list wanted
    cdef object gy, gh, gc, gx, part, steps, last, version, batch_first
    cdef Py_ssize_t i
    if node.saved_more is None or node.flags & NO_MERGE or len(operands) != 7 or attribute(node, "num_layers") != 1 \
            or attribute(node, "bidirectional") or not attribute(node, "has_biases"):
        return 0
    gy, gh, gc = g.parts
    for part in (gy, gh, gc):
        if part is not None and not dense(part):
            return 0
    wanted = [task.wants(n) for n in operands]
    if True not in wanted:
        return 1
    for i in range(7):
        saved(node, i)
    steps, last, version = node.saved_more[2]
    if version_of(last) != version:          # the output shares its memory
        stale(node, -1)
    step, batch_first = steps[0], attribute(node, "batch_first")
    results = lstm_backward(
        *step[:10], ao_method(transpose, gy, TURNED) if batch_first and gy is not None else gy,
        None if gh is None else ao_method(select, gh, FIRST), None if gc is None else ao_method(select, gc, FIRST),
        False, LSTM_CELL, (<tuple>(<Node>operands[1]).shape)[2], 1, True, attribute(node, "train"), False, [], batch_first,
        step[10])
    gx = results[0]
    if batch_first and wanted[0]:
        gx = ao_method(transpose, gx, TURNED)
    for i in range(6, -1, -1):
        if not wanted[i]:
            continue
        if i == 0:
            part = gx
        elif i < 3:
            part = ao_method(unsqueeze, results[4 + i], IN_FRONT)
        else:
            part = results[i - 2]
        pass_on(task, node, operands[i], part, 0, FILLED if i > 2 else True)
    return 1
