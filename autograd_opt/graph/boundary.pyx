"""Where a recorded part of a torch program meets the rest of it: leaves with a history of torch's, results handed out."""

import weakref

import torch

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_hold, ao_is_leaf, ao_is_view, ao_needs_grad, ao_set_type, ao_try_attr, ao_uses, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.node cimport (
    LEAF, MARK, NODE, NOWHERE, REQUIRES_GRAD, CustomTensor, Leads, Node, PlainTensor, tape_by_id, tapes, version_of,
)
from autograd_opt.graph.leaf_nodes cimport leaf_tensor
from autograd_opt.graph.tape cimport Tape, forgetter
from autograd_opt.graph.thread_state import torch_autograd

cdef extern from *:
    """
    static AO_THREAD int ao_reaches_all = 0;     /* 1 in a run of torch's engine that executes every node below its roots */
    """
    int ao_reaches_all

cdef extern from "Python.h":
    bint is_weak "PyWeakref_CheckRefExact"(object o)
    Py_ssize_t references "Py_REFCNT"(PyObject *o)

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object use_count = private.use_count


cdef bint counts_sharing() except -1:
    """True if torch holds a reference to the Python object of a tensor that C++ holds, too: the base of a view, say."""
    cdef object t = torch.empty(2), view
    cdef Py_ssize_t before = references(<PyObject *>t)
    view = t[1:]
    return references(<PyObject *>t) > before


cdef bint shared_adds = counts_sharing()


class Passage(torch.autograd.Function):
    """Tensors of no memory that have the histories of others."""

    @staticmethod
    def forward(ctx, *tensors):
        """One number, seen in the shape of the tensor, for each."""
        ctx.set_materialize_grads(False)
        return tuple([torch.empty((), dtype=t.dtype, device=t.device).expand(t.shape) for t in tensors])

    @staticmethod
    def backward(ctx, *cotangents):
        """The cotangents as they are."""
        return cotangents


# past what torch's own `apply` does for transforms and for functions with a `setup_context`
cdef object passages = super(torch.autograd.Function, Passage).apply


class Alias(Passage):
    """Tensors in the memory of others, with their histories; torch takes them for no views, which follow their base."""

    @staticmethod
    def forward(ctx, *tensors):
        """The values, where they are."""
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in tensors])


cdef object aliases = super(torch.autograd.Function, Alias).apply


cpdef int outlive(object t) except -1:
    """Let leaves lead to the history that `t` has now, before `t` is detached in place."""
    cdef Tape tape
    cdef Node node
    cdef list found = []
    for number in list(tapes):
        tape = tape_by_id(number)
        if tape is not None:
            found += [node for node in tape.histories or () if leaf_tensor(node) == <PyObject *>t]
    if found:
        with torch_autograd():
            alias, = aliases(t)
        for node in found:
            node.value = alias
    return 0


cpdef int lead_on(list leaves, list tensors) except -1:
    """Let leaves that torch has computed lead to the histories that they have now, whatever becomes of their tensors."""
    cdef Node node
    cdef list found = [(node, t) for node, t in zip(leaves, tensors) if node.x0 is None and not ao_is_leaf(t)]
    if found:
        for (node, _), passage in zip(found, passages(*[t for _, t in found])):
            node.x0 = passage
    return 0


cpdef tuple boundary(Tape tape):
    """(leaf nodes that require grad, tensors of their histories, tensors that were leaves and hold a result by now)."""
    cdef Py_ssize_t i
    cdef Node node
    cdef PyObject *t
    cdef list leaves = [], tensors = [], written = []
    for i in range(tape.n):
        node = <Node>tape.nodes[i]
        if not node.flags & LEAF:
            continue
        t = leaf_tensor(node)
        if node.flags & REQUIRES_GRAD and (t != NULL or node.x0 is not None):
            leaves.append(node)
            tensors.append(<object>t if node.x0 is None else node.x0)
        if t != NULL and type(<object>t) is CustomTensor:
            found = getattr(<object>t, NODE, None)
            if found is not None and not (<Node>found).flags & LEAF and (<Node>found).tape_id == tape.id:
                written.append(<object>t)
    return leaves, tensors, written


cdef inline int mark(Leads found, Node node) except -1:
    """Note that a cotangent can come to this operand."""
    if node is not None and node.flags & REQUIRES_GRAD and 0 <= node.index < found.high:
        found.marks[node.index] = 1
    return 0


cpdef list reached(Tape tape, list roots, list leaves):
    """Can a cotangent come from the roots to these leaves?  As written: merging changes nothing about it."""
    cdef Leads found = Leads(0, tape.n)
    cdef Node node, other
    cdef Py_ssize_t i
    for node in roots:
        mark(found, node)
    for i in range(tape.n - 1, -1, -1):
        if not found.marks[i]:
            continue
        node = <Node>tape.nodes[i]
        if node.flags & NOWHERE:
            continue
        if node.more is None:
            mark(found, node.in0)
            mark(found, node.in1)
        else:
            for other in node.more:
                mark(found, other)
    return [0 <= node.index < tape.n and found.marks[node.index] != 0 for node in leaves]


