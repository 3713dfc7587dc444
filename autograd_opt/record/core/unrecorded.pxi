# Calls that record nothing: torch's own call, and a note of the views that it has made.
#
# Where gradients are off, or no operand takes part in differentiation, there is nothing to follow.  With value
# numbers such a call may still be worth a node, since an equal one finds its value; whether it ever does is
# learned for each place of the program (`settled`).

cdef object get_base = ao_own(base.__dict__["_base"])
cdef set plain_kinds = {int, float, bool, complex, str, type(None), type(Ellipsis), Size, DType, torch.device,
                        torch.layout, torch.memory_format, torch.Generator}
"""Classes of arguments that hold no tensor and have no torch function."""


cdef inline bint follows(Tape tape, object x, bint grad) except -1:
    """Is there anything in the argument `x` that a record or another class would have to be asked about?"""
    cdef object kind = type(x)
    if kind is Tensor or kind is Parameter:
        return not ao_plain(x) or grad and (ao_needs_grad(x) or tape.late and ao_is_view(x))
    if kind is CustomTensor:
        return not ao_plain(x) or grad and (tape.late and ao_is_view(x) or tracked(tape, x))
    return not (kind is int or kind is float or x is None or kind is bool) and inside_follows(tape, x, grad)


cdef bint inside_follows(Tape tape, object x, bint grad) except -1:
    cdef object kind = type(x)
    if kind is tuple or kind is list:
        deeper()
        try:
            for y in x:
                if follows(tape, y, grad):
                    return True
        finally:
            shallower()
        return False
    return not plain_argument(x)


cdef bint plain_argument(object x) except -1:
    """Is this an argument that holds no tensor and has no torch function?"""
    return plain_slice(x) if type(x) is slice else type(x) in plain_kinds


cdef bint none_follows(Tape tape, tuple args, dict kwargs, bint grad) except -1:
    """`follows` of no argument."""
    for x in args:
        if follows(tape, x, grad):
            return False
    if kwargs:
        for x in kwargs.values():
            if follows(tape, x, grad):
                return False
    return True


cdef bint idle(Tape tape, tuple args, dict kwargs) except -1:
    """Is there nothing to record of a call with these arguments?"""
    return none_follows(tape, args, kwargs, grad_on()) and (not tape.optimize or settled())


cdef object unrecorded(Tape tape, object func, tuple args, dict kwargs):
    """The call of torch's own, for arguments that `idle` has looked at."""
    cdef object r, switch
    lend_all(tape, args, kwargs)
    if not args or not is_tensor(args[0]):
        kwargs = placed(func, kwargs)
    switch = enter(tape)
    try:
        r = ao_call(binding_of(func), args, kwargs if kwargs else None)
        started(r)
        return shown_views(r, args, kwargs)
    finally:
        leave(tape, switch)


cdef inline object shown_views(object r, tuple args, dict kwargs):
    """The result as eager mode shows it, with a note of the views in it, since their base may come to require grad."""
    if type(r) is Tensor or type(r) is CustomTensor:
        return noted_view(r, r, args, kwargs) if ao_is_view(r) else r
    if isinstance(r, (tuple, list)) and len(r) and (type(r[0]) is Tensor or type(r[0]) is CustomTensor) and ao_is_view(r[0]):
        return noted_view(r, r[0], args, kwargs)
    return r


cdef object noted_view(object r, object first, tuple args, dict kwargs):
    cdef object below = ao_get(get_base, first), source
    cdef Tape tape
    cdef bint follows_none
    for x in args:
        if first is x:
            return r                             # the operand itself
    if not lies_in(below, args) and not (kwargs and lies_in(below, tuple(kwargs.values()))):
        return shown(r)
    tape = active_tape()
    source = args[0] if args and is_tensor(args[0]) else None
    follows_none = grad_on() or tape is None or not tracked(tape, below) and (source is None or not tracked(tape, source))
    below = None                                 # whether a base is hidden memory is told by its references
    if not follows_none:
        set_apart(r, source)
    else:
        note_view(r)
    return r


cdef bint lies_in(object below, object args) except -1:
    """Is the base of a view one of these tensors, or the base of one?"""
    for x in args:
        if is_tensor(x):
            if x is below or ao_is_view(x) and ao_get(get_base, x) is below:
                return True
        elif (type(x) is tuple or type(x) is list) and lies_in(below, x):
            return True
    return False


