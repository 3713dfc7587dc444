"""Differentiate arithmetic and functions of one operand by rules in C."""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_bend, ao_contiguous, ao_dtype, ao_into, ao_method, ao_method0, ao_pair, ao_single, ao_threshold, ao_threshold_into,
    ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.hot cimport (
    ABS, ADD, COS, DIV, EXP, LOG, MUL, NEG, POW, RECIPROCAL, RELU, SIGMOID, SIN, SOFTMAX, SQRT, SQUARE, TANH, TANH_BACK,
    numbered, scaled,
)
from autograd_opt.engine.kernels cimport (
    COS_K, DIV_K, IDIV_K, IMUL_K, MUL_K, SIGMOID_BACK_K, SIN_K, TANH_BACK_K, div, idiv, imul, mul, sigmoid_backward,
    tanh_backward, threshold_backward,
)
from autograd_opt.engine.rules.passing cimport (
    beside, owns, pass_negated, pass_on, pass_product, pass_quotient, pass_scaled, times, turns_into, writable,
)
from autograd_opt.engine.saved_values cimport answer, saved
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport UNBROADCAST0, UNBROADCAST1, Node, Op, attribute, shape_of
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.values cimport live_value, value_of

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

ao_use_reads(reads_address())
cdef object rsub = private.VariableFunctions.rsub
cdef object power = private.TensorBase.__dict__["pow"]
cdef object sine = private.TensorBase.__dict__["sin"]
cdef object cosine = private.TensorBase.__dict__["cos"]
cdef object signum = private.TensorBase.__dict__["sgn"]
cdef object threshold_backward_into = private.direct(torch.ops.aten.threshold_backward.grad_input)
cdef object softmax_backward = private.softmax_backward_data
cdef object log_softmax_backward = private.log_softmax_backward_data
cdef dict _partners = {}


cdef bint seen_outside(GraphTask task, object t) except -1:
    """Does `t`, a tensor or a number, lie in memory that is visible outside torch?"""
    return isinstance(t, torch.Tensor) and task.tape.shares_exposed(t)


cdef int native_arithmetic(GraphTask task, Node node, int hot, object g) except -1:
    """+, -, *, / and the change of sign."""
    cdef Node a = node.in0, b = node.in1
    cdef bint r0 = task.wants(a), r1 = task.wants(b)
    cdef object t, x, y
    if hot == MUL:
        if r1:
            pass_product(task, node, b, g, saved(node, 0), UNBROADCAST1, not r0)
        if r0:
            pass_product(task, node, a, g, saved(node, 1), UNBROADCAST0, True)
    elif hot == NEG:
        pass_negated(task, node, a, g, 0, owns(task, g))
    elif hot == DIV:
        if r1:
            if a is None:
                return 0
            y = saved(node, 1)
            x = saved(node, 0)
            t = None
            if task.tape.optimize and not (task.tape.exposed and (seen_outside(task, x) or seen_outside(task, y))):
                t = live_value(task.tape, node)      # x / y itself, where it is still there
            if t is not None:
                t = ao_pair(DIV_K, div, t, (y,))
            else:
                t = ao_pair(DIV_K, div, x, (y,))
                if ao_dtype(t) is not node.dtype or shape_of(t) != node.shape:
                    return 0
                ao_into(IDIV_K, idiv, t, (y,))
            ao_into(IMUL_K, imul, t, (g,))
            pass_negated(task, node, b, t, UNBROADCAST1, True)
        if r0:
            pass_quotient(task, node, a, g, saved(node, 1), UNBROADCAST0, True)
    else:
        if scaled(node):
            return 0
        if r1:
            if hot == ADD:
                pass_on(task, node, b, g, UNBROADCAST1, task.fresh and not r0)
            else:
                pass_negated(task, node, b, g, UNBROADCAST1, not r0 and owns(task, g))
        if r0:
            pass_on(task, node, a, g, UNBROADCAST0, task.fresh and not (r1 and hot == ADD))
    return 1


