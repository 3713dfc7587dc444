"""Give methods of tensors and arithmetic entries of their own, which are asked before torch's parser asks for a mode.

A method of torch's has an entry of CPython's (PEP 590), one for all of its convention.  Ours, in its place, records
where it can and else goes on to the former.
"""

import torch

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_casts, ao_dtype, ao_is_inference, ao_is_view, ao_method, ao_method0, ao_plain, ao_set_type, ao_try_attr, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport wrote
from autograd_opt.graph.node cimport NODE, CustomTensor, PlainTensor as Tensor
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport include_views, recording
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.record.arguments cimport (
    follows, foreign, grad_on, is_tensor, lend, mode_innermost, open_to, own_tensor,
)
from autograd_opt.record.autocast cimport spared
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.hot_operators cimport fast_binary, fast_unary
from autograd_opt.record.items cimport PAST, numbers, take_items
from autograd_opt.record.new_memory cimport alone
from autograd_opt.record.routes cimport Chosen, Decomposed, Raw, Recorded, Route, Write
from autograd_opt.record.sites cimport settled
from autograd_opt.record.torch_function cimport handler_of
from autograd_opt.record.unrecorded cimport fresh, shown_views

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object any_autocast = private.is_any_autocast_enabled
cdef object is_inference = base.__dict__["is_inference"]
cdef tuple EMPTY = ()
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
    static vectorcallfunc ao_former_operator;     /* one for all operators of torch.ops */
    static PyObject *(*ao_operator)(PyObject *, ao_arguments, size_t, PyObject *);
    static PyObject *ao_operator_entry(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        return ao_operator(f, a, nf, names);
    }
    static int ao_take_operator(PyObject *f) {
        PyCFunctionObject *c = (PyCFunctionObject *)f;
        if (!PyCFunction_CheckExact(f) || c->vectorcall == NULL || c->vectorcall == ao_operator_entry) return 0;
        if (ao_former_operator == NULL) ao_former_operator = c->vectorcall;
        if (ao_former_operator != c->vectorcall) return 0;
        c->vectorcall = ao_operator_entry;
        return 1;
    }
    """
    ctypedef PyObject **ao_arguments
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    PyObject *ao_past
    object (*ao_meet)(PyObject *, ao_arguments, size_t, PyObject *)
    object ao_go_on(PyObject *f, ao_arguments a, size_t nf, PyObject *names)
    int ao_take_meeting(object f)
    object ao_former_operator(PyObject *f, ao_arguments a, size_t nf, PyObject *names)
    object (*ao_operator)(PyObject *, ao_arguments, size_t, PyObject *)
    int ao_take_operator(object f)

ao_past = <PyObject *>PAST
cdef object detach_method = base.__dict__["detach"]
cdef object require_grad_method = base.__dict__["requires_grad_"]
cdef object opaque_route = None          # torch_fallback.handler


cdef object meet(PyObject *function, ao_arguments a, size_t nf, PyObject *names):
    """A method called on a tensor while a graph records; PAST where torch has to be asked."""
    cdef PyObject *tp = open_to(<object>a[0])
    cdef Tape tape
    cdef object func, handler, kind, r
    cdef size_t switch
    cdef Py_ssize_t i, n
    cdef bint grad, raw, new = False
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
            and n == (<Recorded>handler).kernel.arity and (not ao_casts(any_autocast) or spared((<Recorded>handler).op.name)):
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
        return routed(<Route>handler, func, a, nf, n, names) if kind is Decomposed else PAST
    grad = grad_on() and not raw
    if grad and type(<object>a[0]) is CustomTensor and (kind is Recorded or kind is Chosen):
        return routed(<Route>handler, func, a, nf, n, names)     # which asks the same, and seldom for nothing
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
                new = not raw and alone(func, None)
                r = ao_go_on(function, a, nf, names)
                if new:
                    return r
                fresh(r)
                if type(r) is Tensor and not ao_is_view(r) or type(r) is bool or type(r) is int:
                    return r
                if raw:
                    return r
                return shown_views(r, tuple([<object>a[i] for i in range(n)]), None)
            finally:
                if new:
                    include_views()
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
    cdef object r
    cdef size_t switch
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
    cdef size_t switch
    if p != NULL:
        Py_DECREF(<object>p)
        return PAST
    if not ao_plain(t) or not is_float(ao_dtype(t)) or ao_is_inference(is_inference, t):
        return PAST
    tape.late = True                         # there may be views of it
    base_became_late(t)                      # in graphs to come as well
    switch = enter(tape)
    try:
        return ao_method(require_grad_method, t, EMPTY)
    finally:
        leave(tape, switch)


cdef object detached(Tape tape, object t):
    """`t.detach()`, of the class of `t` where it is this library's."""
    cdef object r
    cdef size_t switch = enter(tape)
    try:
        r = ao_method0(detach_method, t)
    finally:
        leave(tape, switch)
    if type(t) is CustomTensor and type(r) is Tensor:
        ao_set_type(r, CustomTensor)
    return r


def take_methods():
    """Give the methods of tensors, and indexing, the entries above; how many were taken."""
    global ao_meet, opaque_route
    from autograd_opt.record.torch_fallback import handler
    opaque_route, ao_meet = handler, meet
    return sum([ao_take_meeting(f) for f in base.__dict__.values()]) \
        + take_items()


cdef object framed(PyObject *f, ao_arguments a, size_t nf, PyObject *names):
    """An operator that says where an optimizer or the user's code begins or ends: no mode has to see it."""
    cdef PyObject *tp = recording()
    cdef size_t switch
    if tp == NULL or (<Tape>tp).guarded or not mode_innermost():
        return ao_former_operator(f, a, nf, names)
    switch = enter(<Tape>tp)
    try:
        return ao_former_operator(f, a, nf, names)
    finally:
        leave(<Tape>tp, switch)


def take_operators():
    """Give the profiler's operators, which every step of an optimizer calls, the entry above; how many were taken."""
    global ao_operator
    ao_operator = framed
    return sum([ao_take_operator(f) for f in private.profiler_operators()])
