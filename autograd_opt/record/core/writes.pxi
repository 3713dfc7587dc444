# Writes in place that no gradient follows, such as an optimizer's: torch's own call, and a note that memory has changed.
#
# With gradients off nothing of a write is recorded, so that its operands need no nodes; what the tape knows of the
# memory it finds out of date by itself, by version or by the note.

cdef int lend(object x) except -1:
    """The tensors in `x` go to somebody who may write them: each then finds its memory its own."""
    cdef Node node
    if type(x) is CustomTensor:
        node = held_node(x)
        if node is not None:
            node.spare = None
    elif type(x) is tuple or type(x) is list or type(x) is dict:
        deeper()
        try:
            for y in (<dict>x).values() if type(x) is dict else x:
                lend(y)
        finally:
            shallower()
    return 0


cdef inline int lend_all(Tape tape, object args, object kwargs) except -1:
    """`lend` the arguments of a call, where values are kept for reuse."""
    if tape.optimize:
        lend(args)
        if kwargs:
            lend(kwargs)
    return 0


cpdef lent(args, kwargs):
    """These arguments are about to be given to a function that is not in the operator table."""
    cdef Tape tape = active_tape()
    if tape is not None:
        lend_all(tape, args, kwargs)


cpdef object written(object func, tuple args, object kwargs):
    """Call `func`, which writes its first argument, or each tensor of that list, without a record."""
    cdef Tape tape = active_tape()
    cdef object r, switch
    if tape is None:
        return func(*args, **kwargs)
    lent(args, kwargs)
    switch = enter(tape)
    try:
        r = func(*args, **kwargs) if kwargs else ao_call(func, args, None)
        if args:
            for t in args[0] if type(args[0]) is list or type(args[0]) is tuple else args[:1]:
                if is_tensor(t):
                    wrote(t)
        return r
    finally:
        leave(tape, switch)


cdef class Write(Route):
    """The route of an in-place form: `handler` records it where gradients are on.

    Parameters
    ----------
    handler : what any write can be given to.
    op, bind, rename : the operator that computes the new value, and how it is bound, where it has a line in the table.
    reshapes : is the tensor given another shape, or are its axes exchanged?
    """
    cdef object handler, bind, rename
    cdef Op op
    cdef bint reshapes

    def __init__(self, handler, Op op=None, bind=None, rename=None, bint reshapes=False):
        self.handler, self.op, self.bind, self.rename, self.reshapes = handler, op, bind, rename, reshapes

    cdef bint turns(self, object t) except -1:
        """Is this another shape for a view, whose history may be read off its base anew?"""
        return self.reshapes and is_tensor(t) and ao_is_view(t)

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef object switch
        if tp != NULL and not (args and self.turns(args[0])) and (not grad_on() or (type(func) is MethodDescriptor or type(func) is BuiltinFunction)
                           and unfollowed(<Tape>tp, args, kwargs)):
            return written(func, args, kwargs)
        lent(args, kwargs)
        if tp != NULL and self.op is not None and args and not ao_casts(any_autocast) and usual_target(<Tape>tp, args[0]):
            switch = enter(<Tape>tp)
            try:
                if write_result(<Tape>tp, self, func, args, kwargs):
                    return args[0]
            finally:
                leave(<Tape>tp, switch)
        return self.handler(func, args, kwargs)


cdef bint usual_target(Tape tape, object t) except -1:
    """Is `t` a result that requires grad, no view, and without hooks?  Then nothing is to be refused, nor to move with a write."""
    cdef Node node
    if type(t) is not CustomTensor or not ao_plain(t) or ao_is_view(t):
        return False
    node = computed(t)
    return node is not None and node.tape_id == tape.id and node.index >= 0 and node.hooks is None and node.view is None \
        and node.flags & REQUIRES_GRAD != 0 and node.op is not OUTPUT_OP and node.op.name != "written"


cdef bint write_result(Tape tape, Write route, object func, tuple args, dict kwargs) except -1:
    """Write a usual target and move it to its new node; False, with nothing done, where the old value has to be copied."""
    cdef Op op = route.op
    cdef Node n
    cdef tuple operands
    cdef dict attrs
    cdef list nodes = [], versions = []
    cdef uint32_t mask = 0
    cdef Py_ssize_t i
    try:
        operands, attrs = route.bind(*args, **route.rename(kwargs, op.operands)) if kwargs else route.bind(*args)
    except TypeError:
        return False
    for i in range(len(operands)):
        t = operands[i]
        if not is_tensor(t):
            nodes.append(None)
            versions.append(0)
            continue
        if not ordinary(t) or not ao_plain(t) or ao_is_inference(is_inference, t):
            return False
        n = handle(tape, t)
        if n.op.name == "view_apart" or i == 0 and n is not computed(t):
            return False
        if n.flags & REQUIRES_GRAD:
            mask |= op.needs(<int>i)
        nodes.append(n)
        versions.append(version_of(t))
    if mask & 1:
        return False
    ao_call(func, args, kwargs if kwargs else None)
    record_write(op, nodes, operands, attrs, operands[0], None, versions)
    return True


cdef object BuiltinFunction = type(len)


cdef inline bint own_tensor(object t) except -1:
    """An ordinary tensor that is no view: a write to it is seen by nobody else."""
    return ordinary(t) and ao_plain(t) and not ao_is_view(t)


cdef bint unfollowed(Tape tape, tuple args, dict kwargs) except -1:
    """Does no gradient follow a write to the first argument, or to the tensors of that list?"""
    if not args or ao_casts(any_autocast):
        return False
    if type(args[0]) is list or type(args[0]) is tuple:
        for t in args[0]:
            if not own_tensor(t):
                return False
    elif not own_tensor(args[0]):
        return False
    return none_follows(tape, args, kwargs, True)


cdef object into(Tape tape, object func, tuple args, dict kwargs):
    """A call with `out=`, a tensor, that no gradient follows; None where more has to be asked."""
    cdef object out = kwargs["out"], before, r, switch
    if not ordinary(out) or not ao_plain(out) or ao_is_view(out) or ao_casts(any_autocast) or not none_follows(tape, args, kwargs, grad_on()):
        return None
    lend_all(tape, args, kwargs)
    switch = enter(tape)
    try:
        if is_shared_copy(out):
            out.data_ptr()                       # memory that a clone shares cannot be given another size
        before = shape_of(out)
        r = ao_call(func, args, kwargs)
        wrote(out)
        if shape_of(out) != before:
            from autograd_opt.record.leaves import remade
            remade(out, None)
        return r
    finally:
        leave(tape, switch)
