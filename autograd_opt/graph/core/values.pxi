# When one node may stand for another, and when the value of a node can be handed out again.

cdef inline Node end(Node node):
    """Where the cotangent of `node` goes."""
    return node.leader if node is not None and node.flags & MERGED else node


cdef inline Node operand_of(Node node):
    """The first operand that is a tensor."""
    return node.in0 if node.in0 is not None else node.in1


cdef bint commutes(Node node) except -1:
    """May the two operands change places?  Not in `torch.add(x, y, alpha=2)`, which is x + 2 y."""
    return node.op.commutes(node.attrs)


cdef bint narrows(Node node) except -1:
    """Does a gradient leave `node` in a wider type than its own?

    Twins that round a float64 to float16, say, each send their cotangent on, to be summed where
    the bits are, as torch does.
    """
    cdef Node x = node.in0
    if x is None or x.dtype is None or node.dtype is None or x.dtype is node.dtype or not node.flags & x.flags & REQUIRES_GRAD:
        return False
    return torch.finfo(node.dtype).bits < torch.finfo(x.dtype).bits


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
        tape.kept_bytes -= tape.nbytes(holder.shape, holder.dtype)
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
    """Is the operand's memory known, and visible only inside torch?"""
    t = <object>operand.tensor if operand.tensor != NULL else operand.value
    return t is not None and not tape.shares_exposed(t)


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
        e = tape.find(operand.vn, 0, kind | route)
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
    e = tape.find(operand.vn, 0, (<uint64_t>op.id << 8) | 64 | 8 | 4)        # in general, requires grad, under grad mode
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
    if tape is None or not tape.optimize or tape.exposed or tape.late:
        return 0
    found = tape.leaves.get(id(t))
    if found is None and type(t) is CustomTensor:
        found = t.__dict__.get(NODE)
    if found is None:
        return 0
    node = <Node>found
    if node.tape_id != tape.id or node.view is not None or version_of(t) != node.version \
            or node.flags & (EXPOSED | NO_MERGE | WROTE | OVERWRITTEN):
        return 0
    return node.vn


cdef bint intact(Node node) except -1:
    """Is everything that the rules of `node` have saved unwritten, and not exposed?"""
    if node.x0 is not None and not node.flags & SCALAR0:
        if node.in0.flags & EXPOSED or version_of(node.x0) != node.v0:
            return False
    if node.x1 is not None and not node.flags & SCALAR1:
        if node.in1.flags & EXPOSED or version_of(node.x1) != node.v1:
            return False
    if node.flags & NEEDS_ANS:
        value = <object>node.tensor if node.tensor != NULL else node.value
        if value is None or version_of(value) != node.version:
            return False
    if node.saved_more is not None:
        if node.saved_more[3] is not None and any([version_of(t) != version for t, version in node.saved_more[3]]):
            return False
        for other, t, version in zip(node.more, node.saved_more[0], node.saved_more[1]):
            if other is not None and t is not None:
                if (<Node>other).flags & EXPOSED or version_of(t) != version:
                    return False
    return True


cdef object same_device(object device):
    """One object per device, so that nodes compare devices by identity."""
    return _devices.setdefault(device, device)


cdef object plain_dispatch = PlainTensor.__torch_dispatch__


def unusual(t):
    """Is this a tensor that cannot be recorded: nested, or of a class with its own `__torch_dispatch__`?"""
    return isinstance(t, PlainTensor) and (t.is_nested or type(t).__torch_dispatch__ is not plain_dispatch)


cdef int require_ordinary(object t) except -1:
    """Refuse a tensor whose class computes in a way of its own, below the recorder."""
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


cdef bint degenerate = bool(os.environ.get("AUTOGRAD_OPT_DEGENERATE_HASH"))


def install(custom, Op leaf_op, Op output_op, Op written_op, Op elsewhere_op):
    """Tell this module the tensor class and its own operators; done once at import."""
    global CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP, ELSEWHERE_OP, traverse_tensor
    CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP, ELSEWHERE_OP = custom, leaf_op, output_op, written_op, elsewhere_op
    use_kinds(custom, PlainTensor, Parameter)
    (<PyTypeObject *><PyObject *>custom).tp_finalize = finalize
    traverse_tensor = (<PyTypeObject *><PyObject *>_base).tp_traverse
    (<PyTypeObject *><PyObject *>_base).tp_traverse = traverse
