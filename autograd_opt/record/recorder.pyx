"""Record any operator of the table: `apply`."""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_builtin0, ao_call, ao_casts, ao_direct_linear, ao_dtype, ao_get, ao_is_inference, ao_is_view, ao_linear,
    ao_needs_grad, ao_own, ao_plain, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport attach, handle
from autograd_opt.graph.node cimport (
    CLONE, ELEMENTWISE, EXPOSED, FILLS, FOLDS, HIDES, MOVES, MULTI, NEEDS_ANS, NO_MERGE, PURE, REDUCES, REQUIRES_GRAD, SPARSE,
    UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, VARIADIC, VIEW, CustomTensor, Node, Op, PlainTensor as Tensor, awaits,
    current_source, fresh_vn, new_node, same_shape, shape_of, version_of,
)
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape, tape_here
from autograd_opt.graph.thread_state cimport recording, set_paused
from autograd_opt.graph.leaf_nodes import unusual
from autograd_opt.graph.value_table cimport Entry
from autograd_opt.ops.products import linear_of_rows
from autograd_opt.ops.table import OPS
from autograd_opt.record.arguments cimport grad_on, is_tensor, tracked
from autograd_opt.record.autocast cimport spared
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.hot_operators cimport extra_of, numbered, reuse, seen
from autograd_opt.record.keys cimport key_of, key_of_all
from autograd_opt.record.new_memory cimport call_alone
from autograd_opt.record.new_nodes cimport (
    copied_operands, device_of, fill, own_attributes, pack_saved, record_outputs, save_all, save_few,
)
from autograd_opt.record.sites cimport MORE_MISSES, learn, missed_here, settled, settled_after
from autograd_opt.record.unrecorded cimport as_view, note_view, set_apart, shown, started, without_history

ao_use_reads(reads_address())
cdef object is_inference = private.TensorBase.__dict__["is_inference"]
cdef object get_base = ao_own(private.base_property)
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef object any_autocast = private.is_any_autocast_enabled
cdef object linear_function = private.nn.linear
cdef object contiguous = private.TensorBase.__dict__["contiguous"]
cdef dict IN_A_ROW = {"memory_format": torch.contiguous_format}


cpdef apply(Op op, func, tuple args, dict kwargs, tuple operands, dict attrs):
    """Run `func(*args, **kwargs)` and record it as `op`.

    `operands` are the tensors, numbers or None that the rule calls by name, `attrs` the
    rest.  Returns what the function returned, with nodes on its tensors when the result
    requires grad, or when values are numbered (`optimize=True`).
    """
    cdef PyObject *tp = recording()
    cdef Tape tape
    if tp == NULL:
        return func(*args, **kwargs)
    tape = <Tape>tp
    switch = enter(tape)
    try:
        return recorded(tape, op, func, args, kwargs, operands, attrs, not ao_casts(any_autocast) or spared(op.name))
    finally:
        leave(tape, switch)


cdef object recorded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    """`apply` inside its region; `exact`: no autocast changes the types of what is computed."""
    if tape.late and (op.flags & VIEW or op.name in GIVEN_BACK) and exact and given_back(tape, func, args, kwargs, operands):
        return operands[0]
    cdef object r
    cdef int copied = copied_operands(tape, operands[0], operands[1]) if op.flags & FOLDS and exact else 0
    if copied:                                   # recorded, so that rules need not copy them again
        args = operands = (in_a_row(tape, operands[0]) if copied & 1 else operands[0],
                           in_a_row(tape, operands[1]) if copied & 2 else operands[1], *operands[2:])
        func, kwargs = op.forward if len(operands) == 2 else linear_of_rows, None
    if tape.plain and len(operands) <= 3 and not op.flags & (MULTI | VARIADIC):
        r = apply_few(tape, op, func, args, kwargs, operands, attrs, exact)
    else:
        r = apply_guarded(tape, op, func, args, kwargs, operands, attrs, exact)
    return whole_call(func, args, kwargs) if r is WHOLE else r


cdef object WHOLE = object()
"""What is said, in place of a result, of a call that torch has to differentiate: the layout of an operand has no strides."""


cdef object whole_call(object func, tuple args, dict kwargs):
    from autograd_opt.record.torch_fallback import handler
    return handler(func, args, kwargs or {})


cdef object GIVEN_BACK = frozenset("cast conj_physical contiguous positive sum_to_size".split())
"""The operators, besides those that make views, whose result may be their operand itself."""


cdef bint given_back(Tape tape, object func, tuple args, dict kwargs, tuple operands) except -1:
    """Does the call return its first operand, a view made before its base required grad?

    `contiguous()`, say: then nothing has read the view, and it still has no history.
    """
    t = operands[0] if operands else None
    if not is_tensor(t) or not ao_is_view(t) or not tracked(tape, ao_get(get_base, t)):
        return False
    node = t.__dict__.get("_node")
    if node is not None and (<Node>node).flags & REQUIRES_GRAD:
        return False
    try:
        return handed_back(func, args, kwargs, operands) is t
    except Exception:
        return False                         # raised again where the call is recorded


