"""Where a recorded part of a torch program meets the rest of it: leaves with a history of torch's, results handed out."""

import weakref

import torch

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_is_leaf, ao_set_type, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport LEAF, MARK, NODE, REQUIRES_GRAD, CustomTensor, Node, PlainTensor, tapes
from autograd_opt.graph.tape cimport Tape, forgetter, leaf_tensor

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object o, object name, object value) except -1
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef object base = private.TensorBase


def boundary(Tape tape):
    """(leaf nodes that require grad, their tensors, tensors that were leaves and hold the result of an operation by now)."""
    cdef Py_ssize_t i
    cdef Node node
    cdef PyObject *t
    cdef list leaves = [], tensors = [], written = []
    for i in range(tape.n):
        node = <Node>tape.nodes[i]
        if not node.flags & LEAF:
            continue
        t = leaf_tensor(node)
        if node.flags & REQUIRES_GRAD and t != NULL:
            leaves.append(node)
            tensors.append(<object>t)
        if t != NULL and type(<object>t) is CustomTensor:
            found = getattr(<object>t, NODE, None)
            if found is not None and not (<Node>found).flags & LEAF and (<Node>found).tape_id == tape.id:
                written.append(<object>t)
    return leaves, tensors, written


def loosen(Tape tape, list leaves):
    """Hold the tensors of leaves weakly that torch has computed: like torch, keep them only where a rule reads them."""
    cdef Node node
    cdef object t
    for node in leaves:
        t = node.value
        if t is not None and not is_weak(t) and not ao_is_leaf(t):
            node.value = weakref.ref(t, forgetter(tape, <size_t><PyObject *>t, node))


cdef object exchanged(object held, object old, object new):
    """`held` with `new` in the place of `old`, also inside of lists, which stay, and tuples."""
    if held is old:
        return new
    if type(held) is list:
        for i, item in enumerate(held):
            held[i] = exchanged(item, old, new)
    elif type(held) is tuple:
        if any([item is old or type(item) is list or type(item) is tuple for item in held]):
            return tuple([exchanged(item, old, new) for item in held])
    return held


def hand_over(Tape tape, t):
    """Let another tensor over the memory of `t` stand for it in the graph; `t` is an ordinary one from now on.

    Returns the other one, whose end tells its node as that of `t` would have.
    """
    cdef Py_ssize_t i
    cdef Node node = getattr(t, NODE), user
    cdef object other = base.detach(t)
    ao_set_type(other, CustomTensor)
    PyObject_GenericSetAttr(other, NODE, node)
    if node.tensor == <PyObject *>t:
        node.tensor = <PyObject *>other
    for i in range(tape.n):
        user = <Node>tape.nodes[i]
        if user.x0 is t:
            user.x0 = other
        if user.x1 is t:
            user.x1 = other
        if user.saved_more is not None:
            user.saved_more = exchanged(user.saved_more, t, other)
    t.__dict__.pop(NODE, None)
    t.__dict__.pop(MARK, None)
    if type(t) is CustomTensor:
        ao_set_type(t, PlainTensor)
    return other


def living_tapes():
    """The numbers of the tapes that are alive in this process."""
    return list(tapes)
