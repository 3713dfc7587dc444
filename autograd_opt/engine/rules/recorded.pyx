"""Record the rules of operators of hot loops (`create_graph`): the operations of the table's line, call by call.

Each records the same nodes, with the same keys and in the same order, as the line of its operator
does, so that forward, backward and the derivatives of both share what they have in common.  What it
gains: no interpreter and no torch-function mode between the calls.  `tests/engine/test_recorded_rules.py`
runs both and compares the graphs.
"""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_casts, ao_dtype, ao_strided, ao_use_reads
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.arguments cimport read
from autograd_opt.engine.hot cimport (
    ADD, ADDMM, CAT, COPY, COS, DIV, EXP, INDEX, LINEAR, LOG, MATMUL, MEAN, MIRROR, MM, MUL, NARROW, NEG, POW, RESHAPE,
    SELECT, SIGMOID, SIGMOID_BACK, SIN, SQRT, SQUARE, SQUEEZE, SUM, TANH, TANH_BACK, TRANSPOSE, TURN,
    numbered, scaled,
)
from autograd_opt.engine.kernels cimport (
    Tensor, expand, mm, narrow, reshape, sigmoid_backward, t_method, tanh_backward,
    transpose, unsqueeze,
)
from autograd_opt.engine.rules.views cimport count
from autograd_opt.engine.saved_values cimport answer
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.engine.transposes cimport turned_view
from autograd_opt.engine.unbroadcast cimport operand_shape
from autograd_opt.graph.node cimport (
    MULTI, REDUCES, UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, WRITTEN_OP, Node, Op, attribute, is_custom, shape_of,
    unbroadcast,
)
from autograd_opt.graph.plain_values cimport is_float, takes_all
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.hot_operators cimport KERNELS, Kernel, fast_binary, fast_unary
from autograd_opt.record.inner_views cimport inner_view
from autograd_opt.record.recorder cimport record

ao_use_reads(reads_address())
cdef dict _ops = {}
cdef object matrix_transpose = torch.Tensor.mT.__get__
cdef object any_autocast = private.is_any_autocast_enabled
cdef object select_backward = private.direct(torch.ops.aten.select_backward.default)
cdef object slice_backward = private.direct(torch.ops.aten.slice_backward.default)


cdef Op operator(str name):
    """An operator of the table."""
    if not _ops:
        from autograd_opt.ops.table import OPS
        _ops.update(OPS)
    return <Op>_ops[name]


cdef object two(GraphTask task, str name, object a, object b):
    """a `name` b, recorded."""
    cdef Kernel k = <Kernel>KERNELS[name]
    cdef object r = fast_binary(k, a, b)
    return general(task, k, (a, b)) if r is None else r


cdef object one(GraphTask task, str name, object a):
    """`name`(a), recorded."""
    cdef Kernel k = <Kernel>KERNELS[name]
    cdef object r = fast_unary(k, a, True)
    return general(task, k, (a,)) if r is None else r


cdef object general(GraphTask task, Kernel k, tuple args):
    """An operation that the hot path does not take, by the general route."""
    functions_on(task.before)
    try:
        return k.descr(*args)
    finally:
        task.before = functions_off()


cdef int emit(GraphTask task, Node node, Node operand, object g, uint32_t fix) except -1:
    """Send `g` to an operand, with torch functions on: a sum that waits there is recorded, too."""
    cdef bint fits = operand.op.flags & MULTI \
        or (not fix & node.flags or shape_of(g) == operand.shape) and ao_dtype(g) is operand.dtype
    functions_on(task.before)
    try:
        return task.deliver(node, operand, g) if fits else task.send_fixed(node, operand, g, 1)
    finally:
        task.before = functions_off()


cdef object product(GraphTask task, object a, object b):
    """a @ b of two matrices, recorded."""
    return record(task.tape, operator("matmul"), mm, (a, b), (a, b), None)


cdef object turned(GraphTask task, object a):
    """The transpose of a matrix that the rule reads, recorded; once for all rules where nodes may merge."""
    if task.shares:
        return inner_view(task.tape, operator("mT"), matrix_transpose, a)
    return turned_result(task, a)


