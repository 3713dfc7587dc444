"""When the value of a node can be handed out again, or be read in a rule."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_again, ao_has_weakrefs, ao_is_view, ao_needs_grad, ao_own, ao_strided, ao_use_reads, ao_uses,
)
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport *
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.retention cimport nbytes
from autograd_opt.graph.tape cimport Tape, active_tape
from autograd_opt.graph.value_table cimport Entry, find

cdef extern from "Python.h":
    Py_ssize_t references "Py_REFCNT"(PyObject *o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef object use_count = private.use_count


cdef object live_value(Tape tape, Node node):
    """The unchanged value of `node`, or None."""
    cdef object t
    if node.flags & (EXPOSED | OVERWRITTEN | NO_MERGE):
        return None
    if node.tensor != NULL:
        t = <object>node.tensor
    else:
        t = node.value() if is_weak(node.value) else node.value
    if t is None or version_of(t) != node.version:
        return None
    if tape.exposed and tape.shares_exposed(t):
        node.mark(EXPOSED | NO_MERGE)        # seen from outside through another tensor over its memory
        return None
    return t


cdef object known_value(Tape tape, Node first):
    """The value of a leader's class: the newest holder's, else the leader's own."""
    cdef object value = live_value(tape, <Node>first.holder)
    if value is None and first.holder != <PyObject *>first:
        first.holder = <PyObject *>first
        value = live_value(tape, first)
    return value


cdef object left_over(Tape tape, Node first, object value):
    """A tensor over the value that `first` leads, given up by its last user, to be handed out as it is; else None.

    Either a clone that has died, or the kept value itself, which then moves from the table to the user
    (`tape.moved`).  `value` is what `known_value` said.  Nobody else may be able to reach the memory: neither
    a name in Python, nor a tensor in C++, nor another tensor over the same memory, whoever has made it: a view,
    what `detach` gave to another thread.
    """
    cdef object t = first.spare
    cdef Node holder
    tape.moved = False
    if t is not None:
        first.spare = None
    else:
        holder = <Node>first.holder
        if holder.flags & (KEPT | NEEDS_ANS) != KEPT or holder.value is not value or holder.op.kernel is not None:
            return None
        if references(<PyObject *>holder.value) != 2:    # the node's, and the caller's
            return None
        t = holder.value
        tape.moved = True
    if not ao_strided(t) or not sole_owner(t) or ao_uses(use_count, t) != 1 or version_of(t) != 0 \
            or ao_needs_grad(t) or tape.exposed and tape.shares_exposed(t) or not ao_again(t):
        return None
    if tape.moved:
        holder.value = None
        holder.flags &= ~<uint32_t>KEPT
        tape.retention.kept_bytes -= nbytes(holder.shape, holder.dtype)
    return t


cdef bint given_up(Tape tape, Node node, object clone) except -1:
    """May the dying tensor of `node`, a clone of its leader's value, be handed out for that value again?"""
    cdef Node first = node.leader
    return first is not None and first.spare is None and first.vn == node.vn \
        and not node.flags & (NO_MERGE | EXPOSED | OVERWRITTEN | PINNED | INNER | SAME) \
        and not first.flags & (NO_MERGE | EXPOSED | OVERWRITTEN | FREED | DEAD) \
        and (first.tensor != NULL or first.value is not None) and node.op.kernel is None \
        and type(clone) is CustomTensor and not ao_has_weakrefs(clone)


cdef bint unseen(Tape tape, Node operand) except -1:
    """Is the operand's memory known, and visible only inside torch?  What a pack hook has made of it tells nothing."""
    t = <object>operand.tensor if operand.tensor != NULL else operand.value
    return isinstance(t, torch.Tensor) and not tape.shares_exposed(t)


cdef object value_of(Tape tape, Op op, Node operand):
    """`op(operand)`, if it was recorded and is alive: to be read in a rule, never written or handed out."""
    cdef uint64_t kind, route
    cdef Entry *e
    if not tape.optimize or operand is None or operand.tape_id != tape.id or not is_float(operand.dtype):
        return None
    if tape.exposed and not unseen(tape, operand):
        return None
    kind = (<uint64_t>op.id << 8) | (<uint64_t>(operand.flags & REQUIRES_GRAD != 0) << 3) | 4      # 4: under grad mode
    for route in (0, 64):                # recorded as a hot operator, or in general
        e = find(tape.table, operand.vn, 0, kind | route)
        if e.first != NULL:
            return known_value(tape, <Node>e.first)
    return None


def known(Op op, Node operand):
    """The value of `op(operand)` where a numeric run may take it from the record; else None."""
    cdef Tape tape = active_tape()
    return None if tape is None else value_of(tape, op, operand)


def waiting(Op op, Node operand):
    """What the kernel of `op(operand)` has kept, where its cotangent waits in a numeric run; else None."""
    cdef Tape tape = active_tape()
    cdef Entry *e
    cdef Node node
    if tape is None or not tape.optimize or operand is None or operand.tape_id != tape.id:
        return None
    e = find(tape.table, operand.vn, 0, (<uint64_t>op.id << 8) | 64 | 8 | 4)        # in general, requires grad, under grad mode
    if e.first == NULL:
        return None
    node = <Node>e.first
    if node.cotangent == NULL or node.flags & FREED or node.saved_more is None:
        return None
    return node.saved_more[2]


def value_number(t):
    """The number of the value that `t` had when it was last used, 0 where it may have another one now."""
    cdef Tape tape = active_tape()
    cdef Node node
    if tape is None or not tape.optimize or tape.exposed or tape.late and ao_is_view(t):
        return 0
    found = tape.leaf_of(<PyObject *>t)
    if found is None and type(t) is CustomTensor:
        found = t.__dict__.get(NODE)
    if found is None:
        return 0
    node = <Node>found
    if node.tape_id != tape.id or node.view is not None or version_of(t) != node.version \
            or node.flags & (EXPOSED | NO_MERGE | WROTE | OVERWRITTEN):
        return 0
    return node.vn
