# What a backward run needs and reads: which nodes, which saved tensors, in which shapes.

cdef bint intermediate(inputs):
    """Is any of these nodes something other than a leaf?"""
    cdef Node node
    for other in inputs:
        node = other
        if node is not None and not node.flags & LEAF:
            return True
    return False


cdef bint hooked_above(Node node) except -1:
    """Is this one output of several whose hooks the operation itself calls?"""
    return node.in0 is not None and node.in0.op.flags & MULTI and node.in0.hooks is not None and node.in0.hooks.outputs


cdef inline bint undefined(Op op, object g):
    """Is there no cotangent at all for a rule?  A Function is called all the same."""
    if g is None:
        return not op.functions
    return op.flags & MULTI and not op.functions and type(g) is Contribution and not any([p is not None for p in g.parts])


cdef list waiting_order(list leaves, Node user):
    """Leaves that one operation uses, in the order in which torch writes their `.grad`.

    There they wait in a heap with one priority (`std::priority_queue`), whose order this is.  torch's `linear` and
    `matmul` reshape some operand first, which therefore comes after the others.
    """
    cdef Py_ssize_t hole, second
    cdef list out = []
    if user is not None and len(leaves) < 4 and (user.op.name == "linear" or user.op.name == "matmul"):
        operands = [n for n in user.operands if n is not None]
        flat = len(operands[0].shape) == 2
        wanted = operands[2:] + (operands[:2] if flat else operands[1::-1])
        return list(dict.fromkeys([n.index for n in wanted if n.index in leaves] + leaves))
    while leaves:
        out.append(leaves[0])
        last = leaves.pop()
        if not leaves:
            break
        hole = second = 0
        while second < (len(leaves) - 1) // 2:
            second = 2 * second + 2
            leaves[hole] = leaves[second]
            hole = second
        if len(leaves) % 2 == 0 and second == (len(leaves) - 2) // 2:
            second = 2 * second + 2
            leaves[hole] = leaves[second - 1]
            hole = second - 1
        leaves[hole] = last
    return out


cdef int resolve(GraphTask task, dict captured) except -1:
    """Decide which nodes merge in this run, with torch functions off: versions are read."""
    if task.guard is None:
        return task.tape.resolve(captured)
    ao_method0(guard_enter, task.guard)
    try:
        return task.tape.resolve(captured)
    finally:
        ao_method(guard_exit, task.guard, NOTHING)


cdef set makers_of(list inputs):
    """Indices of the operations of several outputs, one node in torch, of which `inputs` holds some."""
    cdef Node node
    cdef set found = set()
    for node in inputs:
        if node is not None and node.in0 is not None and node.in0.op.flags & MULTI:
            from autograd_opt.graph.hooks import PIECEWISE
            if node.in0.op.name not in PIECEWISE:
                found.add(node.in0.index)
    return found


cdef list called_at(list inputs):
    """Indices of the Functions of several outputs of which `inputs` holds some."""
    cdef Node node
    return [node.in0.index for node in inputs if node is not None and node.op == "output" and node.in0.op.functions]


cdef object traced(GraphTask task, object t):
    """In a recorded run, a copy made before a write in place belongs to the value before it."""
    if not task.create_graph or not isinstance(t, Tensor):
        return t
    origin = t.__dict__.get("_copy_of")
    if origin is None:
        return t
    from autograd_opt.graph.tensor import connected
    return connected(t, origin)


cdef object stale(Node node, int i):
    raise refusals.modified(node, i)


cdef bint reads_again(Node node):
    """Does a run read the operands that this node has saved?"""
    return not node.op.flags & AGAIN or torch.is_grad_enabled()


cdef object saved(Node node, int i):
    """The saved value of operand `i`, unchanged since it was recorded."""
    cdef object t
    if node.saved_more is not None:
        values, versions = node.saved_more[0], node.saved_more[1]
        t = values[i]
        if type(t) is Packed:
            return t.value()
        if node.more[i] is not None and t is not None and version_of(t) != versions[i] and reads_again(node):
            return stale(node, i)
        return t
    if node.more is not None:            # released: only numbers are left, among the attributes
        return node.attrs.get(node.op.operands[i]) if node.attrs is not None and node.more[i] is None else None
    if i == 0:
        t = node.x0
        if type(t) is Packed:
            return t.value()
        if t is not None and not node.flags & SCALAR0 and version_of(t) != node.v0:
            return stale(node, 0)
    else:
        t = node.x1
        if type(t) is Packed:
            return t.value()
        if t is not None and not node.flags & SCALAR1 and version_of(t) != node.v1:
            return stale(node, 1)
    return t


