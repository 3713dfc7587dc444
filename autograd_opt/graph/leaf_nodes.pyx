"""The nodes of a tape's leaves: tensors that it has not computed itself."""

import weakref

import torch

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.weakref cimport PyWeakref_NewRef
from libc.stdint cimport int64_t, uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport *
from autograd_opt.abi.tensor_info cimport resizable
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport *
from autograd_opt.graph.plain_values cimport CPU, same_device
from autograd_opt.graph.tape cimport Tape, forgetter

cdef extern from "Python.h":
    bint is_weak "PyWeakref_CheckRefExact"(object o)
    void PyErr_Clear()

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object grad_enabled = private.is_grad_enabled
cdef object get_version = ao_own(private.version_property)
cdef object get_device = ao_own(base.__dict__["device"])
cdef object get_base = ao_own(private.base_property)
cdef object get_inference = base.__dict__["is_inference"]
cdef object get_meta = ao_own(base.__dict__["is_meta"])
cdef object get_hooks = private.backward_hooks_property
cdef object get_post_hooks = private.post_accumulate_grad_hooks_property
cdef object plain_dispatch = PlainTensor.__torch_dispatch__


# Tensors that a graph must not touch, or whose memory others may write. -----------------
def unusual(t):
    """Is this a tensor that cannot be recorded: nested, or of a class with its own `__torch_dispatch__`?"""
    return isinstance(t, PlainTensor) and (t.is_nested or type(t).__torch_dispatch__ is not plain_dispatch)


cdef int require_ordinary(object t) except -1:
    """Refuse a tensor whose class computes in a way of its own, below the recorder."""
    if ordinary(t) and ao_plain(t):
        return 0
    if unusual(t):
        from autograd_opt.graph.refusals import unsupported_operand
        raise unsupported_operand(t)
    if type(t) is not Parameter:
        from autograd_opt.graph.refusals import note_class
        note_class(type(t))
    return 0


cdef bint borrowed(object t) except -1:
    """Can the memory of `t` be written unseen: numpy's, say, or an inference tensor's?"""
    return ao_is_inference(get_inference, t) or ao_strided(t) \
        and ao_get(get_meta, t) is not True and not resizable(t)