cdef bint usual(object g) except -1:
    """Is `g` an ordinary tensor, strided and real, of torch's class or of this library's?"""
    return (type(g) is Tensor or is_custom(g)) and ao_strided(g) and is_float(ao_dtype(g))


cdef int recorded(GraphTask task, Node node, Op op, object g) except -1:
    """Record the rule of `node` here if there is one for this case: 1, else 0."""
    if recording() != <PyObject *>task.tape or not task.tape.plain or not is_float(node.dtype) \
            or ao_casts(any_autocast):
        return 0
    task.before = functions_off()        # under a mode every read of a version or a shape would be a call
    try:
        return record_rule(task, node, op.hot, g) if usual(g) else 0
    finally:
        functions_on(task.before)


cdef int record_rule(GraphTask task, Node node, int hot, object g) except -1:
    """Choose the rule."""
    if hot >= LINEAR:
        return recorded_several(task, node, hot, g) if hot == CAT or hot == LINEAR or hot == ADDMM else 0
    if node.more is not None:
        return 0
    if not task.wants(node.in0) and not task.wants(node.in1):
        return 1
    if hot <= DIV:
        return recorded_arithmetic(task, node, hot, g)
    if hot == MATMUL or hot == MM:
        return recorded_matmul(task, node, g)
    if hot == TANH_BACK or hot == SIGMOID_BACK:
        return recorded_bend(task, node, hot, g)
    if not task.wants(node.in0):
        return 0
    if hot < SUM:
        return recorded_function(task, node, hot, g)
    return recorded_shape(task, node, hot, g)


cdef int recorded_arithmetic(GraphTask task, Node node, int hot, object g) except -1:
    """+, -, *, / and the change of sign."""
    cdef Node a = node.in0, b = node.in1
    cdef bint r0 = task.wants(a), r1 = task.wants(b)
    cdef object y
    if hot == MUL:
        if r1:
            emit(task, node, b, two(task, "mul", g, read(task, node, 0)), UNBROADCAST1)
        if r0:
            emit(task, node, a, two(task, "mul", g, read(task, node, 1)), UNBROADCAST0)
    elif hot == NEG:
        emit(task, node, a, one(task, "neg", g), UNBROADCAST0)
    elif hot == DIV:
        if r1:
            if a is None:
                return 0
            y = read(task, node, 1)
            y = two(task, "mul", one(task, "neg", g), two(task, "div", two(task, "div", read(task, node, 0), y), y))
            emit(task, node, b, y, UNBROADCAST1)
        if r0:
            emit(task, node, a, two(task, "div", g, read(task, node, 1)), UNBROADCAST0)
    else:
        if scaled(node):
            return 0
        if r1:
            emit(task, node, b, g if hot == ADD else one(task, "neg", g), UNBROADCAST1)
        if r0:
            emit(task, node, a, g, UNBROADCAST0)
    return 1


cdef int recorded_function(GraphTask task, Node node, int hot, object g) except -1:
    """Functions of one real operand."""
    cdef Node a = node.in0
    cdef object x
    if not is_float(a.dtype):
        return 0
    if hot == POW:
        if not numbered(node):
            return 0
        x = read(task, node, 0)
        g = two(task, "mul", g, two(task, "mul", x, 2) if node.x1 == 2 else two(task, "mul", two(task, "pow", x, node.x1 - 1), node.x1))
    elif hot == EXP:
        g = two(task, "mul", g, answer(node, True))
    elif hot == LOG:
        g = two(task, "div", g, read(task, node, 0))
    elif hot == SIN:
        g = two(task, "mul", g, one(task, "cos", read(task, node, 0)))
    elif hot == COS:
        g = two(task, "mul", g, one(task, "neg", one(task, "sin", read(task, node, 0))))
    elif hot == SQRT:
        g = two(task, "div", g, two(task, "mul", answer(node, True), 2))
    elif hot == SQUARE:
        g = two(task, "mul", g, two(task, "mul", read(task, node, 0), 2))
    elif hot == TANH or hot == SIGMOID:
        g = bent(task, hot == TANH, g, answer(node, True))
    else:
        return 0
    emit(task, node, a, g, UNBROADCAST0)
    return 1