cpdef list nodes_of(Tape tape, list tensors):
    """The nodes of these tensors; torch functions are off."""
    return [handle(tape, t) for t in tensors]


cpdef int loosen(Tape tape, list leaves) except -1:
    """Hold the tensors of leaves weakly that torch has computed: like torch, keep them only where a rule reads them."""
    cdef Node node
    cdef object t
    for node in leaves:
        t = node.value
        if t is not None and not is_weak(t) and not ao_is_leaf(t):
            node.value = weakref.ref(t, forgetter(tape, <PyObject *>t, node))
    return 0


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


cpdef object hand_over(Tape tape, t):
    """Let another tensor over the memory of `t` stand for it in the graph; `t` is an ordinary one from now on.

    Returns the other one, whose end tells its node as that of `t` would have.
    """
    cdef Py_ssize_t i
    cdef Node node = getattr(t, NODE), user
    cdef object other = base.detach(t)
    ao_set_type(other, CustomTensor)
    ao_hold(other, NODE, node)
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


cpdef int become_torchs(object t) except -1:
    """Make `t`, which came to require grad while it was recorded, a leaf of torch's own; the graph goes on knowing it."""
    cdef dict own = t.__dict__
    cdef object hooks = own.pop("_leaf_hooks", None), post = own.pop("_post_hooks", None)
    own.pop(NODE, None)
    own.pop(MARK)
    ao_set_type(t, PlainTensor)
    base.requires_grad.__set__(t, True)
    if hooks:
        private.backward_hooks_property.__set__(t, hooks)      # the handles that users have go on removing them
    if post:
        private.post_accumulate_grad_hooks_property.__set__(t, post)
    return 0


cdef int count_held(object held, Tape tape, int *counts) except -1:
    """Count the recorded tensors that are `held`, or are in a list or tuple that is."""
    cdef Node node
    cdef PyObject *p
    if type(held) is CustomTensor:
        p = ao_try_attr(held, NODE)
        if p != NULL:
            node = <Node>p
            Py_DECREF(node)
            if node.tape_id == tape.id and node.tensor == <PyObject *>held and node.index >= 0:
                counts[node.index] += 1
    elif type(held) is tuple or type(held) is list:
        for item in held:
            count_held(item, tape, counts)
    return 0


cpdef list kept_outside(Tape tape, dict known, list but):
    """Recorded tensors, `but` these, that require grad and that something besides the graph holds: a list, say.

    `known` says how many references to a tensor, by its id, are the caller's own.
    """
    cdef Py_ssize_t i, own
    cdef Node node
    cdef PyObject *t
    cdef list found = [], maybe = []
    cdef int *counts = <int *>PyMem_Calloc(tape.n + 1, sizeof(int))
    if counts == NULL:
        raise MemoryError()
    try:
        for i in range(tape.n - 1, -1, -1):          # what saves a tensor comes after its node, but for written ones
            node = <Node>tape.nodes[i]
            count_held(node.x0, tape, counts)
            count_held(node.x1, tape, counts)
            if node.saved_more is not None:
                count_held(node.saved_more, tape, counts)
            if node.tensor != NULL and node.flags & (LEAF | REQUIRES_GRAD) == REQUIRES_GRAD \
                    and references(node.tensor) > counts[i]:
                maybe.append(node)
        for node in reversed(maybe):
            t, i = node.tensor, node.index
            if type(<object>t) is not CustomTensor:
                continue
            own = counts[i] + <Py_ssize_t>known.get(<size_t>t, 0)
            if references(t) <= own or shared_adds and ao_uses(use_count, <object>t) > 1 and references(t) == own + 1:
                continue
            if any([other is <object>t for other in but]):
                continue
            if not ao_needs_grad(<object>t) and (
                    not ao_is_view(<object>t) or version_of(<object>t) == node.version):      # a view of a parameter does
                found.append(<object>t)
    finally:
        PyMem_Free(counts)
    return found


def living_tapes():
    """The numbers of the tapes that are alive in this process."""
    return list(tapes)


cdef bint reaches_all() noexcept:
    """True if the run of torch's engine that is under way in this thread is known to execute every node below its roots."""
    return ao_reaches_all != 0


def begin_run(bint everything):
    """Say whether the run that begins or goes on in this thread executes all nodes; returns what was said before."""
    global ao_reaches_all
    cdef bint before = ao_reaches_all != 0
    ao_reaches_all = everything
    return before
