# The general route: many operands, several outputs, saved-tensor hooks, what must be refused.

cdef object apply_guarded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    cdef Node n, node
    cdef list nodes
    cdef uint32_t flags = 0
    cdef bint req, grad = grad_on(), view = False, cloned = False, keyed
    cdef int paused
    cdef Py_ssize_t i, count = len(operands), moves = 0
    cdef object r = None, extra = None
    cdef Entry *e = NULL
    if not tape.optimize:
        for t in operands:
            if counts(tape, op, t):
                break
        else:
            r = ao_call(func, args, kwargs)
            started(r)
            return shown(r) if op.flags & HIDES else r
    nodes = [None] * count
    try:
        for i in range(count):
            t = operands[i]
            if is_tensor(t):
                n = seen(tape, op, t)
                flags |= n.flags
                nodes[i] = n
    except NotImplementedError:
        return beyond(tape, op, func, args, kwargs, operands)
    if flags & SPARSE:
        return WHOLE
    req = grad and op.differentiable and flags & REQUIRES_GRAD
    keyed = tape.optimize and exact and tape.plain and op.flags & PURE and not op.flags & MULTI \
        and not (req and settled_after(MORE_MISSES))
    if keyed:
        e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
        if e != NULL and e.first != NULL and not op.flags & VIEW:
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None and not tape.moved
            if r is not None:
                extra = extra_of(<Node>(<Node>e.first).holder)
        moves = tape.table.moves
    if r is None:
        if op.kernel is not None and req:
            paused = set_paused(1)               # operators inside are part of this node
            try:
                r, extra = op.kernel(*operands, **(attrs or {}))
            finally:
                set_paused(paused)
            started(r, extra)
            if keyed:                            # a kernel is Python code, and may have moved the table
                e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
                moves = tape.table.moves
        else:
            r = ao_call(func, args, kwargs)
            started(r)
        if op.flags & HIDES:
            r = shown(r)
        if op.flags & VIEW and inferred(r):
            return r                     # follows no gradient, whatever its base does
        if op.flags & VIEW and not grad and op.differentiable and flags & REQUIRES_GRAD \
                and set_apart(r, operands[0]):
            return r
        if not (req or tape.optimize):
            return r
        view = op.flags & VIEW and isinstance(r, Tensor) and r._is_view()
    if isinstance(r, Tensor):
        for t in operands:
            if t is r:
                if tape.optimize and not req:
                    missed_here(False)
                return r
        if type(r) is not Tensor and type(r) is not CustomTensor:
            if req:
                from autograd_opt.graph.refusals import unsupported_result
                raise unsupported_result(r, op.name)
            return r
        if not tape.optimize and not (r.is_floating_point() or r.is_complex()):
            return r
        node = fill(tape, op, nodes, operands, attrs, req, r, extra)
        if view:
            node.view = True
        if cloned:
            node.flags |= CLONE
        if not tape.plain:
            pack_saved(tape, node, r)
        if e == NULL and tape.optimize:
            node.vn = fresh_vn()
            if not req:
                learn(node, None)
        else:
            numbered(tape, node, e, moves)
        if op.keeps is not None and e != NULL:
            tape.keep_number(node, r)
        if tape.sources:
            current_source(node)
        attach(tape, node, r)
        return r
    return record_outputs(tape, op, nodes, operands, attrs, req, r, extra)


cdef object beyond(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands):
    """A call on a tensor that cannot be recorded: refused where a gradient would be lost, else run."""
    if grad_on() and op.differentiable and any([isinstance(t, Tensor) and tracked(tape, t) for t in operands]):
        refuse(operands, op.name)
    return ao_call(func, args, kwargs)


cdef object handed_back(object func, tuple args, dict kwargs, tuple operands):
    """The operand that the call returns as it is; None where the result is another tensor."""
    r = ao_call(func, args, kwargs)
    for t in operands:
        if t is r:
            return r
    return None


cdef object unchanged(Op op, object func, tuple args, dict kwargs, tuple operands, object error):
    """A call that returns its operand as it is asks nothing of it; for any other, the error stands.

    A dropout of nothing is one; of something, torch draws before it looks.
    """
    if op.flags & PURE or op.name == "dropout":
        r = handed_back(func, args, kwargs, operands)
        if r is not None:
            return r
    raise error


cdef object shown(object r):
    """A result as eager mode shows it: not as a view of memory that only torch's kernel knows."""
    if isinstance(r, (tuple, list)):
        return type(r)([shown(t) for t in r])
    return ao_get(get_data, r) if ao_is_view(r) else r


cdef int note_view(object r) except -1:
    """Remember when views of a constant were made: it may come to require grad."""
    for t in r if isinstance(r, (tuple, list)) else (r,):
        if type(t) is Tensor and not ao_is_inference(is_inference, t) and t._is_view():
            t._made = version_of(t)
    return 0


cdef int refuse(operands, str name) except -1:
    """Raise the error that is being handled, with the operation's name where a tensor's kind is the reason."""
    for t in operands:
        if unusual(t):
            from autograd_opt.graph.refusals import unsupported_operand
            raise unsupported_operand(t, name)
    raise


def nodes_or_refuse(list tensors, str name):
    """The node of each tensor; None where one cannot be recorded and none requires grad.

    Raises UnsupportedError where a gradient would be lost.
    """
    cdef Tape tape = tape_here()
    try:
        return [handle(tape, t) for t in tensors]
    except NotImplementedError:
        if grad_on() and any([tracked(tape, t) for t in tensors]):
            refuse(tensors, name)
        return None


cdef bint inferred(object r) except -1:
    """Was this result, or were these, made of inference tensors?"""
    if type(r) is tuple or type(r) is list:
        return len(r) > 0 and inferred(r[0])
    return isinstance(r, Tensor) and ao_is_inference(is_inference, r)


cdef bint set_apart(object r, object source) except -1:
    """`views.set_apart`."""
    from autograd_opt.record.views import set_apart as in_python
    return in_python(r, source)


cdef object extra_of(Node node):
    return None if node.saved_more is None else node.saved_more[2]