cdef object bent(GraphTask task, bint hyperbolic, object g, object y):
    """The kernel that differentiates tanh or sigmoid, recorded; `y` is their output."""
    if hyperbolic:
        return record(task.tape, operator("tanh_backward"), tanh_backward, (g, y), (g, y), None)
    return record(task.tape, operator("sigmoid_backward"), sigmoid_backward, (g, y), (g, y), None)


cdef int recorded_bend(GraphTask task, Node node, int hot, object h) except -1:
    """The same kernels, differentiated once more."""
    cdef object y
    if node.in0 is None or node.in1 is None:
        return 0
    y = read(task, node, 1)
    if task.wants(node.in1):
        if hot == TANH_BACK:
            t = two(task, "mul", h, two(task, "mul", two(task, "mul", y, -2), read(task, node, 0)))
        else:
            return 0
        emit(task, node, node.in1, t, UNBROADCAST1)
    if task.wants(node.in0):
        emit(task, node, node.in0, bent(task, hot == TANH_BACK, h, y), UNBROADCAST0)
    return 1


cdef int recorded_shape(GraphTask task, Node node, int hot, object g) except -1:
    """Views, copies and sums: the cotangent itself, lying another way."""
    cdef Node a = node.in0
    cdef Tape tape = task.tape
    cdef object shape = tuple(a.shape)
    if hot == SQUEEZE:
        hot = COPY if len(operand_shape(g)) == len(shape) else RESHAPE
    if hot == RESHAPE:
        g = record(tape, operator("reshape"), reshape, (g, shape), (g,), {"shape": shape})
    elif hot == TRANSPOSE:
        first, second = attribute(node, "dim0"), attribute(node, "dim1")
        g = record(tape, operator("transpose"), transpose, (g, first, second), (g,), {"dim0": first, "dim1": second})
    elif hot == TURN:
        g = record(tape, operator("t"), t_method, (g,), (g,), None)
    elif hot == MIRROR:
        g = record(tape, operator("mT"), matrix_transpose, (g,), (g,), None)
    elif hot == SUM or hot == MEAN:
        dim, keepdim = attribute(node, "dim"), attribute(node, "keepdim")
        if keepdim or not shape or dim is not None and type(dim) is not int:
            return 0
        if dim is not None:
            g = record(tape, operator("unsqueeze"), unsqueeze, (g, dim % len(shape)), (g,), {"dim": dim % len(shape)})
        g = record(tape, operator("expand"), expand, (g, shape), (g,), {"size": shape})
        if hot == MEAN:
            g = two(task, "div", g, count(a.shape, dim))
    elif hot == INDEX or hot == SELECT or hot == NARROW:
        return recorded_place(task, node, hot, g, a.shape)
    elif hot != COPY or node.op.flags & REDUCES and not len(<tuple>node.shape) \
            or node.op is WRITTEN_OP and node.shape != shape:
        return 0
    emit(task, node, a, g, UNBROADCAST0)
    return 1


cdef int recorded_place(GraphTask task, Node node, int hot, object g, object shape) except -1:
    """The cotangent of a part of an axis: zeros around it, in one kernel."""
    cdef object dim, entry
    cdef Py_ssize_t d
    if hot == INDEX:
        dim = None
        for d, entry in enumerate(attribute(node, "index")):
            if type(entry) is slice and entry.start is None and entry.stop is None and entry.step is None:
                continue
            if dim is not None or type(entry) is not int and type(entry) is not slice:
                return 0
            dim = d
        if dim is None and len(attribute(node, "index")) == 1:
            dim = 0                      # torch takes even the whole for a part
        if dim is None:
            return 0                     # no part, or axes of length 1: a view of the cotangent
        entry = attribute(node, "index")[dim]
        if type(entry) is slice:
            if len(attribute(node, "index")) > 1 and takes_all(entry, shape[dim]):
                return 0
            entry = entry.indices(shape[dim])
    else:
        dim, entry = attribute(node, "dim"), attribute(node, "index" if hot == SELECT else "start")
        if type(entry) is not int:
            return 0
        if hot == NARROW:
            if entry < 0:
                return 0
            entry = (entry, entry + attribute(node, "length"), 1)
    if type(entry) is int:
        g = record(task.tape, operator("select_backward"), select_backward, (g, shape, dim, entry), (g,),
                   {"shape": shape, "dim": dim, "index": entry})
    else:
        g = record(task.tape, operator("slice_backward"), slice_backward, (g, shape, dim, *entry), (g,),
                   {"shape": shape, "dim": dim, "start": entry[0], "end": entry[1], "step": entry[2]})
    emit(task, node, node.in0, g, UNBROADCAST0)
    return 1