cdef int whole(GraphTask task, Node node) except -1:
    """Is all that a node has saved unwritten?  torch asks also for what no rule of this run reads."""
    for other in node.operands:
        if other is not None and (<Node>other).flags & REQUIRES_GRAD and not task.wants(<Node>other):
            if not task.direct:
                require_unwritten(node)
                return 0
            ao_method0(guard_enter, task.guard)      # under a mode every read of a version would be a call
            try:
                require_unwritten(node)
            finally:
                ao_method(guard_exit, task.guard, NOTHING)
            return 0
    return 0                             # every rule runs, and reads what it has saved


def require_unwritten(Node node):
    """Refuse a node of whose saved tensors one was written."""
    cdef Py_ssize_t i
    cdef object t, version
    if node.saved_more is not None:
        for i, (t, version) in enumerate(zip(node.saved_more[0], node.saved_more[1])):
            if node.more[i] is not None and isinstance(t, Tensor) and version_of(t) != version and reads_again(node):
                stale(node, i)
    elif isinstance(node.x0, Tensor) and version_of(node.x0) != node.v0:
        stale(node, 0)
    elif isinstance(node.x1, Tensor) and version_of(node.x1) != node.v1:
        stale(node, 1)
    if node.flags & NEEDS_ANS and not node.flags & PACKED and (
            node.flags & OVERWRITTEN or node.tensor != NULL and version_of(<object>node.tensor) != node.version):
        stale(node, -1)
    if node.saved_more is not None and node.saved_more[3] is not None:
        for t, version in node.saved_more[3]:
            if version_of(t) != version:
                stale(node, -1)


cdef object answer(GraphTask task, Node node):
    """The output of `node`, unchanged; with its handle when the run is recorded."""
    cdef object t
    if node.op.lean and not node.flags & NEEDS_ANS:
        return None
    if node.flags & PACKED:
        if node.value is None:
            raise refusals.freed(node)
        return node.value.value()
    if node.flags & OVERWRITTEN:
        return stale(node, -1)
    if node.tensor != NULL:
        t = <object>node.tensor
        if version_of(t) != node.version:
            return stale(node, -1)
        return t
    t = node.value
    if t is None:
        raise refusals.freed(node)
    if version_of(t) != node.version:
        return stale(node, -1)
    if task.create_graph:
        return revive(node, t)
    return t


cdef object revive(Node node, object t):
    """A tensor for a node whose own tensor the user has dropped."""
    from autograd_opt.graph.tensor import revive as make
    return make(node, t)


cdef object argument(GraphTask task, Node node, int code):
    cdef Node other
    if code >= 64:                       # of operand code-64, code-128 or code-192
        operands = node.more if node.more is not None else (node.in0, node.in1)
        if code >= 192:
            other = operands[code - 192]
            return other is not None and turned_view(other)
        if code >= 128:
            other = operands[code - 128]
            return None if other is None else other.dtype
        other = operands[code - 64]
        return () if other is None else other.shape
    if code >= 16:
        return traced(task, saved(node, code - 16))
    if code == 1:
        return answer(task, node)
    if code == 2:
        return node.shape
    if code == 3:
        operands = node.more if node.more is not None else (node.in0, node.in1)
        return tuple([task.wants(n) for n in operands])
    if code == 4:
        return [() if n is None else (<Node>n).shape for n in node.operands]
    if code == 5:
        return [traced(task, saved(node, k)) for k in range(len(node.operands))]
    if code == 10:
        return [None if k == 0 else traced(task, saved(node, k)) for k in range(len(node.operands))]
    if code == 11:
        return [None if k < 2 else traced(task, saved(node, k)) for k in range(len(node.operands))]
    if code == 6:
        return node.dtype
    if code == 7:
        return task
    if code == 8:
        return node
    if code == 9:
        if node.saved_more is None:
            raise refusals.freed(node)
        if node.saved_more[3] is not None:
            for t, version in node.saved_more[3]:
                if version_of(t) != version:
                    return stale(node, -1)
        return unpack_extra(node.saved_more[2]) if node.flags & NO_MERGE else node.saved_more[2]
    raise AssertionError(code)


