# Gradients of leaves: written once, taken over when nobody else holds them.

cdef object get_hooks = base.__dict__["_backward_hooks"]
cdef object get_grad_dtype = base.__dict__["grad_dtype"]
cdef object get_post_hooks = base.__dict__["_post_accumulate_grad_hooks"]
cdef object is_neg = base.__dict__["is_neg"]
cdef object is_zero = base.__dict__["_is_zerotensor"]     # torch's zeros without memory
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter


cdef bint alone(object old, object g) except -1:
    """May `old`, which nobody else holds, be written: is it the only tensor over its memory?"""
    return type(old) is Tensor and type(g) is Tensor and ao_dtype(old) is ao_dtype(g) \
        and ao_strided(old) and ao_strided(g) \
        and ao_contiguous(old) and not ao_is_neg(is_neg, old) \
        and not ao_is_zero(is_zero, old) \
        and not old.is_complex() and sole_owner(old) \
        and shape_of(old) == shape_of(g)


cdef bint sparse(object g) except -1:
    return not ao_strided(g)


cdef bint alike(object a, object b) except -1:
    """Two tensors of one shape and dtype: either may be added to the other."""
    return type(a) is Tensor and type(b) is Tensor and ao_dtype(a) is ao_dtype(b) \
        and shape_of(a) == shape_of(b)


cdef bint hookless(object t):
    """A custom leaf that still requires grad, without hooks of a context's?"""
    if not is_custom(t):
        return False
    own = t.__dict__
    return own.get("_requires_grad") is True and not own.get("_leaf_hooks") and not own.get("_post_hooks")


cdef object acquire = ACCUMULATING.acquire
cdef object release = ACCUMULATING.release


cdef bint write_grad(Node node, object g, bint sole, bint fresh, bint solid) except -1:
    """`accumulate` (`engine/accumulate.py`) where nothing is special: a contiguous leaf without hooks.

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
