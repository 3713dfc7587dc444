"""Gradients of leaves: written once, taken over when nobody else holds them."""

import torch


from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_contiguous, ao_dtype, ao_get, ao_into, ao_is_neg, ao_is_view, ao_is_zero, ao_needs_grad, ao_own, ao_set, ao_start,
    ao_strided, ao_use_reads,
)
from autograd_opt.abi.kernel_names import INTO
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.engine.accumulate import ACCUMULATING
from autograd_opt.graph.node cimport SPARSE, Node, is_custom, shape_of
from autograd_opt.graph.plain_values cimport is_float

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object get_grad = ao_own(base.__dict__["grad"])
cdef object get_hooks = base.__dict__["_backward_hooks"]
cdef object get_grad_dtype = base.__dict__["grad_dtype"]
cdef object get_post_hooks = base.__dict__["_post_accumulate_grad_hooks"]
cdef object is_neg = base.__dict__["is_neg"]
cdef object is_zero = base.__dict__["_is_zerotensor"]     # torch's zeros without memory
cdef object iadd = base.__dict__["add_"]
cdef int IADD_K = INTO.index("add_")
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object acquire = ACCUMULATING.acquire
cdef object release = ACCUMULATING.release


cdef bint hookless(object t):
    """True if a custom leaf still requires grad, without hooks of a context's."""
    if not is_custom(t):
        return False
    own = t.__dict__
    return own.get("_requires_grad") is True and not own.get("_leaf_hooks") and not own.get("_post_hooks")


cdef bint write_grad(Node node, object g, bint sole, bint fresh, bint solid) except -1:
    """Write the gradient of a contiguous leaf without hooks, as `engine/accumulate.py` would.

    False where the general way must decide.  A first gradient is taken over without a copy
    when the run alone holds `g` and `g` alone its memory; of a `solid` one, which a kernel has
    just made, nothing else need be asked.
    """
    cdef object t = node.value, old
    cdef object dtype
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
    if not is_float(dtype) or ao_dtype(g) is not dtype or not solid and not ao_strided(g):
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
    if not sole or not ao_contiguous(t) or ao_get(get_grad_dtype, t) is not dtype:
        return False
    if not solid:
        if not ao_contiguous(g) or ao_is_neg(is_neg, g) \
                or ao_is_zero(is_zero, g) or shape_of(g) != shape_of(t):
            return False
        if not fresh and not sole_owner(g):
            return False
    elif shape_of(t) != node.shape:
        return False
    acquire()                            # what looks for modes and properties may let other threads run
    try:
        if ao_get(get_grad, t) is not None:
            return False
        ao_start(g, Py_REFCNT(g), 0)
        if is_custom(t):
            t.grad = g
        else:
            ao_set(get_grad, t, g)
    finally:
        release()
    return True
