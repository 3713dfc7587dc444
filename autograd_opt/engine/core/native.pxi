# Rules in C for the operators of hot loops (`Op.hot`), in numeric runs over real dense tensors.
#
# Each has a line in the operator table that says what it computes; `tests/engine/test_native.py`
# runs both and compares.  A rule here decides before it sends anything whether it applies (1) or
# the line of the table has to run (0).  What it gains: no interpreter between the kernels, and sums
# made in place, of a product too (`addcmul_`, `addmm_`), where the waiting cotangent is the run's own.
#
# Part of executor.pyx.

cdef enum Hot:
    NONE, ADD, SUB, MUL, NEG, DIV, POW, EXP, LOG, SIN, COS, SQRT, SQUARE, RECIPROCAL, ABS, TANH, SIGMOID, RELU, \
        SOFTMAX, LOG_SOFTMAX, SUM, MEAN, MATMUL, MM, RESHAPE, SQUEEZE, TRANSPOSE, TURN, MIRROR, COPY, INDEX, SELECT, NARROW, \
        TANH_BACK, SIGMOID_BACK, LINEAR, ADDMM, WHERE, CAT, STACK, UNBIND, SPLIT, \
        DROPOUT, AXES, CONV, BATCH_NORM, LAYER_NORM, MAX_POOL, NLL, EMBEDDING, LSTM

cdef object div = base.__dict__["div"]
cdef object imul = base.__dict__["mul_"]
cdef object copy_ = base.__dict__["copy_"]
cdef object get_data = ao_own(base.__dict__["data"])
cdef object idiv = base.__dict__["div_"]
cdef object ineg = base.__dict__["neg_"]
cdef object isub = base.__dict__["sub_"]
cdef object addcdiv_ = base.__dict__["addcdiv_"]
cdef object addcmul_ = base.__dict__["addcmul_"]
cdef object addmm_ = base.__dict__["addmm_"]
cdef object mm = base.__dict__["mm"]
cdef object matmul = base.__dict__["matmul"]
cdef object t_method = base.__dict__["t"]
cdef object transpose = base.__dict__["transpose"]
cdef object get_mT = base.__dict__["mT"]
cdef object rsub = private.VariableFunctions.rsub
cdef object power = base.__dict__["pow"]
cdef object sine = base.__dict__["sin"]
cdef object cosine = base.__dict__["cos"]
cdef object signum = base.__dict__["sgn"]
cdef object reshape = base.__dict__["reshape"]
cdef object flatten = base.__dict__["flatten"]
cdef object expand = base.__dict__["expand"]
cdef object unsqueeze = base.__dict__["unsqueeze"]
cdef object narrow = base.__dict__["narrow"]
cdef object unbind = base.__dict__["unbind"]
cdef object new_zeros = base.__dict__["new_zeros"]
cdef object pad = private.VariableFunctions.constant_pad_nd
cdef object where = private.VariableFunctions.where
cdef object cat = private.VariableFunctions.cat
cdef object stack = private.VariableFunctions.stack
cdef object tanh_backward = private.direct(torch.ops.aten.tanh_backward.default)
cdef object sigmoid_backward = private.direct(torch.ops.aten.sigmoid_backward.default)
cdef object threshold_backward = private.direct(torch.ops.aten.threshold_backward.default)
cdef object softmax_backward = private.softmax_backward_data
cdef object log_softmax_backward = private.log_softmax_backward_data
cdef object CPU = same_device(torch.device("cpu"))


cdef object attribute(Node node, str name):
    """An attribute of a recorded call, its default where the call did not name it."""
    cdef object found
    if node.attrs is not None:
        found = (<dict>node.attrs).get(name, node)
        if found is not node:
            return found
    return node.op.attributes[name]


cdef inline tuple beside(Node node, object g, object y):
    """The arguments of `g * y` or `g / y` for a tensor or a number `y`."""
    if (type(y) is int or type(y) is float) and node.device is CPU:
        return number_arguments(y, g, ao_dtype(g))
    return (y,)