# Their nodes. ------------------------------------------------------------------------------
cdef Node leaf(Tape tape, object t):
    """The node of the leaf `t`: its own, or `written` nodes above it once its memory changed.

    A write outside the record (under no_grad) makes a new value, to which the gradient of
    the leaf still belongs; so it gets a node of its own, with the identity as its rule.
    """
    cdef Node node, now, entry = tape.leaf_of(<PyObject *>t)
    cdef bint mark, history, view, theirs = type(t) is not CustomTensor
    cdef uint32_t version
    if entry is None and type(t) is PlainTensor and not ao_plain(t):
        inner = private.unwrap_if_dead(t)
        if inner is not t:           # kept from inside a transform that has ended
            from autograd_opt.graph.references import kept_inside
            return <Node>kept_inside(t, inner)
    mark = ao_needs_grad(t) if theirs else bool(getattr(t, MARK, False))
    if mark and theirs and entry is None and not tape.late and not tape.exposed:
        node = parameter(tape, t)
        if node is not None:
            tape.add_leaf(<PyObject *>t, node)
            hold(tape, node, t)
            return node
    view = ao_is_view(t)
    if mark and theirs and view and (entry is None or not entry.flags & REQUIRES_GRAD) and not ao_grad_on(grad_enabled):
        mark = False                 # for this use: to ask torch for its history can be refused, or make it one
    if entry is not None and mark != (entry.flags & REQUIRES_GRAD != 0):
        entry = None                 # what was recorded so far keeps the flag of its time
    history = mark and theirs and not ao_is_leaf(t)
    if history and tape.late and view:
        from autograd_opt.graph.view_history import own_flag
        history = own_flag(t)
    node = computed_elsewhere(tape, t, mark, history) if history or view and (tape.late or mark and entry is None and theirs) else None
    if node is not None:
        return node
    if entry is not None:
        node = entry
    else:
        if mark and not history and theirs and not ao_is_leaf(t):
            from autograd_opt.graph.view_history import refuse_foreign
            refuse_foreign(t)
            mark = False                 # for this use
        if type(t) is not PlainTensor and type(t) is not CustomTensor:
            require_ordinary(t)
        node = new_node(LEAF_OP)
        node.flags = LEAF
        describe(node, t)
        if tape.optimize and (borrowed(t) or tape.exposed and tape.shares_exposed(t)):
            node.flags |= EXPOSED | NO_MERGE
        tape.append(node)
        tape.add_leaf(<PyObject *>t, node)
        if history:
            if tape.histories is None:
                tape.histories = []
            tape.histories.append(node)
        if type(t) is CustomTensor:
            ao_hold(t, NODE, node)
    if entry is None:
        if mark:
            node.flags |= REQUIRES_GRAD
            hold(tape, node, t)
            if not tape.heard and listens(t):
                tape.heard = True
        else:
            node.value = PyWeakref_NewRef(t, forgetter(tape, <PyObject *>t, node))
    elif node.flags & REQUIRES_GRAD and is_weak(node.value):
        hold(tape, node, t)
    node.flags |= TOUCHED
    if entry is None or not (tape.optimize or node.flags & WROTE):
        return node if node.view is None else <Node>node.view
    if tape.exposed and not node.flags & EXPOSED and tape.shares_exposed(t):
        node.mark(EXPOSED | NO_MERGE)
    now = node if node.view is None else <Node>node.view
    version = version_of(t)
    if version != now.version or node.flags & (EXPOSED | WROTE):
        node.flags &= ~<uint32_t>WROTE
        node.view = above(tape, node, t)
        if now is not node:
            tape.decrement(now)          # its leaf holds the newer one
        return <Node>node.view
    if now is not node:
        now.flags = (now.flags & ~<uint32_t>REQUIRES_GRAD) | (node.flags & REQUIRES_GRAD)
    return now


cdef Node computed_elsewhere(Tape tape, object t, bint mark, bint history):
    """The node of a tensor whose value has a history in torch's graph or another, or comes to one; None for any other."""
    if not history:
        if plain_below(t):
            return None
        from autograd_opt.graph.view_history import late, own_flag
        return <Node>late(t, mark and (type(t) is CustomTensor or own_flag(t)))
    if ao_is_view(t):
        from autograd_opt.graph.view_history import written_inside
        found = written_inside(tape, t)
        if found is not None:
            return <Node>found
    if not tape.stands:
        return None
    from autograd_opt.graph.references import kept_inside
    return <Node>kept_inside(t)


cdef Node parameter(Tape tape, object t):
    """The node of a plain leaf that requires grad, met for the first time; None where there is more to ask."""
    cdef Node node
    cdef int64_t version
    if type(t) is not Parameter and type(t) is not PlainTensor or ao_is_view(t) or not ao_is_leaf(t) \
            or not ao_strided(t):
        return None
    version = ao_version(t)
    if version < 0:
        version = ao_get_int(get_version, t)
    if version < 0:                  # an inference tensor
        PyErr_Clear()
        return None
    node = new_node(LEAF_OP)
    node.device = CPU if ao_on_cpu(t) else same_device(ao_get(get_device, t))
    node.flags = LEAF | REQUIRES_GRAD | TOUCHED
    try:
        node.shape = ao_shape(t)
        if tape.optimize and (node.device is CPU or ao_get(get_meta, t) is not True) \
                and not resizable(t):
            node.flags |= EXPOSED | NO_MERGE
    except RuntimeError:             # a nested tensor has no shape, a sparse one no storage
        return None
    node.dtype = ao_dtype(t)
    node.vn = fresh_vn()
    node.version = <uint32_t>version
    tape.append(node)
    if not tape.heard and listens(t):
        tape.heard = True
    return node


cdef int hold(Tape tape, Node node, object t) except -1:
    """Hold a leaf that is read, but not where no gradient is recorded: torch then has no history that holds it."""
    if ao_grad_on(grad_enabled):
        node.value = t
    elif node.value is None:
        node.value = t
        tape.let_go(node)
    return 0


