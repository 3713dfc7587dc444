# The general route: many operands, several outputs, saved-tensor hooks, what must be refused.

cdef object apply_guarded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs):
    cdef Node n, node, first
    cdef list nodes = []
    cdef bint req = False, grad = grad_on(), view = False, cloned = False
    cdef int paused
    cdef object r = None, key = None, extra = None, entry = None
    if not tape.optimize:
        for t in operands:
            if op.differentiable and isinstance(t, Tensor) and tracked(tape, t):
                break
        else:
            return func(*args, **kwargs) if kwargs else func(*args)
    try:
        for t in operands:
            if isinstance(t, Tensor):
                n = seen(tape, op, t)
                if n.flags & REQUIRES_GRAD:
                    req = True
                nodes.append(n)
            else:
                nodes.append(None)
    except NotImplementedError:
        return beyond(tape, op, func, args, kwargs, operands)
    req = req and grad and op.differentiable
    if tape.optimize and tape.plain and op.flags & PURE and not op.flags & MULTI:
        key = make_key(op, nodes, operands, attrs, req, grad)
        if key is not None:
            entry = tape.general.get(key)
            if entry is not None and not op.flags & VIEW:
                r = reuse(tape, op, <Node>entry, req)
                cloned = r is not None
                if cloned:
                    extra = extra_of(<Node>(<Node>entry).holder)
    if r is None:
        if op.kernel is not None and req:
            paused = set_paused(1)               # operators inside are part of this node
            try:
                r, extra = op.kernel(*operands, **(attrs or {}))
            finally:
                set_paused(paused)
        elif kwargs:
            r = func(*args, **kwargs)
        else:
            r = func(*args)
        if op.flags & VIEW and not grad and op.differentiable and any_requires(nodes):
            if set_apart(r):
                return r
        if not (req or tape.optimize):
            return r
        view = op.flags & VIEW and isinstance(r, Tensor) and r._is_view()
    if isinstance(r, Tensor):
        for t in operands:
            if t is r:
                return r
        if type(r) is not Tensor and type(r) is not CustomTensor:
            if req:
                from autograd_opt.errors import unsupported_result
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
        if key is None:
            node.vn = fresh_vn() if tape.optimize else 0
        elif entry is None:
            node.vn = fresh_vn()
            node.holder = <PyObject *>node
            tape.general[key] = node
        else:
            first = <Node>entry
            node.vn = first.vn
            if first.flags & (DEAD | SPENT):         # the number outlives its value; the leader does not
                node.holder = <PyObject *>node
                tape.general[key] = node
            else:
                node.leader = first
                first.live += 1
                tape.twins += 1
                first.holder = <PyObject *>node
        if op.values_only and tape.algebra and key is not None:
            tape.recognize(node, r)
        if tape.sources:
            current_source(node)
        attach(tape, node, r)
        return r
    return record_outputs(tape, op, nodes, operands, attrs, req, r, extra)


cdef object beyond(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands):
    """A call on a tensor that cannot be recorded: refused where a gradient would be lost, else run."""
    if grad_on() and op.differentiable and any([isinstance(t, Tensor) and tracked(tape, t) for t in operands]):
        refuse(operands, op.name)
    return func(*args, **kwargs) if kwargs else func(*args)


cdef object unchanged(Op op, object func, tuple args, dict kwargs, tuple operands, object error):
    """A call that returns its operand as it is asks nothing of it; for any other, the error stands."""
    if op.flags & PURE:
        r = func(*args, **kwargs) if kwargs else func(*args)
        for t in operands:
            if t is r:
                return r
    raise error


cdef int note_view(object r) except -1:
    """Remember when views of a constant were made: it may come to require grad."""
    for t in r if isinstance(r, (tuple, list)) else (r,):
        if type(t) is Tensor and not t.is_inference() and t._is_view():
            t._made = version_of(t)
    return 0


cdef int refuse(operands, str name) except -1:
    """Raise the error that is being handled, with the operation's name where a tensor's kind is the reason."""
    for t in operands:
        if unusual(t):
            from autograd_opt.errors import unsupported_operand
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


cdef bint set_apart(object r) except -1:
    """Give views made under no_grad of a tensor that requires grad the node that torch's words describe."""
    cdef bint any_view = False
    from autograd_opt.views import apart
    for t in (r if isinstance(r, (tuple, list)) else (r,)):
        if type(t) is Tensor and t._is_view() and not t.is_inference():
            any_view = apart(t, True) is not None or any_view
    return any_view


cdef object extra_of(Node node):
    return None if node.saved_more is None else node.saved_more[2]


cdef object make_key(Op op, list nodes, tuple operands, dict attrs, bint req, bint grad):
    """What two calls must have in common to be one value; None where that cannot be said.

    A tuple compared element by element: value numbers as ints, everything else frozen so that
    values of different type or bits are never equal.
    """
    cdef Node n
    cdef list parts
    if ao_builtin0(any_autocast) is True:
        return None
    parts = [(op.id << 2) | (req << 1) | grad]
    try:
        for n, t in zip(nodes, operands):
            if n is None:
                parts.append(frozen(t))
            else:
                parts.append(n.vn)
                if not is_float(n.dtype):        # promotion may ask for the default dtype
                    parts.append(torch.get_default_dtype())
        if attrs:
            for name, value in attrs.items():
                parts.append(name)
                parts.append(frozen(value))
    except TypeError:
        return None
    return tuple(parts)


cdef object frozen(object v):
    """A hashable stand-in, equal exactly for values of one type and the same bits."""
    t = type(v)
    if v is None or t is str or t is DType:
        return v
    if t is bool:
        return b"T" if v else b"F"
    if t is int:
        return ("i", v)
    if t is tuple or t is list or t is Size:
        return ("(", *[frozen(x) for x in v])
    if t is slice:
        return ("l", frozen(v.start), frozen(v.stop), frozen(v.step))
    return encode(v)


cdef object device_of(Op op, list nodes, object r):
    """The device of a result: its first operand's, but for operators that move values."""
    cdef Node n
    if not op.flags & MOVES:
        for n in nodes:
            if n is not None and n.device is not None:
                return n.device
    return same_device(ao_get(get_device, r))