cdef bint dense(object g) except -1:
    """Is `g` an ordinary tensor of torch's, strided and real?"""
    return type(g) is Tensor and ao_strided(g) and is_float(ao_dtype(g))


cdef int native(GraphTask task, Node node, Op op, object g) except -1:
    """Run the rule of `node` here if there is one for this case: 1, else 0."""
    cdef int hot = op.hot
    if hot == UNBIND or hot == SPLIT:
        return native_parts(task, node, hot, g)
    if hot == LSTM:
        return native_lstm(task, node, g)
    if not is_float(node.dtype) or not dense(g):
        return 0
    if hot > SPLIT:
        return native_layer(task, node, hot, g)
    if hot >= LINEAR:
        return native_several(task, node, hot, g)
    if node.more is not None:
        return 0
    if not task.wants(node.in0) and not task.wants(node.in1):
        return 1
    if hot <= DIV:
        return native_arithmetic(task, node, hot, g)
    if hot == MATMUL or hot == MM:
        return native_matmul(task, node, g)
    if hot == TANH_BACK or hot == SIGMOID_BACK:
        return native_bend(task, node, hot, g)
    if not task.wants(node.in0):
        return 0
    if hot < SUM:
        return native_function(task, node, hot, g)
    return native_shape(task, node, hot, g)


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
            t = live_value(task.tape, node) if task.tape.optimize else None      # x / y itself, where it is still there
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
        if node.attrs is not None:
            alpha = attribute(node, "alpha")
            if type(alpha) is not int or alpha != 1:
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
        if node.in1 is not None or not node.flags & SCALAR1 or type(node.x1) is not int and type(node.x1) is not float \
                or node.x1 == 0:
            return 0
        t = saved(node, 0)
        if node.x1 == 2:
            t = ao_pair(MUL_K, mul, t, beside(node, t, 2))
        else:
            t = ao_into(IMUL_K, imul, ao_method(power, t, (node.x1 - 1,)), (node.x1,))
        t = ao_into(IMUL_K, imul, t, (g,))
    elif hot == EXP:
        pass_product(task, node, a, g, answer(task, node), UNBROADCAST0, True)
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
        t = answer(task, node)
        t = ao_pair(DIV_K, div, g, (ao_pair(MUL_K, mul, t, beside(node, t, 2)),))
    elif hot == SQUARE:
        t = saved(node, 0)
        t = ao_into(IMUL_K, imul, ao_pair(MUL_K, mul, t, beside(node, t, 2)), (g,))
    elif hot == RECIPROCAL:
        t = answer(task, node)
        t = ao_into(IMUL_K, imul, ao_pair(MUL_K, mul, t, (t,)), (g,))
        pass_negated(task, node, a, t, UNBROADCAST0, True)
        return 1
    elif hot == ABS:
        t = ao_into(IMUL_K, imul, ao_method0(signum, saved(node, 0)), (g,))
    elif hot == TANH:
        t = ao_bend(TANH_BACK_K, tanh_backward, g, answer(task, node))
    elif hot == SIGMOID:
        t = ao_bend(SIGMOID_BACK_K, sigmoid_backward, g, answer(task, node))
    elif hot == RELU:
        t = through_threshold(task, g, answer(task, node), Py_REFCNT(g))
    elif hot == SOFTMAX:
        t = softmax_backward(g, answer(task, node), attribute(node, "dim"), node.dtype)
    else:
        t = log_softmax_backward(g, answer(task, node), attribute(node, "dim"), node.dtype)
    pass_on(task, node, a, t, UNBROADCAST0, True)
    return 1


cdef bint tensor_like(object y) except -1:
    """Is a saved operand a tensor, not a number?"""
    return type(y) is Tensor or is_custom(y) or isinstance(y, Tensor)


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


cdef dict _partners = {}


cdef Op partner(int hot):
    """The operator that the rule computes of the same operand: cos for sin, sin for cos."""
    if not _partners:
        from autograd_opt.ops.table import OPS
        _partners.update({SIN: OPS["cos"], COS: OPS["sin"]})
    return <Op>_partners[hot]


