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
    """The route of an in-place form: `handler` records it where gradients are on."""
    cdef object handler

    def __init__(self, handler):
        self.handler = handler

    cdef object run(self, object func, tuple args, dict kwargs):
        if recording() != NULL and (not grad_on() or (type(func) is MethodDescriptor or type(func) is BuiltinFunction)
                                    and unfollowed(<Tape>recording(), args, kwargs)):
            return written(func, args, kwargs)
        lent(args, kwargs)
        return self.handler(func, args, kwargs)


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
    if not ordinary(out) or not ao_plain(out) or ao_casts(any_autocast) or not none_follows(tape, args, kwargs, grad_on()):
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
