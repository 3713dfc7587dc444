# The tape that records in this thread, version numbers, and which tensors a graph must not touch.

cdef int64_t fresh_vn():
    global _vn
    _vn += 1
    return _vn


cdef Tape active_tape():
    return None if ao_active == NULL else <Tape>ao_active


cdef PyObject *recording():
    """The tape that records in this thread now, borrowed, or NULL."""
    return NULL if ao_paused else ao_active


cdef Tape tape_here():
    """The tape that records now; an error where none does."""
    cdef PyObject *tp = recording()
    if tp == NULL:
        from autograd_opt.errors import OutsideGraphError, at
        raise OutsideGraphError(at("an operation was to be recorded while no AutogradGraph records in this thread"))
    return <Tape>tp


cdef int set_paused(int value):
    global ao_paused
    cdef int old = ao_paused
    ao_paused = value
    return old


cdef int release_handle(Tape tape, object t) except -1:
    """The tensor `t` is about to belong to a newer node than its own."""
    cdef PyObject *p
    cdef Node old
    tape.changes += 1
    if type(t) is CustomTensor:
        t.__dict__.pop(MARK, None)
        p = ao_try_attr(t, NODE)
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None:
                old = <Node>found
                if old.tensor == <PyObject *>t:
                    old.tensor = NULL
                    old.flags |= OVERWRITTEN
                    old.spare = None
                    if old.flags & (CLONE | COUNTED):
                        tape.lost(old)
                    tape.decrement(old)
        PyObject_GenericSetAttr(t, NODE, None)
    tape.leaves.pop(id(t), None)
    return 0


cdef Node over(Tape tape, Op op, Node below, dict attrs, object t):
    """A node with the one operand `below`, of which its rule saves nothing, and with the metadata of `t`."""
    cdef Node node = new_node(op)
    node.attrs = attrs
    with torch._C.DisableTorchFunction():
        tape.describe(node, t)
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


def move(Op op, Node below, dict attrs, t):
    """Move `t`, which has its value already, to a node of its own over `below`; returns the node."""
    cdef Tape tape = tape_here()
    cdef Node node = over(tape, op, below, attrs, t)
    release_handle(tape, t)
    attach(tape, node, t)
    with torch._C.DisableTorchFunction():
        if ao_is_view(t):
            node.view = True
    return node


def continued(Node node, t):
    """Let `t` belong to `node`, whose value it has in other memory; returns `t`."""
    if type(t) is PlainTensor:
        ao_set_type(t, CustomTensor)
    move(WRITTEN_OP, node, None, t)
    return t


def set_version(Node node, t):
    """Accept the present memory of `t` as the value of its node."""
    node.version = version_of(t)


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
        PyObject_GenericSetAttr(t, NODE, None)
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
    node.value = _base.detach(t)
    return node


def given_memory(t, assign):
    """Call `assign()`, which gives `t` other memory: rules go on reading the result that was there before, as in torch."""
    cdef Tape tape = active_tape()
    cdef Node old = None if tape is None else hold_value(tape, t)
    assign()
    if old is not None:
        tape.rewritten(old, t)
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
    entry = tape.leaves.get(id(t))
    # nothing recorded can lie in memory that only this tensor, which is not recorded, knows
    if tape.sources and (entry is not None or type(t) is CustomTensor or ao_tensors_over(t) != 1) and ao_strided(t):
        tape.note_write(t)
    if entry is not None:
        (<Node>entry).flags |= WROTE
    elif not tape.optimize and type(t) is CustomTensor:
        node = getattr(t, "_node", None)
        if node is not None and node.tape_id == tape.id and node.view is None:
            tape.rewritten(node, t)


def pause():
    """Stop recording in this thread; returns what `resume` needs."""
    return set_paused(1)


def resume(int old):
    """Restore what `pause` or `resume` returned; returns the state until now."""
    return set_paused(old)


def get_active():
    return active_tape()


def get_recording():
    """The Tape that records in this thread now, or None."""
    return None if ao_paused or ao_active == NULL else <Tape>ao_active


def set_active_tape(Tape tape):
    """Make `tape` (held by its graph) the one recording in this thread; None for none."""
    global ao_active
    ao_active = NULL if tape is None else <PyObject *>tape


cdef object tape_by_id(int64_t id):
    address = _tapes.get(id)
    return None if address is None else <object><PyObject *><size_t>address


cdef int is_custom(object t):
    return type(t) is CustomTensor


cdef uint32_t version_of(object t) except? 4294967295:
    cdef int64_t version = ao_version(t)
    if version < 0:
        version = ao_get_int(get_version, t)
    if version < 0:                      # an inference tensor has no version counter
        if not PyErr_ExceptionMatches(<PyObject *>RuntimeError):
            PyErr_Clear()
            return ao_get(get_version, t)
        PyErr_Clear()
        return 0
    return <uint32_t>version


cdef object shape_of(object t):
    return ao_shape(t)


cdef Node new_node(Op op):
    cdef Node node = Node.__new__(Node)
    node.op = op
    node.index = -1
    return node


cdef int attach(Tape tape, Node node, object tensor) except -1:
    """Make `tensor` a CustomTensor whose handle is `node`, and append the node."""
    if not ao_strided(tensor):           # before it has our class, whose properties torch.compile would trace
        node.flags |= SPARSE
    if type(tensor) is PlainTensor:
        ao_set_type(tensor, CustomTensor)
    PyObject_GenericSetAttr(tensor, NODE, node)
    node.tensor = <PyObject *>tensor
    node.live = 1
    if tape.counting:
        tape.count(node)
    return tape.append(node)


cdef struct Known:
    PyObject *code
    bint internal

cdef Known _known[16384]                 # code objects by address: is it torch's or ours?
cdef dict _codes = {}                    # keeps them alive, so that an address stays one object's


def saving_hooks():
    """How many pairs of saved-tensor hooks are in place in this thread."""
    return ao_saving_hooks


def set_saving_hooks(int depth):
    """Say how many are in place; the active tape learns whether there are any."""
    global ao_saving_hooks
    ao_saving_hooks = depth
    if ao_active != NULL:
        (<Tape>ao_active).plain = depth == 0