cdef Node above(Tape tape, Node below, object t):
    """A `written` node for the present memory of the leaf `t`."""
    cdef Node node = new_node(WRITTEN_OP)
    node.flags = below.flags & (REQUIRES_GRAD | EXPOSED)
    node.in0 = below
    below.live += 1
    node.live = 1                    # held by its leaf
    describe(node, t)
    if tape.sources:
        tape.writes.locate(node, t)
    tape.append(node)
    return node


cdef int describe(Node node, object t) except -1:
    """Metadata and a value number of its own, from the tensor itself."""
    try:
        node.shape = ao_shape(t)
    except RuntimeError:             # a nested tensor has none
        from autograd_opt.graph.refusals import unsupported_operand
        raise unsupported_operand(t)
    node.dtype = ao_dtype(t)
    node.device = CPU if ao_on_cpu(t) else same_device(ao_get(get_device, t))
    node.vn = fresh_vn()
    node.version = version_of(t)
    if not ao_strided(t):
        node.flags |= SPARSE
    return 0


cdef bint plain_below(object t) except -1:
    """Is the view `t` one of a tensor of torch's that neither requires grad nor is known to a graph?"""
    cdef object base = ao_get(get_base, t)
    cdef PyObject *p
    if type(base) is not PlainTensor or ao_needs_grad(base):
        return False
    p = ao_try_attr(base, NODE)
    Py_XDECREF(p)
    return p == NULL


cdef bint listens(object t) except -1:
    """Has the leaf hooks, from outside or from another graph?"""
    if type(t) is CustomTensor and (t.__dict__.get("_leaf_hooks") or t.__dict__.get("_post_hooks")):
        return True
    return bool(ao_get(get_hooks, t)) or bool(ao_get(get_post_hooks, t))


cdef PyObject *leaf_tensor(Node node) except? NULL:
    """The tensor behind a leaf's node, borrowed; NULL where it is gone."""
    if node.value is None:
        return NULL
    if not is_weak(node.value):
        return <PyObject *>node.value
    return ao_referent(node.value)


# Tensors that another graph has computed. ------------------------------------------------------
cdef Node adopt(Tape tape, object t, Node node):
    """The node of a tensor that another tape has recorded: a leaf of a mere value; where a gradient would go on in
    that graph, one that no run may come to."""
    cdef Node made
    if not node.flags & REQUIRES_GRAD:
        if node.view is not None and not tape.late:
            from autograd_opt.graph.references import base_requires_grad
            tape.late = base_requires_grad(t)        # which it may have come to since
        return leaf(tape, t)
    if node.op.name == "view_apart":         # whatever its base is here, no gradient goes through it
        from autograd_opt.graph.view_history import apart
        found = apart(t, node.attrs["unrecorded"])
        return leaf(tape, t) if found is None else <Node>found
    found = elsewhere(tape, t)
    if found is not None and (<Node>found).version == version_of(t):
        made = <Node>found
    else:
        from autograd_opt.graph.released_history import guard
        made = new_node(ELSEWHERE_OP)
        describe(made, t)
        made.flags = REQUIRES_GRAD
        if tape.optimize and (borrowed(t) or tape.exposed and tape.shares_exposed(t)):
            made.flags |= EXPOSED | NO_MERGE
        made.saved_more = ([], [], node, None)
        if tape.sources:
            current_source(made)
        guard(tape, made)
        tape.append(made)
        tape.abroad[id(t)] = (weakref.ref(t), made)
    made.flags |= TOUCHED
    if made.flags & EXPOSED:
        made.vn = fresh_vn()
    return made


cdef Node elsewhere(Tape tape, object t):
    """The node that stands here for the tensor `t` of another graph; None where nothing has read it."""
    cdef Node node
    found = tape.abroad.get(id(t))
    if found is None or found[0]() is not t:
        return None
    node = <Node>found[1]
    return None if node.index < 0 or node.flags & DEAD else node