cdef object record(Tape tape, Op op, object func, tuple args, tuple operands, dict attrs):
    """`apply` for a rule in C: at most three operands, one output, and `tape` known to record plainly."""
    switch = enter(tape)
    try:
        r = apply_few(tape, op, func, args, None, operands, attrs, True)
        return whole_call(func, args, None) if r is WHOLE else r
    finally:
        leave(tape, switch)


cdef inline bint counts(Tape tape, Op op, object t) except -1:
    """Is there more to do for the operand `t` than to call the kernel, where its value needs no number?

    A gradient may follow; or the layout has no strides: below autograd, such kernels count writes of their own.
    """
    return is_tensor(t) and (op.differentiable and tracked(tape, t) or not ao_plain(t))


cdef object uncounted(Op op, object func, tuple args, dict kwargs):
    """The result of a call that records nothing; of views, a note when they were made."""
    cdef bint new
    cdef object r = call_alone(func, args, kwargs, &new)
    if new:
        return r
    started(r)
    if op.flags & VIEW:
        note_view(r)
    return shown(r) if op.flags & HIDES else r


cdef tuple by_kernel(Op op, tuple operands, dict attrs):
    """What the operator's own kernel gives: the result, and what its rule keeps."""
    cdef int paused = set_paused(1)          # operators inside are part of this node
    try:
        r, extra = op.kernel(*operands, **attrs) if attrs else op.kernel(*operands)
    finally:
        set_paused(paused)
    started(r, extra)
    return r, extra


cdef object by_torch(Op op, object func, tuple args, dict kwargs, tuple operands):
    """The result of torch's own function."""
    cdef object r
    cdef bint new = False
    if func is linear_function and len(args) == len(operands) == 3 and not kwargs and is_tensor(operands[0]) \
            and is_tensor(operands[1]) and is_tensor(operands[2]) and ao_direct_linear(operands[0], operands[1], operands[2]):
        r = ao_linear(operands[0], operands[1], operands[2])
    else:
        r = call_alone(func, args, kwargs, &new)
        if op.flags & VIEW and ao_builtin0(dispatch_modes) != 0:
            r = as_view(operands[0], r)
    if not new:
        started(r)
    return r


cdef bint read_off_base(object r) except -1:
    """Does torch say of a view just made, or of the first of several, that it requires grad, as its base does?"""
    if type(r) is tuple or type(r) is list:
        return len(r) > 0 and read_off_base(r[0])
    return is_tensor(r) and ao_needs_grad(r)


cdef inline bint without_node(Tape tape, Op op, object r, object source, uint32_t flags, bint req, bint grad) except -1:
    """True if a result just computed gets no node; `flags` are those of its operands, `source` is the first."""
    if op.flags & VIEW and (inferred(r) or not grad and op.differentiable and (flags & REQUIRES_GRAD or read_off_base(r))
                            and set_apart(r, source)):
        return True                          # of inference tensors: follows no gradient, whatever its base does
    if req or tape.optimize:
        return False
    if op.flags & VIEW:
        note_view(r)
    return True


cdef inline object finished(Tape tape, Op op, Node node, Entry *e, Py_ssize_t moves, bint req, object r):
    """Number the node of `r`, and attach it."""
    if e == NULL and tape.optimize:
        node.vn = fresh_vn()
        if not req:
            learn(node, None)
    else:
        numbered(tape, node, e, moves)
        if op.keeps is not None and tape.optimize:
            tape.keep_number(node, r)
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return r


cdef inline Node node_of(Tape tape, Op op, object t):
    """The node of an operand; None for what is no tensor."""
    return seen(tape, op, t) if is_tensor(t) else None