cdef bint reads_extra(Op op):
    """Does a rule read what the call itself has left, as noise, indices or torch's small graph?"""
    if op.joint is not None:
        return 9 in (<Vjp>op.joint).codes
    for vjp in op.vjps:
        if vjp is not None and 9 in (<Vjp>vjp).codes:
            return True
    return False


cdef bint stateless(Node node):
    """Can a spent node run again because its rules read nothing that was released?"""
    cdef uint32_t mask = 0
    cdef Py_ssize_t i
    cdef Node n
    cdef bint asked = False
    if node.index < 0:
        return False
    if node.op.functions:                # its `ctx` refuses to give what it had saved
        return node.saved_more is not None
    for i, other in enumerate(node.operands):
        n = other
        if n is not None and awaits(node.op, n):
            mask |= node.op.needs(i)
            asked = True
    if asked and (node.op.flags & ONCE and node.flags & FREED or node.saved_more is None and reads_extra(node.op)):
        return False
    if node.op.hot != MUL and node.op.hot != DIV:        # whose number torch saves as a tensor
        for i, other in enumerate(node.operands):
            if other is None and i < 30:
                mask &= ~(<uint32_t>1 << i)  # a number is not released
    return mask == 0


def runs_again(Node node):
    """Can the rules of `node` run, in spite of an earlier run that freed what they had saved?"""
    return not node.flags & FREED or stateless(node)


cdef object operand_shape(object g):
    """The shape of a cotangent, from its node where a mode would see the read."""
    return g.shape if getattr(g, "_node", None) is not None else shape_of(g)


cdef object dtype_of(object g):
    """The dtype of a cotangent, likewise."""
    cdef PyObject *p
    if is_custom(g):
        p = ao_try_attr(g, "_node")
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None and not (<Node>found).flags & LEAF:
                return (<Node>found).dtype
    return ao_dtype(g)


cdef object sum_to(object g, object have, object shape):
    """Sum over the axes that broadcasting added or stretched."""
    cdef Py_ssize_t lead = len(have) - len(shape), i
    leading = tuple(range(lead))
    inner = tuple([i for i in range(lead, len(have)) if shape[i - lead] == 1 and have[i] != 1])
    if not inner:
        return g.sum(leading) if lead else g
    if not lead:
        return g.sum(inner, keepdim=True)
    return g.sum(leading + inner, keepdim=True).reshape(shape)


cdef object summed_for(GraphTask task, object g, object have, Node operand):
    """The same; for a target of `grad` a view where axes are gone, as in torch, whom the user can ask for it."""
    cdef object shape = operand.shape
    cdef Py_ssize_t lead = len(have) - len(shape), i
    if task.captures is None or task.accumulate or lead <= 0 or operand.index not in task.captures:
        return sum_to(g, have, shape)
    if not len(shape):
        return g.sum()                       # torch has no axes to give it then
    stretched = tuple([i for i in range(len(have)) if i < lead or shape[i - lead] == 1 and have[i] != 1])
    return g.sum(stretched, keepdim=True).view(shape)


cdef tuple LEADING = (0,)


cdef object summed_to(object g, object have, object shape):
    """The same on plain values; leading axes alone, as under a bias, need no second kernel."""
    cdef Py_ssize_t rank = len(<tuple>shape), lead = len(<tuple>have) - rank
    if lead > 0 and (rank == 1 and (<tuple>have)[lead] == (<tuple>shape)[0] or have[lead:] == shape):
        return ao_sum_first(summed, g, LEADING) if lead == 1 else ao_method(summed, g, (tuple(range(lead)),))
    return ao_method(sum_to_size, g, (shape,))


cdef object fit(GraphTask task, object g, Node operand):
    """Sum `g` over broadcast axes and cast it to the operand's dtype (real part of complex)."""
    cdef object have = operand_shape(g)
    if have != operand.shape:
        g = sum_to(g, have, operand.shape) if task is None else summed_for(task, g, have, operand)
    if dtype_of(g) is not operand.dtype:
        if g.is_complex() and not operand.dtype.is_complex:
            g = g.real
        g = g.to(operand.dtype)
    return g


def node_saved(Node node, int i):
    """The saved value of operand `i` (for verification and introspection)."""
    return saved(node, i)


def use_native(bint on):
    """Run the rules written in C where they apply, or the table's everywhere; returns what was so far."""
    global _native
    cdef bint before = _native
    _native = on
    return before
