"""Give the slots of indexing entries of their own, which are asked before torch asks for a mode.

`t[index]` is a view or a gathered copy, `t[index] = value` a write; what an index means is in `ops/indexing.py`.
"""

import torch

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_call, ao_dtype, ao_is_inference, ao_is_view, ao_plain, ao_start, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport handle, wrote
from autograd_opt.graph.node cimport (
    REQUIRES_GRAD, CustomTensor, Node, Op, Parameter, PlainTensor as Tensor, ordinary, shape_of, version_of,
)
from autograd_opt.graph.plain_values cimport takes_all
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.record.arguments cimport basic, follows, foreign, grad_on, is_tensor, lend, lent, open_to, own_tensor
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.new_nodes import record_write
from autograd_opt.record.recorder cimport apply
from autograd_opt.record.routes cimport Route, usual_target
from autograd_opt.record.sites cimport settled
from autograd_opt.record.torch_function cimport handler_of, handlers
from autograd_opt.record.unrecorded cimport noted_view

ao_use_reads(reads_address())
cdef object is_inference = private.TensorBase.__dict__["is_inference"]
cdef extern from *:
    """
    static PyObject *ao_past;            /* what says that torch has to be asked */
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
    static void ao_know_slots(PyObject *type) {
        PyMappingMethods *m = ((PyTypeObject *)type)->tp_as_mapping;
        ao_former_item = m->mp_subscript, ao_former_assign = m->mp_ass_subscript;
    }
    static int ao_take_slots(PyObject *type, PyObject *(*item)(PyObject *, PyObject *), int (*assign)(PyObject *, PyObject *, PyObject *)) {
        PyMappingMethods *m = ((PyTypeObject *)type)->tp_as_mapping;
        ao_item = item, ao_assign = assign;
        if (m->mp_ass_subscript == ao_former_assign) m->mp_ass_subscript = ao_assign_slot;
        if (m->mp_subscript != ao_former_item) return 0;
        m->mp_subscript = ao_item_slot;
        return 1;
    }
    """
    PyObject *ao_past
    void ao_know_slots(object type)
    int ao_take_slots(object type, object (*item)(PyObject *, PyObject *), int (*assign)(PyObject *, PyObject *, PyObject *) except -1)
    object ao_former_item(object t, object index)
    int ao_former_assign(object t, object index, object value) except -1

cdef object PAST = object()
cdef object make_tensor = torch.tensor
ao_past = <PyObject *>PAST
cdef set numbers = {int, float, bool, complex}
cdef object getitem = Tensor.__getitem__, setitem = Tensor.__setitem__, normal_index = None
cdef Route general_item = None           # for any index
cdef object general_assignment = None    # inplace.setitem
cdef Op SLICE = None, INDEX = None, SETITEM = None, COPY = None, FILL = None, OVERWRITE = None
cdef str SLOT = None                     # ops/indexing.py: what stands for a tensor in an index's attribute


cdef object item_of(PyObject *tensor, PyObject *key):
    """`t[index]` for any tensor; PAST where torch has to be asked."""
    cdef PyObject *tp = open_to(<object>tensor)
    return PAST if tp == NULL else item(<Tape>tp, <object>tensor, <object>key)


cdef object item(Tape tape, object t, object index):
    """`t[index]` for a tensor that a graph answers for; PAST where another class has to be asked."""
    cdef object found
    cdef bint grad = grad_on()
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
    return general_item.run(getitem, (t, index), {}) if found is PAST else found


cdef class Item(Route):
    """The route of `t[index]` where torch has asked the mode."""

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef object r = PAST
        if tp != NULL and len(args) == 2 and not kwargs and ordinary(args[0]):
            r = item(<Tape>tp, args[0], args[1])
        return general_item.run(func, args, kwargs) if r is PAST else r


cdef class ItemAssignment(Route):
    """The route of `t[index] = value` where torch has asked the mode."""

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        if tp != NULL and len(args) == 3 and not kwargs and ordinary(args[0]) and assigned(<Tape>tp, args[0], args[1], args[2]):
            return None
        lent(args, kwargs)
        return general_assignment(func, args, kwargs)


cdef object by_tensors(Tape tape, object t, object index):
    """`t[index]` for numbers, slices and ordinary tensors; PAST where the index holds what torch turns into tensors."""
    cdef list template = [], operands = [t]
    cdef object dtype
    cdef bint mask, tensor, gathers = False
    cdef size_t switch
    for entry in <tuple>index if type(index) is tuple else (index,):
        if basic(entry):
            template.append(entry)
            continue
        if of_integers(entry):
            switch = enter(tape)
            try:
                operands.append(ao_call(make_tensor, (entry,), None))
            finally:
                leave(tape, switch)
            template.append(SLOT)
            gathers = True
            continue
        if not ordinary(entry):
            return PAST
        dtype = ao_dtype(entry)
        mask = dtype is torch.bool or dtype is torch.uint8
        tensor = len(<tuple>shape_of(entry)) != 0 or dtype.is_floating_point or dtype.is_complex
        gathers = gathers or tensor or mask
        if tensor:
            template.append(SLOT)
            operands.append(entry)
            continue
        switch = enter(tape)
        try:
            template.append(bool(entry) if mask else int(entry))
        finally:
            leave(tape, switch)
    return apply(INDEX if gathers else SLICE, getitem, (t, index), None, tuple(operands), {"index": tuple(template)})


cdef bint of_integers(object entry) except -1:
    """True for a list of numbers that torch takes as a tensor of integers."""
    if type(entry) is not list or not entry:
        return False
    for number in <list>entry:
        if type(number) is not int:
            return False
    return True