cdef int native_shape(GraphTask task, Node node, int hot, object g) except -1:
    """Views, copies and sums: the cotangent itself, lying another way."""
    cdef Node a = node.in0
    cdef bint fresh = task.fresh, own = True
    if hot == SQUEEZE:
        hot = COPY if len(<tuple>shape_of(g)) == len(<tuple>a.shape) else RESHAPE
    if hot == RESHAPE:
        g = ao_method(reshape, g, (a.shape,))
    elif hot == TRANSPOSE:
        g = ao_method(transpose, g, (attribute(node, "dim0"), attribute(node, "dim1")))
    elif hot == TURN:
        g = ao_method0(t_method, g)
    elif hot == MIRROR:
        g = ao_get(get_mT, g)
    elif hot == SUM or hot == MEAN:
        dim, keepdim = attribute(node, "dim"), attribute(node, "keepdim")
        n = count(a.shape, dim) if hot == MEAN else None
        if n is not None and n > 1 and task.captures is None and not a.flags & LEAF:     # memory that nobody can write
            g, fresh, n = share(task, node, g, n), False, None
        if len(<tuple>a.shape):
            g, fresh = ao_method(expand, restored(g, a.shape, dim, keepdim), (a.shape,)), False
        elif hot == SUM:
            g, fresh = ao_method(expand, g, ((),)), False        # a tensor of its own, as for any other shape
        if n is not None:                        # as the table has it: the result may be the user's
            g, fresh = ao_pair(DIV_K, div, g, beside(node, g, n)), True
    elif hot == COPY:
        if node.op.flags & REDUCES and not len(<tuple>node.shape):
            return 0                     # an expanded number: torch sums its gradient, over no axes
    else:
        if hot == INDEX:
            index = attribute(node, "index")
            own = parts_taken(index, a.shape)
            if own and None in index:
                return 0
        else:
            start = attribute(node, "index" if hot == SELECT else "start")
            if type(start) is not int:
                return 0
            if hot == NARROW:
                if start < 0:
                    return 0
                start = slice(start, start + attribute(node, "length"))
            index = (slice(None),) * (attribute(node, "dim") % len(<tuple>a.shape)) + (start,)
        pass_place(task, node, a, g, index, own)
        return 1
    pass_on(task, node, a, g, UNBROADCAST0, fresh)
    return 1


cpdef bint parts_taken(tuple index, object shape) except -1:
    """Does torch take a part for this index?  A slice that stands alone is one even if it takes everything."""
    cdef Py_ssize_t axis = 0, i
    if len(index) == 1:
        return type(index[0]) is slice or type(index[0]) is int
    for entry in index:
        if entry is Ellipsis:
            axis = len(shape)
            for i in range(len(index) - 1, -1, -1):
                if index[i] is Ellipsis:
                    break
                axis -= index[i] is not None
        elif entry is not None:
            if not takes_all(entry, shape[axis]):
                return True
            axis += 1
    return False


cdef bint takes_all(object entry, object length) except -1:
    """Is this a slice that torch leaves out of an index of several entries?"""
    return type(entry) is slice and (entry.start is None or entry.start == 0) and (entry.step is None or entry.step == 1) \
        and (entry.stop is None or entry.stop >= length)


cdef object count(object shape, object dim):
    """How many elements a reduction over `dim` takes together."""
    cdef Py_ssize_t i, n = 1, rank = len(shape)
    if dim is None or dim == () or dim == []:
        for i in range(rank):
            n *= shape[i]
    elif type(dim) is int:
        n = shape[dim % rank] if rank else 1
    else:
        for d in dim:
            n *= shape[d % rank] if rank else 1
    return n


