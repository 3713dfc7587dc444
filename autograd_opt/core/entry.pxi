# The backward of an ordinary training step: one scalar, no argument, nothing out of the ordinary.
#
# What it does is what `backward.backward` does then, without the questions that the arguments of a
# general call raise.  Anything that is not as here goes there, before anything has been done.
#
# Part of executor.pyx.

cdef object accumulate_leaf = None       # references.accumulate
cdef object shared_ones = None           # backward.shared_ones
cdef object anomaly_enabled = torch._C.is_anomaly_enabled
cdef object grad_enabled = torch._C.is_grad_enabled
cdef object set_grad_enabled = torch._C._set_grad_enabled
cdef object dispatch_modes = torch._C._len_torch_dispatch_stack
cdef object Guard = torch._C.DisableTorchFunction
cdef object lazy_clone = base.__dict__["_lazy_clone"]
cdef list spare_guards = []              # each is used by one run at a time
cdef dict _ones = {}                     # dtype -> the number one on the CPU, which no user ever sees


def install_entry(accumulate, ones):
    """What a run needs of other modules; done once at import."""
    global accumulate_leaf, shared_ones
    accumulate_leaf, shared_ones = accumulate, ones
    if ao_builtin0(dispatch_modes) == 0:
        for dtype in (torch.float32, torch.float64):
            _ones[dtype] = torch.ones((), dtype=dtype, device=CPU)


cdef object seed_of(Tape tape, Node root):
    """The cotangent of a scalar: the very same tensor for each run where the rule only reads it."""
    cdef object one
    if root.op.hot != NLL or root.hooks is not None or root.device is not CPU:
        return shared_ones(tape, root.shape, root.dtype, root.device)
    one = _ones.get(root.dtype)
    if ao_builtin0(dispatch_modes) != 0:
        if one is not None:
            try:
                return ao_method0(lazy_clone, one)       # what a mode sees it may keep and write
            except RuntimeError:
                pass
        return shared_ones(tape, root.shape, root.dtype, root.device)
    if one is None:
        one = _ones[root.dtype] = torch.ones((), dtype=root.dtype, device=CPU)
    return one


cdef bint usual_root(Tape tape, object t, Node node) except -1:
    """Is `t` a recorded real scalar, unchanged since?"""
    return node.tape_id == tape.id and node.tensor == <PyObject *>t and node.index >= 0 and node.view is None \
        and node.flags & (LEAF | REQUIRES_GRAD | ESCAPED) == REQUIRES_GRAD and node.op.hot != NONE \
        and len(<tuple>node.shape) == 0 and is_float(node.dtype) and version_of(t) == node.version


def backward_usual(t):
    """Run `t.backward()` where it is an ordinary one; False, with nothing done, where it is not."""
    cdef Tape tape = active_tape()
    cdef PyObject *p
    cdef list stack
    if tape is None or recording() != <PyObject *>tape or not is_custom(t) or ao_builtin0(anomaly_enabled) is True:
        return False
    graph = tape.graph()
    if graph is None or graph.anomaly or tape.twins or tape.optimize and (graph.verify_each or not graph.default_passes):
        return False
    p = ao_try_attr(t, "_node")
    if p == NULL:
        return False
    node = <object>p
    Py_DECREF(node)
    stack = getattr(running, "stack", None)
    if stack is None or stack or type(node) is not Node or not ran(tape, t, <Node>node, stack):
        return False
    tape.consumed = True
    run = stack[0]
    try:
        if run.callbacks:
            finish_run(run)
    finally:
        stack.pop()
    return True


cdef bint ran(Tape tape, object t, Node node, list stack) except -1:
    """Run from `node` with torch functions and gradients off; False where it is no usual root."""
    cdef GraphTask task
    cdef list roots = [node]
    grads = ao_builtin0(grad_enabled)
    guard = spare_guards.pop() if spare_guards else Guard()
    ao_method0(guard_enter, guard)
    try:
        if not usual_root(tape, t, node):
            return False
        task = GraphTask.__new__(GraphTask, tape, False, False, False)
        stack.append(Run(task, roots, None, True))
        set_paused(1)
        try:
            if grads is True:
                set_grad_enabled(False)
            task.run(roots, [seed_of(tape, node)], None, True, accumulate_leaf)
        except BaseException:
            stack.pop()
            raise
        finally:
            set_paused(0)
            if ao_builtin0(grad_enabled) is not grads:
                set_grad_enabled(grads)
    finally:
        ao_method(guard_exit, guard, NOTHING)
        spare_guards.append(guard)
    return True