cdef object apply_few(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    """`apply` for at most three operands and one output, without hooks on saved tensors."""
    cdef Py_ssize_t count = len(operands), moves = 0
    cdef Node na = None, nb = None, nc = None
    cdef object a, b, c, r = None, extra = None
    cdef bint grad = grad_on(), req = False, cloned = False
    cdef uint32_t flags
    cdef Entry *e = NULL
    a = operands[0] if count > 0 else None
    b = operands[1] if count > 1 else None
    c = operands[2] if count > 2 else None
    # with gradients off, `unrecorded.by_itself` has asked
    if grad and not (counts(tape, op, a) or counts(tape, op, b) or counts(tape, op, c)) and (not tape.optimize or settled()):
        return uncounted(op, func, args, kwargs)
    try:
        na = node_of(tape, op, a)
        nb = node_of(tape, op, b)
        nc = node_of(tape, op, c)
    except NotImplementedError:          # a tensor of an unusual kind
        return beyond(tape, op, func, args, kwargs, operands)
    except RuntimeError as error:
        return unchanged(op, func, args, kwargs, operands, error)
    flags = (0 if na is None else na.flags) | (0 if nb is None else nb.flags) | (0 if nc is None else nc.flags)
    if flags & SPARSE:
        tape.let_go_unread((na, nb, nc))
        return WHOLE
    req = grad and op.differentiable and flags & REQUIRES_GRAD and not without_history(op, operands)
    if tape.optimize and exact and op.flags & PURE and not (req and settled_after(MORE_MISSES)):
        e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
        if e != NULL and e.first != NULL and not op.flags & (VIEW | FILLS):
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None and not tape.moved
            if r is not None:
                extra = extra_of(<Node>(<Node>e.first).holder)
        moves = tape.table.moves
    if r is None:
        if op.kernel is not None and req:
            r, extra = by_kernel(op, operands, attrs)
            if e != NULL:                        # a kernel is Python code, and may have moved the table
                e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
                moves = tape.table.moves
        else:
            r = by_torch(op, func, args, kwargs, operands)
        if op.flags & HIDES:
            r = shown(r)
        if without_node(tape, op, r, a, flags, req, grad):
            tape.let_go_unread((na, nb, nc))
            return r
    if r is a or r is b or r is c:
        if tape.optimize and not req:
            missed_here(False)
        tape.let_go_unread((na, nb, nc))
        return r
    if type(r) is not Tensor and type(r) is not CustomTensor:
        return record_outputs(tape, op, [na, nb, nc][:count], operands, attrs, req, r, extra)
    return with_node(tape, op, count, na, nb, nc, operands, attrs, req, grad, cloned, r, extra, e, moves)


cdef object in_a_row(Tape tape, object t):
    """`t.contiguous()`, recorded."""
    return apply_few(tape, <Op>OPS["contiguous"], contiguous, (t,), None, (t,), IN_A_ROW, True)


cdef object with_node(Tape tape, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs,
                      bint req, bint grad, bint cloned, object r, object extra, Entry *e, Py_ssize_t moves):
    """Give the result of at most three operands its node."""
    cdef Node node
    cdef object dtype = ao_dtype(r)
    cdef uint32_t mask = 0
    if not is_float(dtype) and not (dtype.is_floating_point or dtype.is_complex):
        if not tape.optimize:
            tape.let_go_unread((na, nb, nc))
            return r
        req = False
    node = new_node(op)
    node.attrs = own_attributes(attrs)
    node.dtype = dtype
    if op.flags & ELEMENTWISE and na is not None and (nb is None or same_shape(nb.shape, na.shape)) \
            and (nc is None or same_shape(nc.shape, na.shape)):
        node.shape = na.shape
    else:
        node.shape = shape_of(r)
    node.device = device_of(op, [na, nb, nc], r) if op.flags & MOVES or na is None else na.device
    node.version = version_of(r)
    if cloned:
        node.flags = CLONE
    if tape.optimize and not grad and ao_is_inference(is_inference, r):
        node.flags |= EXPOSED | NO_MERGE         # without a version counter a write goes unseen
    if req:
        node.flags |= REQUIRES_GRAD
        mask = read_by_rule(op, node, na, 0, UNBROADCAST0) | read_by_rule(op, node, nb, 1, UNBROADCAST1) \
            | read_by_rule(op, node, nc, 2, UNBROADCASTN)
        if nb is None:
            mask &= ~op.lean
        if mask >> 31:
            node.flags |= NEEDS_ANS
    if count <= 2 and extra is None:
        save_few(tape, node, na, nb, operands, mask, True)
    else:
        save_all(tape, node, [na, nb, nc][:count], operands, mask, extra, True)
    if grad and not req:
        tape.let_go_unread((na, nb, nc))
    if na is not None:
        na.live += 1
    if nb is not None:
        nb.live += 1
    if nc is not None:
        nc.live += 1
    if op.flags & VIEW and ao_is_view(r):
        node.view = True
        if not req:
            r._made = node.version
    return finished(tape, op, node, e, moves, req, r)


cdef inline uint32_t read_by_rule(Op op, Node node, Node operand, int i, uint32_t fix) except? 4294967295:
    """What the rule of operand `i` reads; a note where its cotangent has to be brought to another shape or type."""
    if operand is None or not awaits(op, operand):
        return 0
    if op.flags & (ELEMENTWISE | REDUCES) and (operand.dtype is not node.dtype or not same_shape(operand.shape, node.shape)):
        node.flags |= fix
    return op.need0 if i == 0 else op.need1 if i == 1 else op.needs(2)


cdef object apply_guarded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    """`apply` for many operands, several outputs, hooks on saved tensors."""
    cdef Node n
    cdef list nodes
    cdef uint32_t flags = 0
    cdef bint req, grad = grad_on(), cloned = False, keyed
    cdef Py_ssize_t moves = 0
    cdef object r = None, extra = None
    cdef Entry *e = NULL
    if not any([counts(tape, op, t) for t in operands]) and (not tape.optimize or settled()):
        return uncounted(op, func, args, kwargs)
    try:
        nodes = [node_of(tape, op, t) for t in operands]
    except NotImplementedError:
        return beyond(tape, op, func, args, kwargs, operands)
    for n in nodes:
        if n is not None:
            flags |= n.flags
    if flags & SPARSE:
        tape.let_go_unread(nodes)
        return WHOLE
    req = grad and op.differentiable and flags & REQUIRES_GRAD
    keyed = tape.optimize and exact and tape.plain and op.flags & PURE and not op.flags & MULTI \
        and not (req and settled_after(MORE_MISSES))
    if keyed:
        e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
        if e != NULL and e.first != NULL and not op.flags & (VIEW | FILLS):
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None and not tape.moved
            if r is not None:
                extra = extra_of(<Node>(<Node>e.first).holder)
        moves = tape.table.moves
    if r is None:
        if op.kernel is not None and req:
            r, extra = by_kernel(op, operands, attrs)
            if keyed:                            # a kernel is Python code, and may have moved the table
                e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
                moves = tape.table.moves
        else:
            r = by_torch(op, func, args, kwargs, operands)
        if op.flags & HIDES:
            r = shown(r)
        if without_node(tape, op, r, operands[0] if operands else None, flags, req, grad):
            tape.let_go_unread(nodes)
            return r
    if not isinstance(r, Tensor):
        return record_outputs(tape, op, nodes, operands, attrs, req, r, extra)
    return with_wide_node(tape, op, nodes, operands, attrs, req, cloned, r, extra, e, moves)


cdef object with_wide_node(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, bint cloned, object r,
                           object extra, Entry *e, Py_ssize_t moves):
    """Give the result of any number of operands its node."""
    cdef Node node
    for t in operands:
        if t is r:
            if tape.optimize and not req:
                missed_here(False)
            tape.let_go_unread(nodes)
            return r
    if type(r) is not Tensor and type(r) is not CustomTensor:
        if req:
            from autograd_opt.graph.refusals import unsupported_result
            raise unsupported_result(r, op.name)
        return r
    if not tape.optimize and not (r.is_floating_point() or r.is_complex()):
        tape.let_go_unread(nodes)
        return r
    node = fill(tape, op, nodes, operands, attrs, req, r, extra)
    if op.flags & VIEW and ao_is_view(r):
        node.view = True
    if cloned:
        node.flags |= CLONE
    if not tape.plain:
        pack_saved(tape, node, r)
    return finished(tape, op, node, e, moves, req, r)


cdef object beyond(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands):
    """A call on a tensor that cannot be recorded: refused where a gradient would be lost, else run."""
    if grad_on() and op.differentiable and any([isinstance(t, Tensor) and tracked(tape, t) for t in operands]):
        refuse(operands, op.name)
    return ao_call(func, args, kwargs)


cdef object handed_back(object func, tuple args, dict kwargs, tuple operands):
    """The operand that the call returns as it is; None where the result is another tensor."""
    r = ao_call(func, args, kwargs)
    for t in operands:
        if t is r:
            return r
    return None


cdef object unchanged(Op op, object func, tuple args, dict kwargs, tuple operands, object error):
    """A call that returns its operand as it is asks nothing of it; for any other, the error stands.

    A dropout of nothing is one; of something, torch draws before it looks.
    """
    if op.flags & PURE or op.name == "dropout":
        r = handed_back(func, args, kwargs, operands)
        if r is not None:
            return r
    raise error


cdef int refuse(operands, str name) except -1:
    """Raise the error that is being handled, with the operation's name where a tensor's kind is the reason."""
    for t in operands:
        if unusual(t):
            from autograd_opt.graph.refusals import unsupported_operand
            raise unsupported_operand(t, name)
    raise


def nodes_or_refuse(list tensors, str name):
    """The node of each tensor; None where one cannot be recorded and none requires grad.

    Raises UnsupportedError where a gradient would be lost.
    """
    cdef Tape tape = tape_here()
    try:
        return [handle(tape, t) for t in tensors]
    except NotImplementedError:
        if grad_on() and any([tracked(tape, t) for t in tensors]):
            refuse(tensors, name)
        return None


cdef bint inferred(object r) except -1:
    """Was this result, or were these, made of inference tensors?"""
    if type(r) is tuple or type(r) is list:
        return len(r) > 0 and inferred(r[0])
    return isinstance(r, Tensor) and ao_is_inference(is_inference, r)
