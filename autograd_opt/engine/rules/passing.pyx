"""Hand on the results of rules in C, added to the sum that waits where there is one."""

import torch

from libc.math cimport fabs, frexp
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_contiguous, ao_dtype, ao_get, ao_into, ao_is_neg, ao_is_view, ao_is_zero, ao_method, ao_method0, ao_mm, ao_own,
    ao_pair, ao_product, ao_single, ao_strided, ao_turned_mm, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.engine.kernels cimport (
    ADDCDIV_K, ADDCMUL_K, CPU, DIV_K, IDIV_K, IMUL_K, ISUB_K, MUL_K, NEG_K, Tensor, addcdiv_, addcmul_, addmm_, div, iadd,
    idiv, imul, ineg, is_neg, is_zero, isub, mm, mul, neg, t_method,
)
from autograd_opt.engine.task cimport FILLED, GraphTask
from autograd_opt.engine.unbroadcast cimport sum_to, summed_as_view, summed_to
from autograd_opt.graph.node cimport FRESH, MULTI, Node, is_custom, same_shape, shape_of, version_of
from autograd_opt.graph.plain_values cimport is_float, number_arguments

ao_use_reads(reads_address())
cdef object get_nbytes = ao_own(private.TensorBase.__dict__["nbytes"])
cdef object HALF = torch.float16
cdef object BFLOAT16 = torch.bfloat16
cdef Py_ssize_t LARGE = 1 << 16          # bytes from which memory costs more than the question whose it is


cdef bint tensor_like(object y) except -1:
    """Is a saved operand a tensor, not a number?"""
    return type(y) is Tensor or is_custom(y) or isinstance(y, Tensor)


cdef bint dense(object g) except -1:
    """Is `g` an ordinary tensor of torch's, strided and real?"""
    return type(g) is Tensor and ao_strided(g) and is_float(ao_dtype(g))


cdef tuple beside(Node node, object g, object y):
    """The arguments of `g * y` or `g / y` for a tensor or a number `y`."""
    if (type(y) is int or type(y) is float) and node.device is CPU:
        return number_arguments(y, g, ao_dtype(g))
    return (y,)


cdef bint exact_factor(object y) except -1:
    """Is this number a power of two, so that a product with it is not rounded?"""
    cdef int exponent
    cdef double number
    if type(y) is not int and type(y) is not float:
        return False
    number = y
    return frexp(fabs(number), &exponent) == 0.5


cdef int pass_on(GraphTask task, Node node, Node operand, object g, uint32_t fix, int fresh) except -1:
    """Hand `g` to an operand; `fix`: the flags of `node` that ask for its shape and dtype."""
    if node.flags & fix:
        have = shape_of(g)
        if not same_shape(have, operand.shape):
            if task.captures is None or task.accumulate or task.onward:
                g, fresh = summed_to(g, have, operand.shape), FILLED if len(<tuple>operand.shape) == 1 else 1
            else:
                as_view = task.hands_out(operand)
                g, fresh = summed_as_view(g, have, operand.shape) if as_view else sum_to(g, have, operand.shape), False
        if ao_dtype(g) is not operand.dtype:
            g, fresh = g.to(operand.dtype), True
    if operand.op.flags & MULTI:
        return task.send_part(node, operand, g)
    return task.send(operand, g, fresh)


cdef bint owns(GraphTask task, object g) except -1:
    """Is the cotangent in hand memory of this run's own, which may be written once nothing reads it any more?

    Only a contiguous one, so that the result lies in memory as torch would lay it, and where the user
    may ask for it none that is a view.
    """
    return task.fresh and task.inplace and ao_contiguous(g) and (task.captures is None or not ao_is_view(g))


cdef bint writable(GraphTask task, object g, Py_ssize_t held) except -1:
    """May the large cotangent `g` be written: does nobody else see its memory?

    `held` counts the references to the object; two are the run's own.
    """
    return ao_get(get_nbytes, g) >= LARGE and (task.fresh or held <= 2) \
        and ao_contiguous(g) and not ao_is_neg(is_neg, g) \
        and not ao_is_zero(is_zero, g) \
        and sole_owner(g)


cdef bint turns_into(GraphTask task, Node node, object g, object y) except -1:
    """May the memory of `g` hold its product or quotient with `y`, which is of the type of `node`?"""
    return owns(task, g) and (not tensor_like(y) or ao_dtype(y) is node.dtype)


cdef bint adds(GraphTask task, Node target) except -1:
    """Does a sum wait at `target` that may be written?"""
    return task.inplace and target.cotangent != NULL and target.task == task.id and target.flags & FRESH \
        and not task.shows(target, <object>target.cotangent)


