"""The node of a tensor: made on demand with its source line, and told when the tensor dies."""

import torch

from cpython.exc cimport PyErr_Occurred
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport *
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.leaf_nodes cimport adopt, describe, elsewhere, leaf
from autograd_opt.graph.node cimport *
from autograd_opt.graph.tape cimport Tape, active_tape, tape_here
from autograd_opt.graph.values cimport given_up

cdef extern from "Python.h":
    bint is_weak "PyWeakref_CheckRefExact"(object o)
    ctypedef void (*destructor)(PyObject *)
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef struct PyTypeObject:
        destructor tp_finalize
        traverseproc tp_traverse

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object get_inference = base.__dict__["is_inference"]


cdef bint usual_leaf(Tape tape, Node node, object t) except -1:
    """Is `node`, which `t` points to, its leaf on `tape`, with nothing changed since it was last used?"""
    cdef uint32_t flags = node.flags & (REQUIRES_GRAD | TOUCHED | EXPOSED | WROTE)
    if node.tape_id != tape.id or node.index < 0 or node.view is not None or tape.late \
            or tape.exposed and tape.shares_exposed(t) or not tape.optimize or is_weak(node.value) or flags != REQUIRES_GRAD | TOUCHED:
        return False
    return version_of(t) == node.version and getattr(t, MARK, False) is True


cdef bint base_is_frozen(object t) except -1:
    """Does the base of a view require no grad, which it did when its node was made?"""
    from autograd_opt.graph.references import base_requires_grad
    return not base_requires_grad(t)


cdef Node refreshed(Tape tape, Node node, object t):
    """`view_history.refresh`."""
    from autograd_opt.graph.view_history import refresh
    return <Node>refresh(tape, node, t)


cdef Node rewritten(Node node, object t):
    """`view_history.rewritten`."""
    from autograd_opt.graph.view_history import rewritten as in_python
    return <Node>in_python(node, t)


cdef Node handle(Tape tape, object t):
    """The node of tensor `t` on `tape`, registering a leaf where there is none yet.

    The caller has switched torch functions off.
    """
    cdef Node node = held_node(t) if type(t) is CustomTensor else None
    if node is None:
        return leaf(tape, t)
    if node.flags & LEAF and usual_leaf(tape, node, t):
        return node
    if node.tape_id != tape.id:
        return leaf(tape, t) if node.flags & LEAF else adopt(tape, t, node)
    elif node.flags & LEAF:
        return leaf(tape, t)
    elif node.index < 0:
        tape.append(node)
    if node.view is not None:
        if version_of(t) != node.version or node.flags & NOWHERE and base_is_frozen(t):
            return refreshed(tape, node, t)
        if tape.late and not node.flags & REQUIRES_GRAD:
            from autograd_opt.graph.view_history import late
            later = late(t)
            if later is not None:
                return later
    if tape.optimize:
        if version_of(t) != node.version:
            return rewritten(node, t)
        if tape.exposed and not node.flags & EXPOSED and tape.shares_exposed(t):
            node.mark(EXPOSED | NO_MERGE)
        if node.flags & EXPOSED:
            node.vn = fresh_vn()
    return node


def handle_of(t, bint register=True):
    """The node of `t` on the active tape; None when `register` is false and it has none."""
    cdef Tape tape = active_tape()
    if tape is None:
        return None
    if not register:
        node = getattr(t, "_node", None)
        if node is None or (<Node>node).flags & LEAF:
            return tape.leaf_of(<PyObject *>t)
        return node if (<Node>node).tape_id == tape.id else elsewhere(tape, t)
    with private.DisableTorchFunction():
        return handle(tape, t)


cdef int attach(Tape tape, Node node, object tensor) except -1:
    """Make `tensor` a CustomTensor whose handle is `node`, and append the node."""
    if not ao_strided(tensor):           # before it has our class, whose properties torch.compile would trace
        node.flags |= SPARSE
    return attach_strided(tape, node, tensor)


cdef int attach_strided(Tape tape, Node node, object tensor) except -1:
    """The same for a tensor that is known to have strides."""
    if type(tensor) is PlainTensor:
        ao_set_type(tensor, CustomTensor)
    ao_hold(tensor, NODE, node)
    node.tensor = <PyObject *>tensor
    node.live = 1
    if tape.retention.counting:
        tape.retention.count(node)
    return tape.append(node)


cdef int release_handle(Tape tape, object t) except -1:
    """The tensor `t` is about to belong to a newer node than its own."""
    cdef Node old
    tape.changes += 1
    if type(t) is CustomTensor:
        t.__dict__.pop(MARK, None)
        old = held_node(t)
        if old is not None and old.tensor == <PyObject *>t:
            old.tensor = NULL
            old.flags |= OVERWRITTEN
            old.spare = None
            if old.flags & (CLONE | COUNTED):
                tape.retention.lost(old)
            tape.decrement(old)
        ao_hold(t, NODE, None)
    tape.drop_leaf(<PyObject *>t, None)
    return 0


