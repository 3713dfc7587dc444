"""Read properties of plain tensors past the mode.

Inside a graph torch hands each `x.dtype` or `p.grad = None` of the user's to the mode, which costs
a microsecond, more than many kernels.  None of them is an operation.  The descriptors of the class keep their
identity; what they point to is a copy of torch's own entry, whose functions ask first whether the mode of this
library is the one that would be asked.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_all_off, ao_is_leaf, ao_is_view, ao_needs_grad, ao_plain, ao_strided, ao_try_attr, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport handle, held_node
from autograd_opt.graph.node cimport (
    EXPOSED, LEAF, MARK, NO_MERGE, NODE, Node, Parameter, PlainTensor as Tensor, ordinary,
)
from autograd_opt.graph.tape cimport Tape, active_tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport computed, lend, open_to
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.routes cimport Recorded
from autograd_opt.record.torch_function cimport handler_of, plain_reads

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object RETAINS = "_retains_grad"
cdef extern from *:
    """
    typedef struct {
        PyGetSetDef shown;                           /* what the descriptor points to, itself as the closure */
        PyGetSetDef *former;
        PyObject *getter;                            /* what torch hands a mode for it */
    } ao_property;
    static CYTHON_INLINE PyObject *ao_former_get(PyObject *t, void *place) {
        PyGetSetDef *former = ((ao_property *)place)->former;
        return former->get(t, former->closure);
    }
    static CYTHON_INLINE int ao_former_set(PyObject *t, PyObject *value, void *place) {
        PyGetSetDef *former = ((ao_property *)place)->former;
        return former->set(t, value, former->closure);
    }
    static CYTHON_INLINE PyObject *ao_getter(void *place) { return ((ao_property *)place)->getter; }
    static int ao_take_property(PyObject *f, PyObject *(*get)(PyObject *, void *), int (*set)(PyObject *, PyObject *, void *)) {
        PyGetSetDescrObject *d = (PyGetSetDescrObject *)f;
        ao_property *p;
        if (!Py_IS_TYPE(f, &PyGetSetDescr_Type) || d->d_getset->get == NULL || d->d_getset->get == get) return 0;
        p = (ao_property *)PyMem_RawMalloc(sizeof(ao_property));     /* for as long as the class */
        if (p == NULL) return 0;
        p->former = d->d_getset;
        p->shown = *p->former;
        p->shown.get = get;
        if (p->shown.set != NULL) p->shown.set = set;
        p->shown.closure = p;
        p->getter = PyObject_GetAttrString(f, "__get__");
        if (p->getter == NULL) return -1;
        d->d_getset = &p->shown;
        return 1;
    }
    """
    object ao_former_get(PyObject *t, void *place)
    int ao_former_set(PyObject *t, PyObject *value, void *place) except -1
    PyObject *ao_getter(void *place)
    int ao_take_property(object f, object (*get)(PyObject *, void *), int (*set)(PyObject *, PyObject *, void *) except -1) except -1


cdef inline Tape ours_to_read(PyObject *t):
    """The tape whose mode would be asked about `t`, and has nothing to say; None where torch has to be asked."""
    cdef PyObject *tp = open_to(<object>t)
    return None if tp == NULL else <Tape>tp


cdef object read_property(PyObject *t, void *place):
    cdef Tape tape = ours_to_read(t)
    if tape is None:
        return ao_former_get(t, place)
    switch = enter(tape)
    try:
        return ao_former_get(t, place)
    finally:
        leave(tape, switch)


cdef object read_gradient(PyObject *t, void *place):
    """`t.grad` of a tensor that nothing has recorded; for any other it has a meaning of its own inside a graph."""
    cdef PyObject *node
    if recording() == NULL or type(<object>t) is not Parameter and type(<object>t) is not Tensor:
        return ao_former_get(t, place)
    node = ao_try_attr(<object>t, NODE)
    if node == NULL:
        return read_property(t, place)
    Py_DECREF(<object>node)
    return ao_former_get(t, place)


cdef object leaf_to_read(PyObject *t):
    """The tape whose mode would be asked about `t`, if nothing can have computed `t`; None where torch has to be asked."""
    if recording() == NULL or not ordinary(<object>t) or not ao_plain(<object>t) or ao_is_view(<object>t) \
            or computed(<object>t) is not None or not ao_is_leaf(<object>t):
        return None
    return ours_to_read(t)


cdef object read_is_leaf(PyObject *t, void *place):
    return ao_former_get(t, place) if leaf_to_read(t) is None else True


cdef object read_grad_fn(PyObject *t, void *place):
    return ao_former_get(t, place) if leaf_to_read(t) is None else None


cdef object read_retains_grad(PyObject *t, void *place):
    return ao_former_get(t, place) if leaf_to_read(t) is None else bool(getattr(<object>t, RETAINS, False))


cdef object read_requires_grad(PyObject *t, void *place):
    cdef PyObject *p
    if leaf_to_read(t) is None:
        return ao_former_get(t, place)
    p = ao_try_attr(<object>t, MARK)
    if p != NULL:
        found = <object>p
        Py_DECREF(found)
        return bool(found)
    return bool(ao_needs_grad(<object>t))


cdef int pass_write(PyObject *t, PyObject *value, void *place) except -1:
    return ao_former_set(t, value, place)


cdef object read_view(PyObject *t, void *place):
    """`t.T` and the like: properties that are operations of the table."""
    cdef object handler
    if ours_to_read(t) is not None:
        handler = handler_of(<object>ao_getter(place))
        if type(handler) is Recorded:
            return (<Recorded>handler).run(<object>ao_getter(place), (<object>t,), {})
    return ao_former_get(t, place)


cdef int assign_part(PyObject *t, PyObject *value, void *place) except -1:
    """`z.real = x`, a write into the view `z.real` of which torch tells no mode."""
    cdef PyObject *tp = recording()
    if tp == NULL or (<Tape>tp).guarded or value == NULL or not isinstance(<object>value, (Tensor, int, float, complex)) \
            or ao_all_off(all_disabled):
        return ao_former_set(t, value, place)
    from autograd_opt.record.inplace import assign_part as in_python
    in_python(<object>ao_getter(place), <object>t, <object>value)
    return 0


cdef object read_data(PyObject *t, void *place):
    """`t.data`, another tensor on the same memory, which is written unseen."""
    cdef Tape tape = ours_to_read(t)
    if tape is None:
        return ao_former_get(t, place)
    if tape.optimize:
        escaped(<object>t)
    switch = enter(tape)
    try:
        return ao_former_get(t, place)
    finally:
        leave(tape, switch)


cpdef int escaped(object t) except -1:
    """The memory of `t` can now change unseen: no value in it is ever reused."""
    cdef Tape tape = active_tape()
    cdef Node node
    cdef size_t switch
    if tape is None or not isinstance(t, Tensor):
        return 0
    switch = enter(tape)
    try:
        tape.escape(t)
        node = held_node(t)
        if node is None or node.flags & LEAF:            # what no record has read is marked when one does
            entry = tape.leaf_of(<PyObject *>t)
            if entry is not None:
                node = <Node>entry
                node.mark(EXPOSED | NO_MERGE)
                if node.view is not None:
                    (<Node>node.view).mark(EXPOSED | NO_MERGE)
            elif not ao_strided(t):                      # it has no memory of its own that would tell
                node = handle(tape, t)
                node.mark(EXPOSED | NO_MERGE)
                tape.let_go_unread((node,))
        elif node.index >= 0:
            node.mark(EXPOSED | NO_MERGE)
    finally:
        leave(tape, switch)
    return 0


cdef int assign_gradient(PyObject *t, PyObject *value, void *place) except -1:
    """`t.grad = value`, which is no operation."""
    cdef Tape tape = None
    if value == <PyObject *>None or value != NULL and ordinary(<object>value):
        tape = ours_to_read(t)
    if tape is None:
        return ao_former_set(t, value, place)
    if tape.optimize:
        lend(<object>value)
    switch = enter(tape)
    try:
        return ao_former_set(t, value, place)
    finally:
        leave(tape, switch)


def take_reads():
    """Give properties of plain tensors the entries above; how many were taken."""
    return sum([ao_take_property(p, read_property, pass_write) for p in plain_reads | {private.version_property}]) \
        + sum([ao_take_property(base.__dict__[name], read_view, pass_write) for name in ("T", "mT", "H", "mH")]) \
        + sum([ao_take_property(base.__dict__[name], read_view, assign_part) for name in ("real", "imag")]) \
        + ao_take_property(base.__dict__["data"], read_data, pass_write) \
        + ao_take_property(base.__dict__["grad"], read_gradient, assign_gradient) \
        + ao_take_property(base.__dict__["is_leaf"], read_is_leaf, pass_write) \
        + ao_take_property(base.__dict__["grad_fn"], read_grad_fn, pass_write) \
        + ao_take_property(base.__dict__["retains_grad"], read_retains_grad, pass_write) \
        + ao_take_property(base.__dict__["requires_grad"], read_requires_grad, pass_write)