cdef object restored(object g, object shape, object dim, bint keepdim):
    """`g` with the axes that a reduction over `dim` removed, ready to expand to `shape`."""
    cdef Py_ssize_t rank = len(shape)
    if keepdim:
        return g
    if dim is None or dim == () or dim == []:
        return g
    if type(dim) is int:
        return ao_method(unsqueeze, g, (dim % rank,))
    for d in sorted([d % rank for d in dim]):
        g = ao_method(unsqueeze, g, (d,))
    return g


cdef int native_matmul(GraphTask task, Node node, object g) except -1:
    """Products of matrices, or of stacks of matrices."""
    cdef Node a = node.in0, b = node.in1
    cdef object x
    cdef Py_ssize_t m, n
    if a is None or b is None:
        return 0
    m, n = len(<tuple>a.shape), len(<tuple>b.shape)
    if m < 2 or n < 2 or a.dtype is not b.dtype:
        return 0
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
            pass_on(task, node, b, ao_method0(t_method, ao_turned_mm(mm, t_method, rows(g), rows(x))), 0, True)
        elif n == 2:
            pass_mm(task, node, b, rows(x), rows(g), True)
        else:
            pass_on(task, node, b, ao_method(matmul, ao_get(get_mT, x), (g,)), UNBROADCAST1, True)
    if task.wants(a):
        x = saved(node, 1)
        if m == 2 and n == 2 and turned_view(a):
            pass_on(task, node, a, ao_method0(t_method, ao_mm(mm, x, ao_method0(t_method, g))), 0, True)
        elif m == 2 and n == 2:
            pass_mm(task, node, a, g, ao_method0(t_method, x))
        else:
            pass_on(task, node, a, ao_method(matmul, g, (ao_get(get_mT, x),)), UNBROADCAST0, True)
    return 1


cdef bint turned_by_a_rule(GraphTask task, Node node):
    """Is `node` a transpose that a rule has made for itself, and nobody's business?  Then the matrix gets its part."""
    return task.shares and node.flags & INNER and node.op.hot == MIRROR and not node.flags & MERGED \
        and node.hooks is None and task.wants(node.in0) and (task.captures is None or node.index not in task.captures)


cdef inline bint turned_view(Node node) except -1:
    """Is this the transpose of a matrix?  Then its cotangent is made turned, as in torch: that of the matrix is row-major."""
    return node.view is not None and len(<tuple>node.shape) == 2 and exchanged(node)


cdef bint exchanged(Node node) except -1:
    """Is this a view that exchanges axes an odd number of times?"""
    cdef bint odd = False
    while node.view is not None and node.in0 is not None and turns(node):
        odd = not odd
        node = node.in0
    return odd


cdef object SPELLINGS = frozenset("T H mH".split())


cdef bint turns(Node node) except -1:
    """Does this operation exchange the two axes of a matrix?"""
    cdef int hot = node.op.hot
    if hot == TURN or hot == MIRROR:
        return True
    if hot == TRANSPOSE:
        return (attribute(node, "dim0") - attribute(node, "dim1")) % 2 != 0
    if hot == AXES:
        return attribute(node, "dims")[0] % 2 != 0
    return not hot and node.op.name in SPELLINGS


cdef object rows(object t):
    """A stack of matrices as one matrix."""
    return ao_method(flatten, t, (0, -2))


cdef int native_several(GraphTask task, Node node, int hot, object g) except -1:
    """Operators of three operands or more."""
    cdef Node other
    cdef Py_ssize_t i, start, length
    cdef object x, w
    operands = node.more
    if operands is None:
        return 0
    if hot == LINEAR:
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
                             ao_method(reshape, ao_method(mm, flat, (w,)), ((<Node>operands[0]).shape,)), 0, True)
        return 1
    if hot == ADDMM:
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
    if hot == WHERE:
        x = saved(node, 0)
        if task.wants(operands[2]):
            pass_on(task, node, operands[2], where(x, zero_of(node.dtype, node.device), g), UNBROADCASTN, True)
        if task.wants(operands[1]):
            pass_on(task, node, operands[1], where(x, g, zero_of(node.dtype, node.device)), UNBROADCAST1, True)
        return 1
    dim = attribute(node, "dim")
    if hot == STACK:
        parts = ao_method(unbind, g, (dim,))
        for i in range(len(operands) - 1, -1, -1):
            if task.wants(operands[i]):
                pass_on(task, node, operands[i], parts[i], unbroadcast(i), False)
        return 1
    start = 0
    for other in operands:
        if other is None or len(other.shape) != len(node.shape):
            return 0
        start += other.shape[dim]
    for i in range(len(operands) - 1, -1, -1):
        other = operands[i]
        length = other.shape[dim]
        start -= length
        if task.wants(other):
            pass_on(task, node, other, ao_method(narrow, g, (dim, start, length)),
                         unbroadcast(i), False)
    return 1


