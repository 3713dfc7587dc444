# What the rules in C do with their results: summed to the operand's shape, made in memory that the run owns, or
# added to what waits there already.
#
# Part of executor.pyx.

cdef object HALF = torch.float16
cdef object BFLOAT16 = torch.bfloat16

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
        if have != operand.shape:
            if task.captures is None or task.accumulate:
                g, fresh = summed_to(g, have, operand.shape), FILLED if len(<tuple>operand.shape) == 1 else 1
            else:
                g, fresh = summed_for(task, g, have, operand), False
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


cdef bint turns_into(GraphTask task, Node node, object g, object y) except -1:
    """May the memory of `g` hold its product or quotient with `y`, which is of the type of `node`?"""
    return owns(task, g) and (not tensor_like(y) or ao_dtype(y) is node.dtype)


cdef bint adds(GraphTask task, Node target):
    """Does a sum wait at `target` that may be written?"""
    return task.inplace and target.cotangent != NULL and target.task == task.id and target.flags & FRESH \
        and not task.shows(target, <object>target.cotangent)


cdef bint gathers(GraphTask task, Node target):
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


cdef int pass_place(GraphTask task, Node node, Node operand, object g, tuple index, bint own) except -1:
    """Zeros of the operand's shape with `g` at a basic index"""
    cdef Node target
    cdef bint fresh = False
    if operand.op.flags & MULTI:
        g = placed(g, operand.shape, index, own, &fresh)
        return pass_on(task, node, operand, g, 0, False)
    target = task.aim(operand)
    if target is None:
        return 0
    if adds(task, target):
        ao_into(IADD_K, iadd, (<object>target.cotangent)[index], (g,))
        return 0
    g = placed_by_steps(g, operand.shape, index, &fresh) if target is operand and by_steps(task, operand, index) \
        else placed(g, operand.shape, index, own, &fresh)
    return task.put(target, g, fresh)
