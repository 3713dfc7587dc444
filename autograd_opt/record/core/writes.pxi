# Writes in place that no gradient follows, such as an optimizer's: torch's own call, and a note that memory has changed.
#
# With gradients off nothing of a write is recorded, so that its operands need no nodes; what the tape knows of the
# memory it finds out of date by itself, by version or by the note.

cdef int lend(object x) except -1:
    """The tensors in `x` go to somebody who may write them: each then finds its memory its own."""
    cdef PyObject *p
    if type(x) is CustomTensor:
        p = ao_try_attr(x, NODE)
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None:
                (<Node>found).spare = None
    elif type(x) is tuple or type(x) is list or type(x) is dict:
        deeper()
        try:
            for y in (<dict>x).values() if type(x) is dict else x:
                lend(y)
        finally:
            shallower()
    return 0


cpdef lent(args, kwargs):
    """These arguments are about to be given to a function that is not in the operator table."""
    cdef Tape tape = active_tape()
    if tape is not None and tape.optimize:
        lend(args)
        if kwargs:
            lend(kwargs)


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


cdef class Write:
    """The route of an in-place form: `handler` records it where gradients are on."""
    cdef object handler

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        if recording() != NULL and not grad_on():
            return written(func, args, kwargs)
        lent(args, kwargs)
        return self.handler(func, args, kwargs)