cdef Node over(Tape tape, Op op, Node below, dict attrs, object t):
    """A node with the one operand `below`, of which its rule saves nothing, and with the metadata of `t`."""
    cdef Node node = new_node(op)
    node.attrs = attrs
    with private.DisableTorchFunction():
        describe(node, t)
        if tape.optimize and not torch.is_grad_enabled() and ao_is_inference(get_inference, t):
            node.flags |= EXPOSED | NO_MERGE         # without a version counter a write goes unseen
    if below.flags & REQUIRES_GRAD and (node.dtype.is_floating_point or node.dtype.is_complex):
        node.flags |= REQUIRES_GRAD
    if not tape.plain:
        node.flags |= NO_MERGE
    if tape.sources:
        current_source(node)
    node.in0 = below
    below.live += 1
    return node


def append_over(Op op, Node below, dict attrs, t):
    """Append a node over `below` for a value that no tensor of the user's shows, with the metadata of `t`."""
    cdef Tape tape = tape_here()
    cdef Node node = over(tape, op, below, attrs, t)
    tape.append(node)
    return node


cpdef dict geometry(view, base):
    """Where `view` lies in `base` and how it reads its memory, as attributes of the operators of `record/views.py`."""
    cdef object dtype = ao_dtype(view), base_dtype = ao_dtype(base), start = base.storage_offset()
    if dtype is not base_dtype:
        start = start * base.element_size() // view.element_size()
    return {
        "size": shape_of(view), "stride": view.stride(), "offset": view.storage_offset() - start,
        "base_size": shape_of(base), "base_stride": base.stride(), "dtype": dtype, "base_dtype": base_dtype,
        "conj": base_dtype.is_complex and view.is_conj() != base.is_conj(), "neg": view.is_neg() != base.is_neg(),
    }


cpdef Node move(Op op, Node below, dict attrs, t):
    """Move `t`, which has its value already, to a node of its own over `below`; returns the node."""
    cdef Tape tape = tape_here()
    cdef Node node = over(tape, op, below, attrs, t)
    release_handle(tape, t)
    attach(tape, node, t)
    with private.DisableTorchFunction():
        if ao_is_view(t):
            node.view = True
    return node


def continued(Node node, t):
    """Let `t` belong to `node`, whose value it has in other memory; returns `t`."""
    if type(t) is PlainTensor:
        ao_set_type(t, CustomTensor)
    move(WRITTEN_OP, node, None, t)
    return t


def version(t):
    """How many writes to `t` torch has counted; 0 for an inference tensor."""
    return version_of(t)


def set_version(Node node, t):
    """Accept the present memory of `t` as the value of its node."""
    node.version = version_of(t)


def renumber(Node node):
    """Let no value that was computed from the former memory of a node be taken for one of the present."""
    node.mark(EXPOSED | NO_MERGE)
    node.vn = fresh_vn()


def unsettle(Node node):
    """Let the next use of the tensor of `node` look at its history again, as after a write."""
    node.version = 4294967294


def become_leaf(t):
    """Cut `t` off from what computed it, whichever thread records that; its next use registers a leaf."""
    cdef Tape tape = None
    cdef Node old
    found = getattr(t, NODE, None) if type(t) is CustomTensor else None
    if found is not None:
        tape = tape_by_id((<Node>found).tape_id)
    if tape is None:
        tape = active_tape()
    if tape is None:
        if found is not None and (<Node>found).tensor == <PyObject *>t:
            (<Node>found).tensor = NULL
        ao_hold(t, NODE, None)
        return
    old = hold_value(tape, t)
    release_handle(tape, t)
    if old is not None:
        old.flags &= ~<uint32_t>OVERWRITTEN


cdef Node hold_value(Tape tape, object t):
    """Let the node of `t` hold the value that its rule reads, whatever becomes of `t`; None where none is read."""
    cdef Node node
    found = getattr(t, NODE, None) if type(t) is CustomTensor else None
    if found is None:
        return None
    node = found
    if node.tensor != <PyObject *>t or node.tape_id != tape.id or not node.flags & NEEDS_ANS or node.flags & PACKED:
        return None
    node.value = base.detach(t)
    return node


def given_memory(t, assign):
    """Call `assign()`, which gives `t` other memory: rules go on reading the result that was there before, as in torch."""
    cdef Tape tape = active_tape()
    cdef Node old = None if tape is None else hold_value(tape, t)
    assign()
    if old is not None:
        rewritten(old, t)
        old.flags &= ~<uint32_t>OVERWRITTEN


