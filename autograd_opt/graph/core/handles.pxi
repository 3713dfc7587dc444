# The node of a tensor: made on demand with its source line, and told when the tensor dies.


cdef object current_source(Node node):
    """Remember the position (code object, instruction) of the innermost frame of the user's."""
    cdef ao_frame_t frame = ao_frame()
    cdef PyObject *code
    cdef Known *known
    while frame != NULL:
        code = ao_frame_code(frame)
        known = &_known[(<size_t>code >> 5) & 16383]
        if known.code != code:
            from autograd_opt._common.callsite import internal
            known.internal = internal((<object>code).co_filename)
            known.code = code
            _codes[<size_t>code] = <object>code
        if not known.internal:
            node.code = <object>code
            node.lasti = ao_frame_lasti(frame)
            ao_frame_done(frame)
            return None
        frame = ao_frame_back(frame)


cdef bint usual_leaf(Tape tape, Node node, object t) except -1:
    """Is `node`, which `t` points to, its leaf on `tape`, with nothing changed since it was last used?"""
    cdef uint32_t flags = node.flags & (REQUIRES_GRAD | TOUCHED | EXPOSED | WROTE)
    if node.tape_id != tape.id or node.index < 0 or node.view is not None or tape.late or tape.exposed \
            or not tape.optimize or is_weak(node.value) or flags != REQUIRES_GRAD | TOUCHED:
        return False
    return version_of(t) == node.version and getattr(t, MARK, False) is True


cdef Node handle(Tape tape, object t):
    """The node of tensor `t` on `tape`, registering a leaf where there is none yet.

    The caller has switched torch functions off.
    """
    cdef PyObject *p
    cdef Node node
    if type(t) is CustomTensor:
        p = ao_try_attr(t, NODE)
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None:
                node = <Node>found
                if node.flags & LEAF and usual_leaf(tape, node, t):
                    return node
                if node.tape_id != tape.id:
                    return tape.leaf(t) if node.flags & LEAF else tape.adopt(t, node)
                elif node.flags & LEAF:
                    return tape.leaf(t)
                elif node.index < 0:
                    tape.append(node)
                if node.view is not None:
                    if version_of(t) != node.version:
                        return tape.refresh_view(node, t)
                    if tape.late and not node.flags & REQUIRES_GRAD:
                        from autograd_opt.graph.view_history import late
                        later = late(t)
                        if later is not None:
                            return later
                if tape.optimize:
                    if version_of(t) != node.version:
                        return tape.rewritten(node, t)
                    if tape.exposed and not node.flags & EXPOSED and tape.shares_exposed(t):
                        node.mark(EXPOSED | NO_MERGE)
                    if node.flags & EXPOSED:
                        node.vn = fresh_vn()
                return node
    return tape.leaf(t)


def handle_of(t, bint register=True):
    """The node of `t` on the active tape; None when `register` is false and it has none."""
    cdef Tape tape = active_tape()
    if tape is None:
        return None
    if not register:
        node = getattr(t, "_node", None)
        if node is None or (<Node>node).flags & LEAF:
            return tape.leaves.get(id(t))
        return node if (<Node>node).tape_id == tape.id else tape.elsewhere(t)
    with torch._C.DisableTorchFunction():
        return handle(tape, t)


cdef void finalize(PyObject *self) noexcept:
    """tp_finalize of CustomTensor: its node learns that nobody holds the tensor any more.

    The value survives here, without its handle, when the rule still reads it or when it
    is kept for reuse; that needs neither a second tensor object nor a weak reference.
    """
    cdef PyObject *p
    cdef ao_raised raised = ao_put_aside()
    p = ao_try_attr(<object>self, NODE)
    if p != NULL:
        found = <object>p
        Py_DECREF(found)
        try:
            if found is not None and (<Node>found).tensor == self:
                tensor_died(<Node>found, <object>self)
        except BaseException as error:  # a finalizer cannot raise
            print("autograd_opt: error while releasing a tensor:", repr(error), file=sys.stderr)
    ao_raise_again(raised)


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
    cdef bint wanted, clone = node.flags & CLONE != 0
    node.tensor = NULL
    if ao_active != NULL and (<Tape>ao_active).id == node.tape_id:
        tape = <Tape>ao_active
    else:
        tape = tape_by_id(node.tape_id)
        if tape is None:
            return 0
    if node.flags & PACKED:
        tape.decrement(node)
        return 0
    wanted = node.flags & NEEDS_ANS and not node.flags & FREED and node.live > 1
    if node.flags & CLONE or node.flags & COUNTED and not wanted:
        tape.lost(node, wanted)
    kept = tape.optimize and not node.flags & (NO_MERGE | EXPOSED | OVERWRITTEN) and tape.keep(node)
    if wanted or kept:
        if ao_has_weakrefs(tensor):
            tensor = torch._C.TensorBase.detach(tensor)
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