cdef int native_function(GraphTask task, Node node, int hot, object g) except -1:
    """Functions of one real operand."""
    cdef Node a = node.in0
    cdef object t
    if not is_float(a.dtype):
        return 0
    if hot == POW:
        return native_power(task, node, g)
    if hot == EXP:
        pass_product(task, node, a, g, answer(node, False), UNBROADCAST0, True)
        return 1
    elif hot == LOG:
        pass_quotient(task, node, a, g, saved(node, 0), UNBROADCAST0, True)
        return 1
    elif hot == SIN or hot == COS:
        t = saved(node, 0)
        known = value_of(task.tape, partner(hot), a)
        if known is not None and hot == SIN:
            pass_product(task, node, a, g, known, UNBROADCAST0, True)
            return 1
        if known is not None:
            t = times(turns_into(task, node, g, known), g, (known,))
        else:
            t = ao_into(IMUL_K, imul, (ao_single(COS_K, cosine, t) if hot == SIN else ao_single(SIN_K, sine, t)), (g,))
        if hot == COS:
            pass_negated(task, node, a, t, UNBROADCAST0, True)
            return 1
    elif hot == SQRT:
        t = answer(node, False)
        t = ao_pair(DIV_K, div, g, (ao_pair(MUL_K, mul, t, beside(node, t, 2)),))
    elif hot == SQUARE:
        t = saved(node, 0)
        t = ao_into(IMUL_K, imul, ao_pair(MUL_K, mul, t, beside(node, t, 2)), (g,))
    elif hot == RECIPROCAL:
        t = answer(node, False)
        t = ao_into(IMUL_K, imul, ao_pair(MUL_K, mul, t, (t,)), (g,))
        pass_negated(task, node, a, t, UNBROADCAST0, True)
        return 1
    elif hot == ABS:
        t = ao_into(IMUL_K, imul, ao_method0(signum, saved(node, 0)), (g,))
    elif hot == TANH:
        t = ao_bend(TANH_BACK_K, tanh_backward, g, answer(node, False))
    elif hot == SIGMOID:
        t = ao_bend(SIGMOID_BACK_K, sigmoid_backward, g, answer(node, False))
    elif hot == RELU:
        t = through_threshold(task, g, answer(node, False), Py_REFCNT(g))
    elif hot == SOFTMAX:
        t = softmax_backward(g, answer(node, False), attribute(node, "dim"), node.dtype)
    else:
        t = log_softmax_backward(g, answer(node, False), attribute(node, "dim"), node.dtype)
    pass_on(task, node, a, t, UNBROADCAST0, True)
    return 1


cdef int native_power(GraphTask task, Node node, object g) except -1:
    """A power with a number as its exponent."""
    cdef object t
    if not numbered(node):
        return 0
    t = saved(node, 0)
    if node.x1 == 2:
        t = ao_pair(MUL_K, mul, t, beside(node, t, 2))
    else:
        t = ao_into(IMUL_K, imul, ao_method(power, t, (node.x1 - 1,)), (node.x1,))
    pass_on(task, node, node.in0, ao_into(IMUL_K, imul, t, (g,)), UNBROADCAST0, True)
    return 1


cdef Op partner(int hot):
    """The operator that the rule computes of the same operand: cos for sin, sin for cos."""
    if not _partners:
        from autograd_opt.ops.table import OPS
        _partners.update({SIN: OPS["cos"], COS: OPS["sin"]})
    return <Op>_partners[hot]


cdef object through_threshold(GraphTask task, object g, object y, Py_ssize_t held):
    """`g` where the output `y` of a relu is positive, in the memory of `g` where that is free."""
    if ao_contiguous(y) and ao_dtype(g) is ao_dtype(y) \
            and shape_of(g) == shape_of(y) and writable(task, g, held):
        return g if ao_threshold_into(g, y) else threshold_backward_into(g, y, 0, grad_input=g)
    return ao_threshold(threshold_backward, g, y)


cdef int native_bend(GraphTask task, Node node, int hot, object h) except -1:
    """The rules of tanh and sigmoid once more: of g * (1 - y * y) and of g * (1 - y) * y."""
    cdef object t, y
    if node.flags & (UNBROADCAST0 | UNBROADCAST1) or node.in0 is None or node.in1 is None:
        return 0
    y = saved(node, 1)
    if task.wants(node.in1):
        t = saved(node, 0)
        if hot == TANH_BACK:
            pass_scaled(task, node, node.in1, ao_pair(MUL_K, mul, y, (t,)), h, -2)
        else:
            pass_product(task, node, node.in1, ao_pair(MUL_K, mul, h, (t,)), rsub(ao_pair(MUL_K, mul, y, beside(node, y, 2)), 1), 0, True)
    if task.wants(node.in0):
        pass_on(task, node, node.in0, (ao_bend(TANH_BACK_K, tanh_backward, h, y) if hot == TANH_BACK else ao_bend(SIGMOID_BACK_K, sigmoid_backward, h, y)), 0, True)
    return 1