cdef dict _zeros = {}


cdef object zero_of(object dtype, object device):
    """A zero without axes, made once."""
    found = _zeros.get((dtype, device))
    if found is None:
        found = _zeros[dtype, device] = torch.zeros((), dtype=dtype, device=device)
    return found


cdef int native_parts(GraphTask task, Node node, int hot, object g) except -1:
    """`unbind` and the kinds of `split`: the cotangents of the outputs, joined."""
    cdef Node a = node.in0
    cdef Py_ssize_t i, only = -1, given = 0, start = 0
    cdef dict zeros = {}
    if a is None or not is_float(a.dtype):
        return 0
    if not task.wants(a):
        return 1
    parts = g.parts
    for i, part in enumerate(parts):
        if part is not None:
            if not dense(part):
                return 0
            only = i
            given += 1
    dim = attribute(node, "dim") % len(<tuple>a.shape)
    if given == 1:
        if hot == UNBIND:
            index = only
        else:
            for i in range(only):
                start += node.shape[i][0][dim]
            index = slice(start, start + node.shape[only][0][dim])
        pass_place(task, node, a, parts[only], (slice(None),) * dim + (index,), True)
        return 1
    joined = list(parts)
    for i, part in enumerate(parts):
        if part is None:
            shape = node.shape[i][0]
            if shape not in zeros:
                zeros[shape] = ao_method(new_zeros, parts[only], (shape,))
            joined[i] = zeros[shape]
    # torch's kernel returns a view of memory that eager mode does not show
    whole = ao_get(get_data, stack(joined, dim)) if hot == UNBIND else cat(joined, dim)
    pass_on(task, node, a, whole, UNBROADCAST0, True)
    return 1


cdef object placed(object g, object shape, tuple index, bint own, bint *fresh):
    """Zeros of `shape` with `g` at a basic `index`, in one kernel where every step is 1.

    `own`: in memory of its own, also where the index takes everything.
    """
    cdef list pads = [], inner = []
    cdef Py_ssize_t axis = 0, skip, start, stop, step
    cdef bint padded = False, plain = True
    fresh[0] = True
    for e in index:
        if e is None:
            plain = False
            continue
        if e is Ellipsis:
            skip = len(shape) - sum([i is not None and i is not Ellipsis for i in index])
            for axis in range(axis, axis + skip):
                inner.append(shape[axis])
                pads.append((0, 0))
            axis = len(inner)
            continue
        if type(e) is int:
            start = e if e >= 0 else e + shape[axis]
            stop = start + 1
            plain = False
        else:
            start, stop, step = e.indices(shape[axis])
            if step != 1:
                out = ao_method(new_zeros, g, (shape,))
                out[index] = g
                return out
            stop = max(start, stop)
        inner.append(stop - start)
        pads.append((start, shape[axis] - stop))
        padded = padded or start != 0 or stop != shape[axis]
        axis += 1
    if not plain:
        g = ao_method(reshape, g, ((*inner, *shape[axis:]),))
    if not padded:
        if own:
            out = ao_method(new_zeros, g, (shape,))
            ao_method(copy_, out, (g,))
            return out
        fresh[0] = False
        return g
    return pad(g, [0] * (2 * (len(shape) - axis)) + [n for pair in reversed(pads) for n in pair])