cpdef wrote(t):
    """The memory of `t` was written outside the record: its next use is of a new value.

    With value numbers the version tells; without them this does.
    """
    cdef Tape tape = active_tape()
    cdef Node node
    if tape is None:
        return
    tape.changes += 1
    entry = tape.leaf_of(<PyObject *>t)
    # nothing recorded can lie in memory that only this tensor, which is not recorded, knows
    if tape.sources and (entry is not None or type(t) is CustomTensor or ao_tensors_over(t) != 1) and ao_strided(t):
        tape.writes.note(t)
    if entry is not None:
        (<Node>entry).flags |= WROTE
    elif not tape.optimize and type(t) is CustomTensor:
        node = getattr(t, "_node", None)
        if node is not None and node.tape_id == tape.id and node.view is None:
            rewritten(node, t)


# The end of a tensor. --------------------------------------------------------------------
cdef void finalize(PyObject *self) noexcept:
    """tp_finalize of CustomTensor: its node learns that nobody holds the tensor any more.

    The value survives here, without its handle, when the rule still reads it or when it
    is kept for reuse; that needs neither a second tensor object nor a weak reference.
    """
    cdef ao_raised raised
    if PyErr_Occurred() == NULL:
        finalize_quietly(self)
        return
    raised = ao_put_aside()
    finalize_quietly(self)
    ao_raise_again(raised)


cdef void finalize_quietly(PyObject *self) noexcept:
    """Errors are Python's to report: a finalizer cannot raise."""
    cdef Node node = held_node(<object>self)
    if node is not None and node.tensor == self:
        tensor_died(node, <object>self)


cdef traverseproc traverse_tensor = NULL     # torch's own, set by install()


cdef int traverse(PyObject *self, visitproc visit, void *arg) noexcept:
    """tp_traverse of tensors: one of ours shows the collector of cycles the user's objects that its node holds for it alone.

    It stands in torch's base class, since Python's own traversal of a class made in Python ends at the first other one.
    Those objects are the `ctx` of a Function, and hooks.  Nodes take no part in collection themselves; as in torch,
    what a node with consumers holds is not seen.  A tensor found to be garbage is told by `finalize`,
    which lets the node go, and with it what it holds.
    """
    cdef PyObject *p
    cdef Node node, maker
    cdef int stopped = traverse_tensor(self, visit, arg)
    if stopped or type(<object>self) is not CustomTensor:
        return stopped
    p = ao_silent_attr(self, <PyObject *>NODE)
    if p == NULL:
        return 0
    found = <object>p
    Py_DECREF(found)
    if type(found) is not Node:
        return 0
    node = <Node>found
    if node.tensor != self or node.live != 1:
        return 0
    maker = node
    if node.op is OUTPUT_OP and node.in0 is not None and node.in0.live == 1:
        maker = node.in0
        if maker.hooks is not None:
            stopped = visit(<PyObject *>maker.hooks, arg)
    if not stopped and node.hooks is not None:
        stopped = visit(<PyObject *>node.hooks, arg)
    if not stopped and maker.op.functions and maker.saved_more is not None:
        stopped = visit(<PyObject *>maker.saved_more, arg)
    return stopped


cdef int tensor_died(Node node, object tensor) except -1:
    cdef Tape tape
    cdef bint wanted, kept, clone = node.flags & CLONE != 0
    node.tensor = NULL
    tape = active_tape()
    if tape is None or tape.id != node.tape_id:
        tape = tape_by_id(node.tape_id)
        if tape is None:
            return 0
    if node.flags & PACKED:
        tape.decrement(node)
        return 0
    wanted = node.flags & NEEDS_ANS and not node.flags & FREED and node.live > 1
    if node.flags & CLONE or node.flags & COUNTED and not wanted:
        tape.retention.lost(node, wanted)
    kept = tape.optimize and not node.flags & (NO_MERGE | EXPOSED | OVERWRITTEN) and tape.retention.keep(node)
    if wanted or kept:
        if ao_has_weakrefs(tensor):
            tensor = private.TensorBase.detach(tensor)
        else:
            ao_strip(tensor)                 # the user's attributes end with the user's tensor
        if type(tensor) is CustomTensor:
            ao_set_type(tensor, PlainTensor)
        node.value = tensor
    else:
        node.spare = None
        if clone and given_up(tape, node, tensor):
            ao_forget(tensor, NODE)
            node.leader.spare = tensor
    tape.decrement(node)
    return 0


def install():
    """Let the class of recorded tensors tell their nodes when they die; done once at import."""
    global traverse_tensor
    (<PyTypeObject *><PyObject *>CustomTensor).tp_finalize = finalize
    traverse_tensor = (<PyTypeObject *><PyObject *>base).tp_traverse
    (<PyTypeObject *><PyObject *>base).tp_traverse = traverse
