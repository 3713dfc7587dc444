"""Gradients of leaves: written once, taken over when nobody else holds them."""

import torch


from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_call, ao_contiguous, ao_dtype, ao_get, ao_into, ao_is_neg, ao_is_view, ao_is_zero, ao_method, ao_method0,
    ao_needs_grad, ao_own, ao_set, ao_start, ao_strided, ao_use_reads,
)
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.kernel_names import INTO
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.engine.accumulate import ACCUMULATING
from autograd_opt.graph.node cimport SPARSE, Node, is_custom, same_shape, shape_of
from autograd_opt.graph.plain_values cimport is_float

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object get_grad = ao_own(base.__dict__["grad"])
cdef object get_hooks = private.backward_hooks_property
cdef object get_grad_dtype = base.__dict__["grad_dtype"]
cdef object get_post_hooks = private.post_accumulate_grad_hooks_property
cdef object is_neg = base.__dict__["is_neg"]
cdef object is_conj = base.__dict__["is_conj"]
cdef object get_device = ao_own(base.__dict__["device"])
cdef object stride_method = base.__dict__["stride"]
cdef object copy_method = base.__dict__["copy_"]
cdef object empty = torch.empty
cdef object empty_strided = torch.empty_strided
cdef object is_zero = private.is_zerotensor
cdef object iadd = base.__dict__["add_"]
cdef int IADD_K = INTO.index("add_")
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object acquire = ACCUMULATING.acquire
cdef object release = ACCUMULATING.release


cdef bint hookless(object t) except -1:
    """True if a custom leaf still requires grad, without hooks of a context's."""
    if not is_custom(t):
        return False
    own = t.__dict__
    return own.get("_requires_grad") is True and not own.get("_leaf_hooks") and not own.get("_post_hooks")


cdef tuple turned_strides(object t):
    """The strides of a leaf that is dense in another order of its axes; None for one that is contiguous or has gaps."""
    cdef list axes
    cdef Py_ssize_t expected = 1
    cdef tuple strides
    if ao_contiguous(t):
        return None
    strides = <tuple>ao_method(stride_method, t, ())
    axes = sorted([(stride, size) for stride, size in zip(strides, shape_of(t)) if size != 1])
    for stride, size in axes:
        if <Py_ssize_t>stride != expected:
            return None
        expected *= <Py_ssize_t>size
    return strides


cdef bint fits(object g, tuple strides) except -1:
    """Are the strides of `g` those that torch gives to the gradient of a leaf with these; contiguous for None?"""
    if strides is None:
        return ao_contiguous(g)
    if len(shape_of(g)) != len(strides):
        return False
    for size, have, wanted in zip(shape_of(g), <tuple>ao_method(stride_method, g, ()), strides):
        if (have != wanted) if size != 1 else have == 0:
            return False
    return True


cdef bint owned(object g, tuple strides, bint fresh, bint solid) except -1:
    """Can the leaf take over `g`, which the run alone holds?  It lies as the leaf does, alone in memory that is what it seems."""
    if solid and strides is None:
        return True
    return fits(g, strides) and not ao_is_neg(is_neg, g) and not ao_is_zero(is_zero, g) and (fresh or sole_owner(g)) \
        and (is_float(ao_dtype(g)) or ao_method0(is_conj, g) is not True)


cdef object copied(object g, object t, tuple strides):
    """`g` in memory of its own, with these strides; for None with those of a contiguous `t`, or contiguous."""
    cdef object out
    cdef size_t before = functions_off()
    try:
        if strides is None and ao_contiguous(t):
            strides = <tuple>ao_method(stride_method, t, ())
        if strides is None:
            out = ao_call(empty, (shape_of(t),), {"dtype": ao_dtype(g), "device": ao_get(get_device, g)})
        else:
            out = ao_call(empty_strided, (shape_of(t), strides), {"dtype": ao_dtype(g), "device": ao_get(get_device, g)})
        return ao_method(copy_method, out, (g,))
    finally:
        functions_on(before)


cdef bint write_grad(Node node, object g, bint sole, bint fresh, bint solid) except -1:
    """Write the gradient of a leaf without hooks, as `engine/accumulate.py` would.

    False where the general way must decide.  A first gradient is taken over without a copy
    when the run alone holds `g` and `g` alone its memory; of a `solid` one, which a kernel has
    just made, nothing else need be asked.
    """
    cdef object t = node.value, old
    cdef object dtype
    cdef tuple strides
    if is_weak(t) or type(g) is not Tensor or ao_is_view(t) or node.flags & SPARSE:
        return False
    if type(t) is Parameter or type(t) is Tensor:
        if not ao_needs_grad(t):
            return False
    elif not hookless(t):
        return False
    if ao_get(get_hooks, t) is not None or ao_get(get_post_hooks, t) is not None:
        return False
    dtype = node.dtype
    if not is_float(dtype) and not dtype.is_complex or ao_dtype(g) is not dtype or not solid and not ao_strided(g):
        return False
    old = ao_get(get_grad, t)
    if old is not None:
        if type(old) is not Tensor or not ao_strided(old):
            return False
        acquire()                        # the kernel lets other threads run, which may share the leaf
        try:
            if ao_get(get_grad, t) is not old:
                return False
            ao_into(IADD_K, iadd, old, (g,))
        finally:
            release()
        return True
    if ao_get(get_grad_dtype, t) is not dtype or not same_shape(shape_of(t), node.shape if solid else shape_of(g)):
        return False
    strides = turned_strides(t)
    acquire()                            # what looks for modes and properties may let other threads run
    try:
        if ao_get(get_grad, t) is not None:
            return False
        if sole and owned(g, strides, fresh, solid):
            ao_start(g, Py_REFCNT(g), 0)
        else:
            g = copied(g, t, strides)
        if is_custom(t):
            t.grad = g
        else:
            ao_set(get_grad, t, g)
    finally:
        release()
    return True
