"""Differentiate products of matrices by rules in C."""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_contiguous, ao_get, ao_method, ao_method0, ao_mm, ao_pair, ao_turned_mm, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.hot cimport MIRROR
from autograd_opt.engine.kernels cimport MUL_K, get_mT, matmul, mm, mul, reshape, sizes, t_method, unsqueeze
from autograd_opt.engine.rules.passing cimport pass_mm, pass_on
from autograd_opt.engine.saved_values cimport saved
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.engine.transposes cimport turned_view
from autograd_opt.graph.node cimport INNER, MERGED, UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, Node, attribute

ao_use_reads(reads_address())
cdef object contiguous = private.TensorBase.__dict__["contiguous"]
cdef object flatten = private.TensorBase.__dict__["flatten"]
cdef object squeeze = private.TensorBase.__dict__["squeeze"]
cdef tuple LAST = (-1,)
cdef tuple BEFORE_LAST = (-2,)


cdef int native_matmul(GraphTask task, Node node, object g) except -1:
    """Products of matrices, or of stacks of matrices."""
    cdef Node a = node.in0, b = node.in1
    cdef object x, flat
    cdef Py_ssize_t m, n
    if a is None or b is None:
        return 0
    m, n = len(<tuple>a.shape), len(<tuple>b.shape)
    if a.dtype is not b.dtype:
        return 0
    if m < 2 or n < 2:
        return native_vector(task, node, a, b, g, m, n)
    flat = rows(g) if m > 2 and n == 2 else g            # copied once where it cannot be seen so
    if m > 2 and n > 2 and not ao_contiguous(g) and not ao_contiguous(ao_get(get_mT, g)) and task.wants(a) and task.wants(b):
        g = ao_method(contiguous, g, ())
    if task.wants(b):
        x = saved(node, 0)
        if m == 2 and n == 2:
            if turned_by_a_rule(task, b):
                pass_mm(task, node, b.in0, g, x, True)
            elif turned_view(b):
                pass_on(task, node, b, ao_method0(t_method, ao_turned_mm(mm, t_method, g, x)), 0, True)
            else:
                pass_mm(task, node, b, x, g, True)
        elif n == 2 and turned_view(b):
            pass_on(task, node, b, ao_method0(t_method, ao_turned_mm(mm, t_method, flat, rows(x))), 0, True)
        elif n == 2:
            pass_mm(task, node, b, rows(x), flat, True)
        else:
            pass_on(task, node, b, ao_method(matmul, ao_get(get_mT, x), (g,)), UNBROADCAST1, True)
    if task.wants(a):
        x = saved(node, 1)
        if m == 2 and n == 2 and turned_view(a):
            pass_on(task, node, a, ao_method0(t_method, ao_mm(mm, x, ao_method0(t_method, g))), 0, True)
        elif m == 2 and n == 2:
            pass_mm(task, node, a, g, ao_method0(t_method, x))
        elif n == 2:
            x = ao_method(mm, flat, (ao_method0(t_method, x),))
            pass_on(task, node, a, ao_method(reshape, x, sizes(a.shape)), UNBROADCAST0, True)
        else:
            pass_on(task, node, a, ao_method(matmul, g, (ao_get(get_mT, x),)), UNBROADCAST0, True)
    return 1


cdef int native_vector(GraphTask task, Node node, Node a, Node b, object g, Py_ssize_t m, Py_ssize_t n) except -1:
    """A product with a vector, in the kernels of the table's rule."""
    cdef object x
    if m > 2 or n > 2 or m == 0 or n == 0:
        return 0
    if task.wants(b):
        x = saved(node, 0)
        if m == 2:
            pass_on(task, node, b, ao_method(matmul, ao_get(get_mT, x), (g,)), UNBROADCAST1, True)
        elif n == 1:
            pass_on(task, node, b, ao_pair(MUL_K, mul, g, (x,)), UNBROADCAST1, True)
        else:
            x = ao_method(unsqueeze, x, LAST)
            pass_on(task, node, b, ao_pair(MUL_K, mul, x, (ao_method(unsqueeze, g, BEFORE_LAST),)), UNBROADCAST1, True)
    if task.wants(a):
        x = saved(node, 1)
        if n == 1:
            pass_on(task, node, a, ao_pair(MUL_K, mul, g if m == 1 else ao_method(unsqueeze, g, LAST), (x,)),
                    UNBROADCAST0, True)
        else:
            x = ao_method(matmul, x, (ao_method(unsqueeze, g, LAST),))
            pass_on(task, node, a, ao_method(squeeze, x, LAST), UNBROADCAST0, False)
    return 1


cdef bint turned_by_a_rule(GraphTask task, Node node) except -1:
    """Is `node` a transpose that a rule has made for itself, and nobody's business?  Then the matrix gets its part."""
    return task.shares and node.flags & INNER and node.op.hot == MIRROR and not node.flags & MERGED \
        and node.hooks is None and task.wants(node.in0) and (task.captures is None or node.index not in task.captures)


cdef object rows(object t):
    """A stack of matrices as one matrix."""
    return ao_method(flatten, t, (0, -2))


cdef int native_linear(GraphTask task, Node node, tuple operands, object g) except -1:
    """A linear layer."""
    cdef object x, w
    if len((<Node>operands[0]).shape) < 2 or len((<Node>operands[1]).shape) != 2 or 0 in node.shape:
        return 0
    flat = g if len(<tuple>node.shape) == 2 else rows(g)
    if task.wants(operands[2]):
        pass_on(task, node, operands[2], flat, UNBROADCASTN, False)
    if task.wants(operands[1]):
        x = saved(node, 0)
        if turned_view(operands[1]):
            x = ao_turned_mm(mm, t_method, x if flat is g else rows(x), flat)
            pass_on(task, node, operands[1], ao_method0(t_method, x), 0, True)
        else:
            pass_mm(task, node, operands[1], flat, x if flat is g else rows(x), True)
    if task.wants(operands[0]):
        w = saved(node, 1)
        if flat is g and turned_view(operands[0]):
            x = ao_method0(t_method, w)
            pass_on(task, node, operands[0], ao_method0(t_method, ao_mm(mm, x, ao_method0(t_method, g))), 0, True)
        elif flat is g:
            pass_mm(task, node, operands[0], g, w)
        else:
            pass_on(task, node, operands[0],
                    ao_method(reshape, ao_method(mm, flat, (w,)), sizes((<Node>operands[0]).shape)), 0, True)
    return 1


cdef int native_addmm(GraphTask task, Node node, tuple operands, object g) except -1:
    """A product of two matrices, added to a third operand."""
    cdef object x, w
    if attribute(node, "alpha") != 1 or attribute(node, "beta") != 1:
        return 0
    if task.wants(operands[2]):
        x = saved(node, 1)
        if turned_view(operands[2]):
            pass_on(task, node, operands[2], ao_method0(t_method, ao_turned_mm(mm, t_method, g, x)), 0, True)
        else:
            pass_mm(task, node, operands[2], x, g, True)
    if task.wants(operands[1]):
        w = saved(node, 2)
        if turned_view(operands[1]):
            pass_on(task, node, operands[1], ao_method0(t_method, ao_mm(mm, w, ao_method0(t_method, g))), 0, True)
        else:
            pass_mm(task, node, operands[1], g, ao_method0(t_method, w))
    if task.wants(operands[0]):
        pass_on(task, node, operands[0], g, UNBROADCAST0, False)
    return 1