cdef int recorded_matmul(GraphTask task, Node node, object g) except -1:
    """Products of two matrices."""
    cdef Node a = node.in0, b = node.in1
    if a is None or b is None or len(<tuple>a.shape) != 2 or len(<tuple>b.shape) != 2 or a.dtype is not b.dtype:
        return 0
    if task.wants(b):
        emit(task, node, b, product_second(task, b, g, read(task, node, 0)), UNBROADCAST1)
    if task.wants(a):
        emit(task, node, a, product_first(task, a, g, read(task, node, 1)), UNBROADCAST0)
    return 1


cdef object product_first(GraphTask task, Node a, object g, object b):
    """The cotangent of `a` in `a @ b`; that of a transpose is made turned."""
    if turned_view(a):
        return turned_result(task, product(task, b, turned(task, g)))
    return product(task, g, turned(task, b))


cdef object product_second(GraphTask task, Node b, object g, object a):
    """The cotangent of `b` in `a @ b`."""
    if turned_view(b):
        return turned_result(task, product(task, turned(task, g), a))
    return product(task, turned(task, a), g)


cdef object turned_result(GraphTask task, object t):
    """The transpose of a product, recorded; others will see it."""
    return record(task.tape, operator("mT"), matrix_transpose, (t,), (t,), None)


cdef int recorded_several(GraphTask task, Node node, int hot, object g) except -1:
    """Operators of three operands or more."""
    cdef Node other
    cdef Py_ssize_t i, start = 0
    cdef list parts
    operands = node.more
    if operands is None:
        return 0
    if hot == CAT:
        dim = attribute(node, "dim")
        for other in operands:
            if other is None or len(<tuple>other.shape) != len(<tuple>node.shape):
                return 0
        parts = []
        for other in operands:
            length = other.shape[dim]
            parts.append(None if not task.wants(other) else record(
                task.tape, operator("narrow"), narrow, (g, dim, start, length), (g,),
                {"dim": dim, "start": start, "length": length}))
            start += length
        for i in range(len(operands) - 1, -1, -1):
            if parts[i] is not None:
                emit(task, node, operands[i], parts[i], unbroadcast(i))
        return 1
    if hot == LINEAR:
        if len(<tuple>(<Node>operands[0]).shape) != 2 or len(<tuple>(<Node>operands[1]).shape) != 2:
            return 0
        if task.wants(operands[2]):
            emit(task, node, operands[2], g, UNBROADCASTN)
        if task.wants(operands[1]):
            emit(task, node, operands[1], product_second(task, operands[1], read(task, node, 0), g), UNBROADCAST1)
        if task.wants(operands[0]):
            x = read(task, node, 1)
            if turned_view(operands[0]):
                x = turned_result(task, product(task, turned(task, x), turned(task, g)))
            else:
                x = product(task, g, x)
            emit(task, node, operands[0], x, UNBROADCAST0)
        return 1
    if attribute(node, "alpha") != 1 or attribute(node, "beta") != 1:
        return 0
    if task.wants(operands[2]):
        emit(task, node, operands[2], product_second(task, operands[2], g, read(task, node, 1)), UNBROADCASTN)
    if task.wants(operands[1]):
        emit(task, node, operands[1], product_first(task, operands[1], g, read(task, node, 2)), UNBROADCAST1)
    if task.wants(operands[0]):
        emit(task, node, operands[0], g, UNBROADCAST0)
    return 1