# Methods of torch's, met before its parser asks for a mode. ---------------------------
cdef extern from *:
    """
    typedef PyObject *const *ao_arguments;
    static vectorcallfunc ao_former, ao_former_question;     /* CPython's, one for all methods of a convention */
    static PyObject *ao_past;            /* what says that torch has to be asked */
    static PyObject *(*ao_meet)(PyObject *, ao_arguments, size_t, PyObject *);
    static PyObject *ao_method_entry(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        if (PyVectorcall_NARGS(nf) > 0) {
            PyObject *r = ao_meet(f, a, nf, names);
            if (r != ao_past) return r;
            Py_DECREF(r);
        }
        return ao_former(f, a, nf, names);
    }
    static PyObject *ao_short_entry(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        if (PyVectorcall_NARGS(nf) == 1) {
            PyObject *r = ao_meet(f, a, nf, names);
            if (r != ao_past) return r;
            Py_DECREF(r);
        }
        return ao_former_question(f, a, nf, names);
    }
    static CYTHON_INLINE PyObject *ao_go_on(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        if (((PyMethodDescrObject *)f)->d_method->ml_flags == METH_NOARGS) return ao_former_question(f, a, nf, names);
        return ao_former(f, a, nf, names);
    }
    static int ao_take_meeting(PyObject *f) {
        PyMethodDescrObject *d = (PyMethodDescrObject *)f;
        if (!Py_IS_TYPE(f, &PyMethodDescr_Type) || d->vectorcall == NULL) return 0;
        int questions = d->d_method->ml_flags == METH_NOARGS;
        vectorcallfunc *former = questions ? &ao_former_question : &ao_former;
        vectorcallfunc entry = questions ? ao_short_entry : ao_method_entry;
        if (!questions && d->d_method->ml_flags != (METH_VARARGS | METH_KEYWORDS) || d->vectorcall == entry) return 0;
        if (*former == NULL) *former = d->vectorcall;
        if (*former != d->vectorcall) return 0;
        d->vectorcall = entry;
        return 1;
    }
    static binaryfunc ao_former_item;
    static objobjargproc ao_former_assign;
    static PyObject *(*ao_item)(PyObject *, PyObject *);
    static int (*ao_assign)(PyObject *, PyObject *, PyObject *);
    static PyObject *ao_item_slot(PyObject *t, PyObject *index) {
        PyObject *r = ao_item(t, index);
        if (r != ao_past) return r;
        Py_DECREF(r);
        return ao_former_item(t, index);
    }
    static int ao_assign_slot(PyObject *t, PyObject *index, PyObject *value) {
        if (value != NULL) {
            int done = ao_assign(t, index, value);
            if (done) return done < 0 ? -1 : 0;
        }
        return ao_former_assign(t, index, value);
    }
    static int ao_take_slots(PyObject *type, PyObject *(*item)(PyObject *, PyObject *), int (*assign)(PyObject *, PyObject *, PyObject *)) {
        PyMappingMethods *m = ((PyTypeObject *)type)->tp_as_mapping;
        if (ao_former_item == NULL) ao_former_item = m->mp_subscript, ao_former_assign = m->mp_ass_subscript;
        ao_item = item, ao_assign = assign;
        if (m->mp_ass_subscript == ao_former_assign) m->mp_ass_subscript = ao_assign_slot;
        if (m->mp_subscript != ao_former_item) return 0;
        m->mp_subscript = ao_item_slot;
        return 1;
    }
    """
    ctypedef PyObject **ao_arguments
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    PyObject *ao_past
    object (*ao_meet)(PyObject *, ao_arguments, size_t, PyObject *)
    object ao_go_on(PyObject *f, ao_arguments a, size_t nf, PyObject *names)
    int ao_take_meeting(object f)
    int ao_take_slots(object type, object (*item)(PyObject *, PyObject *), int (*assign)(PyObject *, PyObject *, PyObject *) except -1)
    object ao_former_item(object t, object index)
    int ao_former_assign(object t, object index, object value) except -1

cdef object PAST = object()
ao_past = <PyObject *>PAST
cdef object detach_method = base.__dict__["detach"]
cdef object require_grad_method = base.__dict__["requires_grad_"]
cdef object opaque_route = None          # torch_fallback.handler


cdef set numbers = {int, float, bool, complex}


