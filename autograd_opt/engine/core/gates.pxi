# The rule of one fused layer of the long short-term memory, which `ops/binding.pyx` has run.
#
# Part of executor.pyx.

cdef object lstm_backward = private.direct(torch.ops.aten.mkldnn_rnn_layer_backward.default)
cdef object select = base.__dict__["select"]
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


cdef bint by_steps(GraphTask task, Node node, tuple index) except -1:
    """Does only the rule above read the cotangent of `node`, the output of such a layer, and step by step?"""
    cdef Node layer = node.in0
    if layer is None or layer.op.hot != LSTM or node.attrs["i"] != 0 or not attribute(layer, "batch_first") \
            or node.hooks is not None or layer.hooks is not None or task.captures is not None:
        return False
    for entry in index:
        if entry is None or entry is Ellipsis:
            return False
    return True


cdef object placed_by_steps(object g, object shape, tuple index, bint *fresh):
    """`placed` where the steps, the second axis, lie outermost in memory: so the layer's kernel needs no copy of it."""
    cdef object rows = index[0], steps = index[1] if len(index) > 1 else slice(None)
    if type(rows) is slice and type(steps) is slice:
        g = ao_method(transpose, g, TURNED)
    g = placed(g, (shape[1], shape[0], *shape[2:]), (steps, rows, *index[2:]), True, fresh)
    return ao_method(transpose, g, TURNED)