cdef bint gathers(GraphTask task, Node target) except -1:
    """May a product be added to what waits at `target` by the kernel that makes it?

    Not in half precision, where torch's rounding of the product by itself shows.
    """
    return adds(task, target) and target.dtype is not HALF and target.dtype is not BFLOAT16


cdef inline object times(bint into, object g, tuple y):
    """g * y, in the memory of `g` where it may be"""
    return ao_into(IMUL_K, imul, g, y) if into else ao_pair(MUL_K, mul, g, y)


cdef inline object over(bint into, object g, tuple y):
    """g / y, likewise"""
    return ao_into(IDIV_K, idiv, g, y) if into else ao_pair(DIV_K, div, g, y)


cdef int pass_product(GraphTask task, Node node, Node operand, object g, object y, uint32_t fix, bint last) except -1:
    """g * y; `last`: nothing reads `g` after this, so that it may be made in its memory where that is the run's own."""
    cdef Node target
    last = last and turns_into(task, node, g, y)
    if node.flags & fix or operand.op.flags & MULTI:
        return pass_on(task, node, operand, times(last, g, beside(node, g, y)), fix, True)
    target = task.aim(operand)
    if target is None:
        return 0
    if gathers(task, target):
        if exact_factor(y):
            iadd(<object>target.cotangent, g, alpha=y)
            return 0
        if tensor_like(y) and ao_dtype(y) is node.dtype:
            ao_product(ADDCMUL_K, addcmul_, <object>target.cotangent, (g, y))
            return 0
    return task.put(target, times(last, g, beside(node, g, y)), True)


cdef int pass_quotient(GraphTask task, Node node, Node operand, object g, object y, uint32_t fix, bint last) except -1:
    """g / y"""
    cdef Node target
    last = last and turns_into(task, node, g, y)
    if node.flags & fix or operand.op.flags & MULTI:
        return pass_on(task, node, operand, over(last, g, beside(node, g, y)), fix, True)
    target = task.aim(operand)
    if target is None:
        return 0
    if gathers(task, target) and tensor_like(y) and ao_dtype(y) is node.dtype:
        ao_product(ADDCDIV_K, addcdiv_, <object>target.cotangent, (g, y))
        return 0
    return task.put(target, over(last, g, beside(node, g, y)), True)


cdef int pass_negated(GraphTask task, Node node, Node operand, object g, uint32_t fix, bint writable) except -1:
    """-g; `writable`: `g` is memory of this run's own, which nothing else reads."""
    cdef Node target
    if node.flags & fix or operand.op.flags & MULTI:
        return pass_on(task, node, operand, (ao_method0(ineg, g) if writable else ao_single(NEG_K, neg, g)), fix, True)
    target = task.aim(operand)
    if target is None:
        return 0
    if adds(task, target):
        ao_into(ISUB_K, isub, <object>target.cotangent, (g,))
        return 0
    return task.put(target, (ao_method0(ineg, g) if writable else ao_single(NEG_K, neg, g)), True)


cdef object share(GraphTask task, Node node, object g, object n):
    """g / n, for the mean of n elements: made once where many means are summed, whose cotangent is one tensor."""
    if g is not task.whole or n != task.parts or version_of(g) != task.whole_version or version_of(task.part) != 0:
        task.whole, task.parts, task.whole_version = g, n, version_of(g)
        task.part = ao_pair(DIV_K, div, g, beside(node, g, n))
        if task.means is None:
            task.means = []
        task.means.append(task.part)
    return task.part


cdef int pass_scaled(GraphTask task, Node node, Node operand, object t, object y, object factor) except -1:
    """t * y * factor, where `t` is memory of this run's own and the factor a power of two"""
    cdef Node target
    if operand.op.flags & MULTI:
        return pass_on(task, node, operand, ao_into(IMUL_K, imul, ao_into(IMUL_K, imul, t, (y,)), (factor,)), 0, True)
    target = task.aim(operand)
    if target is None:
        return 0
    if gathers(task, target) and ao_dtype(y) is node.dtype:
        addcmul_(<object>target.cotangent, t, y, value=factor)
        return 0
    return task.put(target, ao_into(IMUL_K, imul, ao_into(IMUL_K, imul, t, (y,)), (factor,)), True)


cdef int pass_mm(GraphTask task, Node node, Node operand, object x, object y, bint turned=False) except -1:
    """x @ y of two matrices; x.t() @ y where `turned`"""
    cdef Node target = None
    if not operand.op.flags & MULTI:
        target = task.aim(operand)
        if target is None:
            return 0
        if gathers(task, target):
            ao_method(addmm_, <object>target.cotangent, (ao_method0(t_method, x) if turned else x, y))
            return 0
    r = ao_turned_mm(mm, t_method, x, y) if turned else ao_mm(mm, x, y)
    return pass_on(task, node, operand, r, 0, True) if target is None else task.put(target, r, FILLED)