cdef inline PyObject *open_to(object t) except? NULL:
    """The tape that answers for what is done to `t` itself; NULL where torch has to be asked."""
    cdef PyObject *tp = recording()
    return NULL if tp == NULL or (<Tape>tp).guarded or not ordinary(t) or not mode_innermost() else tp


cdef object meet(PyObject *function, ao_arguments a, size_t nf, PyObject *names):
    """A method called on a tensor while a graph records; PAST where torch has to be asked."""
    cdef PyObject *tp = open_to(<object>a[0])
    cdef Tape tape
    cdef object func, handler, kind, r, switch
    cdef Py_ssize_t i, n
    cdef bint grad, raw
    if tp == NULL:
        return PAST
    tape, func = <Tape>tp, <object>function
    handler = handler_of(func)
    kind = type(handler)
    n = <Py_ssize_t>(nf & ~PY_VECTORCALL_ARGUMENTS_OFFSET)
    if names != NULL:
        n += len(<tuple>names)
    if kind is Write:
        r = PAST if (<Write>handler).turns(<object>a[0]) else overwritten(tape, function, a, nf, n, names)
        if r is not PAST or n == 2 and not (is_tensor(<object>a[1]) or type(<object>a[1]) in numbers):
            return r                         # `x += None`: torch says whether that is its to answer
        return routed(<Route>handler, func, a, nf, n, names)
    if kind is Recorded and names == NULL and (<Recorded>handler).kernel is not None \
            and n == (<Recorded>handler).kernel.arity and not ao_casts(any_autocast):
        r = fast_unary((<Recorded>handler).kernel, <object>a[0], True) if n == 1 \
            else fast_binary((<Recorded>handler).kernel, <object>a[0], <object>a[1])
        if r is not None:
            return r
    raw = kind is Raw
    if not raw and kind is not Recorded and kind is not Chosen and handler is not opaque_route:
        if n == 1:
            if func is detach_method:
                return detached(tape, <object>a[0])
            if func is require_grad_method and type(<object>a[0]) is Tensor:
                return require_grad(tape, <object>a[0])
        return PAST
    grad = grad_on() and not raw
    for i in range(n):
        if follows(tape, <object>a[i], grad):
            break
    else:
        if raw or (not tape.optimize or handler is opaque_route or settled()) and not ao_casts(any_autocast):
            if tape.optimize:
                for i in range(n):
                    lend(<object>a[i])
            switch = enter(tape)
            try:
                r = ao_go_on(function, a, nf, names)
                started(r)
                if type(r) is Tensor and not ao_is_view(r) or type(r) is bool or type(r) is int:
                    return r
                if raw:
                    return r
                return shown_views(r, tuple([<object>a[i] for i in range(n)]), None)
            finally:
                leave(tape, switch)
    return PAST if raw else routed(<Route>handler, func, a, nf, n, names)


cdef object routed(Route route, object func, ao_arguments a, size_t nf, Py_ssize_t n, PyObject *names):
    """A method called on a tensor, on its route; PAST where another class has to be asked first."""
    cdef Py_ssize_t i
    cdef dict kwargs = {}
    for i in range(n):
        if foreign(<object>a[i]):
            return PAST
    n = <Py_ssize_t>(nf & ~PY_VECTORCALL_ARGUMENTS_OFFSET)
    if names != NULL:
        for i, name in enumerate(<tuple>names):
            kwargs[name] = <object>a[n + i]
    return route.run(func, tuple([<object>a[i] for i in range(n)]), kwargs)


cdef object overwritten(Tape tape, PyObject *function, ao_arguments a, size_t nf, Py_ssize_t n, PyObject *names):
    """`t.add_(x)` and the like that no gradient follows; PAST where torch has to be asked."""
    cdef object r, switch
    cdef Py_ssize_t i
    cdef bint grad = grad_on()
    if grad and (not own_tensor(<object>a[0]) or ao_casts(any_autocast)):
        return PAST
    for i in range(0 if grad else 1, n):
        if follows(tape, <object>a[i], True) if grad else foreign(<object>a[i]):
            return PAST
    if tape.optimize:
        for i in range(n):
            lend(<object>a[i])
    switch = enter(tape)
    try:
        r = ao_go_on(function, a, nf, names)
        wrote(<object>a[0])
        return r
    finally:
        leave(tape, switch)