cdef object unrecorded_item(Tape tape, object t, object index):
    cdef object r
    cdef size_t switch
    if tape.optimize:
        lend(t)
    switch = enter(tape)
    try:
        r = ao_former_item(t, index)
        ao_start(r, 1, 0)
        return noted_view(r, r, (t,), None) if ao_is_view(r) else r
    finally:
        leave(tape, switch)


cpdef bint is_whole(object index, object shape) except -1:
    """True if `x[index] = ...` writes to `x` itself: torch makes no view for a slice that begins at 0 and spans its axis."""
    cdef tuple entries = <tuple>index if type(index) is tuple else (index,)
    cdef Py_ssize_t k, axis = 0, axes = len(<tuple>shape)
    for k in range(len(entries)):
        if entries[k] is Ellipsis:
            axis = axes + 1 + k - len(entries)
        elif axis >= 0 and axis < axes and basic(entries[k]) and takes_all(entries[k], (<tuple>shape)[axis]):
            axis += 1
        else:
            return False
    return True


cpdef dict index_attributes(object index):
    """What the record of `x[index] = ...` keeps: numbers as they are now, and the versions of tensors that gather."""
    cdef tuple entries
    cdef list versions
    for entry in <tuple>index if type(index) is tuple else (index,):
        if not basic(entry):
            break
    else:
        return {"index": index}
    entries = tuple([t.bool() if is_tensor(t) and ao_dtype(t) is torch.uint8 else t for t in normal_index(index)])
    versions = [version_of(t) for t in entries if is_tensor(t)]
    return {"index": entries, "versions": tuple(versions)} if versions else {"index": entries}


cdef bint usual_index(object index) except -1:
    """True for numbers, slices, an ellipsis and ordinary tensors."""
    for entry in <tuple>index if type(index) is tuple else (index,):
        if not basic(entry) and not (ordinary(entry) and ao_plain(entry)):
            return False
    return True


cdef int write_part(Tape tape, object t, object index, object value) except -1:
    """`t[index] = value`, recorded, for a tensor of its own memory: 1 where it is done, 0 where torch has to be asked."""
    cdef Node n, source = None
    cdef size_t switch
    cdef list versions
    cdef dict kept
    cdef bint whole
    if value is t or not usual_index(index) or ao_is_inference(is_inference, t) or not (
            type(value) in numbers or ordinary(value) and ao_plain(value) and not ao_is_inference(is_inference, value)):
        return 0
    switch = enter(tape)
    try:
        n = handle(tape, t)
        if not len(<tuple>n.shape) or (not usual_target(tape, t) if n.flags & REQUIRES_GRAD else n.hooks is not None):
            return 0
        whole = is_whole(index, n.shape)
        if whole and is_tensor(value) and len(<tuple>shape_of(value)) > len(<tuple>n.shape):
            return 0
        versions = [version_of(t), 0]
        if is_tensor(value):
            source, versions[1] = handle(tape, value), version_of(value)
            if source.op.name == "view_apart" or not (n.flags | source.flags) & REQUIRES_GRAD:
                return 0
        elif not n.flags & REQUIRES_GRAD:
            return 0
        if tape.optimize:
            lend(t)
            lend(value)
        if not whole:
            kept = index_attributes(index)
        ao_former_assign(t, index, value)
        if not whole:
            record_write(SETITEM, [n, source], (t, value), kept, t, None, versions)
        elif source is None:
            record_write(OVERWRITE, [n], (t,), {}, t)
        else:
            record_write(COPY if len(<tuple>source.shape) else FILL, [n, source], (t, value), {}, t, None, versions)
        if not n.flags & REQUIRES_GRAD:
            base_became_late(t)
    finally:
        leave(tape, switch)
    return 1


cdef int assign_item(PyObject *tensor, PyObject *key, PyObject *what) except -1:
    """`t[index] = value`: 1 where it is done, 0 where torch has to be asked."""
    cdef PyObject *tp = open_to(<object>tensor)
    return 0 if tp == NULL else assigned(<Tape>tp, <object>tensor, <object>key, <object>what)


cdef int assigned(Tape tape, object t, object index, object value) except -1:
    """`t[index] = value` for a tensor that a graph answers for: 1 where it is done, 0 where the general way is needed."""
    cdef size_t switch
    cdef bint grad = grad_on()
    if grad and not own_tensor(t):
        return 0
    if follows(tape, t, grad) or follows(tape, index, grad) or follows(tape, value, grad):
        return write_part(tape, t, index, value) if grad else 0
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


cdef Py_ssize_t take_items() except -1:
    """Give indexing the entries above; how many classes were given them."""
    return sum([ao_take_slots(kind, item_of, assign_item) for kind in (Tensor, Parameter, CustomTensor)])


def install(dict ops):
    """Know the operators of indexing, torch's slots for it, and the routes of their functions."""
    global SLICE, INDEX, SETITEM, COPY, FILL, OVERWRITE, SLOT, normal_index, general_item, general_assignment
    from autograd_opt.ops.indexing import SLOT
    from autograd_opt.ops.indexing import normal as normal_index
    ao_know_slots(Tensor)
    SLICE, INDEX, SETITEM, COPY, FILL, OVERWRITE = \
        [ops[k] for k in ("slice", "index", "setitem", "copy", "fill", "overwrite")]
    general_item, general_assignment = <Route>handler_of(getitem), handler_of(setitem)
    handlers[getitem], handlers[setitem] = Item.__new__(Item), ItemAssignment.__new__(ItemAssignment)