cdef object require_grad(Tape tape, object t):
    """`t.requires_grad_()` of a tensor that no graph knows; PAST where more has to be asked."""
    cdef PyObject *p = ao_try_attr(t, NODE)
    cdef object switch
    if p != NULL:
        Py_DECREF(<object>p)
        return PAST
    if not ao_plain(t) or not is_float(ao_dtype(t)) or ao_is_inference(is_inference, t):
        return PAST
    tape.late = True                         # there may be views of it
    switch = enter(tape)
    try:
        return ao_method(require_grad_method, t, EMPTY)
    finally:
        leave(tape, switch)


cdef object detached(Tape tape, object t):
    """`t.detach()`, of the class of `t` where it is this library's."""
    cdef object r, switch = enter(tape)
    try:
        r = ao_method0(detach_method, t)
    finally:
        leave(tape, switch)
    if type(t) is CustomTensor and type(r) is Tensor:
        ao_set_type(r, CustomTensor)
    return r


cdef object item_of(PyObject *tensor, PyObject *key):
    """`t[index]` for any tensor; PAST where torch has to be asked."""
    cdef object t = <object>tensor, index = <object>key, handler, found
    cdef PyObject *tp = open_to(t)
    cdef Tape tape
    cdef bint grad
    if tp == NULL or ao_casts(any_autocast):
        return PAST
    tape = <Tape>tp
    grad = grad_on()
    if not follows(tape, t, grad) and not follows(tape, index, grad) and (not tape.optimize or settled()):
        return unrecorded_item(tape, t, index)
    if type(index) is tuple:
        for entry in <tuple>index:
            if not basic(entry):
                break
        else:
            return apply(SLICE, getitem, (t, index), None, (t,), {"index": index})
    elif basic(index):
        return apply(SLICE, getitem, (t, index), None, (t,), {"index": (index,)})
    if foreign(index):
        return PAST
    found = by_tensors(tape, t, index)
    if found is not PAST:
        return found
    handler = handlers.get(getitem)
    if type(handler) is Chosen:
        return (<Chosen>handler).run(getitem, (t, index), {})
    return PAST


cdef object by_tensors(Tape tape, object t, object index):
    """`t[index]` for numbers, slices and ordinary tensors; PAST where the index holds what torch turns into tensors."""
    cdef list template = [], operands = [t]
    cdef object dtype, switch
    for entry in <tuple>index if type(index) is tuple else (index,):
        if basic(entry):
            template.append(entry)
            continue
        if not ordinary(entry):
            return PAST
        dtype = ao_dtype(entry)
        if dtype is torch.bool or dtype is torch.uint8 or len(<tuple>shape_of(entry)):
            template.append(SLOT)
            operands.append(entry)
            continue
        switch = enter(tape)
        try:
            template.append(int(entry))
        finally:
            leave(tape, switch)
    return apply(SLICE if len(operands) == 1 else INDEX, getitem, (t, index), None, tuple(operands), {"index": tuple(template)})


cdef object unrecorded_item(Tape tape, object t, object index):
    cdef object r, switch
    if tape.optimize:
        lend(t)
    switch = enter(tape)
    try:
        r = ao_former_item(t, index)
        ao_start(r, 1, 0)
        return noted_view(r, r, (t,), None) if ao_is_view(r) else r
    finally:
        leave(tape, switch)


cdef int assign_item(PyObject *tensor, PyObject *key, PyObject *what) except -1:
    """`t[index] = value` that no gradient follows: 1 where it is done, 0 where torch has to be asked."""
    cdef object t = <object>tensor, index = <object>key, value = <object>what, switch
    cdef PyObject *tp = open_to(t)
    cdef Tape tape
    cdef bint grad
    if tp == NULL or ao_casts(any_autocast):
        return 0
    tape = <Tape>tp
    grad = grad_on()
    if grad and not own_tensor(t) or follows(tape, t, grad) or follows(tape, index, grad) or follows(tape, value, grad):
        return 0
    if tape.optimize:
        lend(t)
        lend(value)
    switch = enter(tape)
    try:
        ao_former_assign(t, index, value)
        wrote(t)
    finally:
        leave(tape, switch)
    return 1


def take_methods():
    """Give the methods of tensors, and indexing, the entries above; how many were taken."""
    global ao_meet, opaque_route
    from autograd_opt.record.torch_fallback import handler
    opaque_route, ao_meet = handler, meet
    return sum([ao_take_meeting(f) for f in base.__dict__.values()]) \
        + sum([ao_take_slots(kind, item_of, assign_item) for kind in (Tensor, Parameter, CustomTensor)])
