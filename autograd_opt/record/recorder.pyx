"""Record any operator of the table: `apply`."""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_call, ao_casts, ao_direct_linear, ao_dtype, ao_is_inference, ao_is_view, ao_linear, ao_plain, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport attach, handle
from autograd_opt.graph.node cimport (
    CLONE, DEAD, ELEMENTWISE, EXPOSED, FREED, HIDES, INNER, LEAF, MOVES, MULTI, NEEDS_ANS, NO_MERGE, OVERWRITTEN, PINNED,
    PURE, REDUCES, REQUIRES_GRAD, SCALAR0, SCALAR1, SPARSE, UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, VARIADIC, VIEW, WROTE,
    CustomTensor, Node, Op, PlainTensor as Tensor, awaits, current_source, fresh_vn, new_node, shape_of, version_of,
)
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape, recording, set_paused, tape_here
from autograd_opt.graph.tape import unusual
from autograd_opt.graph.value_table cimport Entry
from autograd_opt.record.arguments cimport grad_on, is_tensor, tracked
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.hot_operators cimport extra_of, numbered, reuse, save, seen
from autograd_opt.record.keys cimport key_of, key_of_all
from autograd_opt.record.new_nodes cimport device_of, fill, own_attributes, owned, pack_saved, record_outputs
from autograd_opt.record.sites cimport MORE_MISSES, learn, missed_here, settled_after
from autograd_opt.record.unrecorded cimport note_view, set_apart, shown, started

ao_use_reads(reads_address())
cdef object is_inference = private.TensorBase.__dict__["is_inference"]
cdef object any_autocast = private.is_any_autocast_enabled
cdef object linear_function = private.nn.linear


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
        return recorded(tape, op, func, args, kwargs, operands, attrs, not ao_casts(any_autocast))
    finally:
        leave(tape, switch)


cdef object recorded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    """`apply` inside its region; `exact`: no autocast changes the types of what is computed."""
    if tape.late and (op.flags & VIEW or op.name in GIVEN_BACK) and exact and given_back(op, func, args, kwargs, operands):
        return operands[0]
    cdef object r
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


cdef bint without_history(Op op, tuple operands) except -1:
    """Are these inference tensors alone?  torch's autograd does not see a kernel on them, even where they require grad.

    What torch makes of several kernels (a clone is a copy into a usual tensor) it may see; so it may what has a number.
    """
    if not op.flags & (ELEMENTWISE | REDUCES) or op.name in COPIES:
        return False
    for t in operands:
        if not is_tensor(t) or not ao_is_inference(is_inference, t):
            return False
    return True


cdef object COPIES = frozenset("clone cast contiguous to_float to_double to_half to_bfloat16".split())


cdef object GIVEN_BACK = frozenset("cast conj_physical contiguous positive sum_to_size".split())
"""The operators, besides those that make views, whose result may be their operand itself."""


cdef bint given_back(Op op, object func, tuple args, dict kwargs, tuple operands) except -1:
    """Does the call return its first operand, a view made before its base required grad?

    `contiguous()`, say: then nothing has read the view, and it still has no history.
    """
    t = operands[0] if operands else None
    if not is_tensor(t) or not t._is_view():
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


cdef object inner_view(Tape tape, Op op, object func, object t):
    """`func(t)`, a view that a rule reads and lets nobody see: the one made before, while it is there.

    A view that the user has, or can come to have, is never taken: a hook on it would see the rule's cotangents.
    """
    cdef Entry *e
    cdef Node n, node
    cdef object r, switch = enter(tape)
    try:
        if tape.optimize and is_tensor(t):
            n = handle(tape, t)
            if n.flags & INNER and n.op is op and not n.flags & PINNED:
                r = whole_value(n.in0)           # such a view, undone
                if r is not None:
                    return r
            e = key_of(tape, op, 1, n, None, None, (t,), None, grad_on() and n.flags & REQUIRES_GRAD != 0, grad_on())
            if e != NULL and e.first != NULL:
                node = <Node>(<Node>e.first).holder
                if node.flags & INNER and not node.flags & (DEAD | FREED | EXPOSED | NO_MERGE | OVERWRITTEN | PINNED) \
                        and node.tensor != NULL and version_of(<object>node.tensor) == node.version:
                    return <object>node.tensor
        r = apply_few(tape, op, func, (t,), None, (t,), None, True)
        if r is WHOLE:
            return whole_call(func, (t,), None)
        if type(r) is CustomTensor:
            (<Node>r._node).flags |= INNER
        return r
    finally:
        leave(tape, switch)


cdef object whole_value(Node node):
    """The tensor of a node, if it is there and nobody has written it; else None."""
    cdef object t
    if node is None or node.flags & (EXPOSED | NO_MERGE | OVERWRITTEN | WROTE) or node.view is not None:
        return None
    if node.flags & LEAF:
        t = node.value
        return t if is_tensor(t) and version_of(t) == node.version else None
    if node.tensor == NULL or version_of(<object>node.tensor) != node.version:
        return None
    return <object>node.tensor


cdef inline bint counts(Tape tape, Op op, object t) except -1:
    """Is there more to do for the operand `t` than to call the kernel, where values have no numbers?

    A gradient may follow; or the layout has no strides: below autograd, such kernels count writes of their own.
    """
    return is_tensor(t) and (op.differentiable and tracked(tape, t) or not ao_plain(t))


cdef object apply_few(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    """`apply` for at most three operands and one output, without hooks on saved tensors."""
    cdef Py_ssize_t count = len(operands)
    cdef Node na = None, nb = None, nc = None, node
    cdef object a = None, b = None, c = None, r = None, extra = None, shape, dtype
    cdef bint grad = grad_on(), req = False, cloned = False, found = False, usual
    cdef uint32_t mask = 0, flags = 0
    cdef Py_ssize_t moves = 0
    cdef Entry *e = NULL
    if count > 0:
        a = operands[0]
        if count > 1:
            b = operands[1]
            if count > 2:
                c = operands[2]
    if not tape.optimize and not (counts(tape, op, a) or counts(tape, op, b) or counts(tape, op, c)):
        r = ao_call(func, args, kwargs)
        started(r)
        if op.flags & VIEW:
            note_view(r)
        return shown(r) if op.flags & HIDES else r
    try:
        if is_tensor(a):
            na = seen(tape, op, a)
            flags = na.flags
        if is_tensor(b):
            nb = seen(tape, op, b)
            flags |= nb.flags
        if is_tensor(c):
            nc = seen(tape, op, c)
            flags |= nc.flags
    except NotImplementedError:          # a tensor of an unusual kind
        return beyond(tape, op, func, args, kwargs, operands)
    except RuntimeError as error:
        return unchanged(op, func, args, kwargs, operands, error)
    if flags & SPARSE:
        return WHOLE
    req = grad and op.differentiable and flags & REQUIRES_GRAD and not without_history(op, operands)
    if tape.optimize and exact and op.flags & PURE and not (req and settled_after(MORE_MISSES)):
        e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
        found = e != NULL and e.first != NULL
        if found and not op.flags & VIEW:
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None and not tape.moved
            if r is not None:
                extra = extra_of(<Node>(<Node>e.first).holder)
        moves = tape.table.moves
    if r is None:
        if op.kernel is not None and req:
            r, extra = op.kernel(*operands, **attrs) if attrs else op.kernel(*operands)
            if e != NULL:                        # a kernel is Python code, and may have moved the table
                e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
                moves = tape.table.moves
        elif func is linear_function and na is not None and nb is not None and nc is not None and not kwargs \
                and len(args) == 3 and ao_direct_linear(a, b, c):
            r = ao_linear(a, b, c)
        else:
            r = ao_call(func, args, kwargs)
        started(r, extra)
        if op.flags & HIDES:
            r = shown(r)
        if op.flags & VIEW and ao_is_inference(is_inference, r):
            return r                     # follows no gradient, whatever its base does
        if op.flags & VIEW and not grad and flags & REQUIRES_GRAD and op.differentiable and set_apart(r, a):
            return r
        if not (req or tape.optimize):
            return r
    if r is a or r is b or r is c:
        if tape.optimize and not req:
            missed_here(False)
        return r
    if type(r) is not Tensor and type(r) is not CustomTensor:
        return record_outputs(tape, op, [na, nb, nc][:count], operands, attrs, req, r, extra)
    dtype = ao_dtype(r)
    usual = is_float(dtype)
    if not usual and not (dtype.is_floating_point or dtype.is_complex):
        if not tape.optimize:
            return r
        req = False
    node = new_node(op)
    node.attrs = own_attributes(attrs)
    node.dtype = dtype
    shape = None
    if op.flags & ELEMENTWISE and na is not None and (nb is None or nb.shape == na.shape) \
            and (nc is None or nc.shape == na.shape):
        shape = na.shape
    else:
        shape = shape_of(r)
    node.shape = shape
    if op.flags & MOVES or na is None:
        node.device = device_of(op, [na, nb, nc], r)
    else:
        node.device = na.device
    node.version = version_of(r)
    flags = CLONE if cloned else 0
    if tape.optimize and not grad and ao_is_inference(is_inference, r):
        flags |= EXPOSED | NO_MERGE          # without a version counter a write goes unseen
    if req:
        flags |= REQUIRES_GRAD
        if na is not None and awaits(op, na):
            mask = op.need0
            if op.flags & (ELEMENTWISE | REDUCES) and (na.dtype is not dtype or na.shape != shape):
                flags |= UNBROADCAST0
        if nb is not None and awaits(op, nb):
            mask |= op.need1
            if op.flags & (ELEMENTWISE | REDUCES) and (nb.dtype is not dtype or nb.shape != shape):
                flags |= UNBROADCAST1
        if nc is not None and awaits(op, nc):
            mask |= op.needs(2)
            if op.flags & (ELEMENTWISE | REDUCES) and (nc.dtype is not dtype or nc.shape != shape):
                flags |= UNBROADCASTN
        if nb is None:
            mask &= ~op.lean
        if mask >> 31:
            flags |= NEEDS_ANS
    node.flags = flags
    if count <= 2 and extra is None:
        if na is not None:
            if mask & 1:
                node.x0 = a
                node.v0 = save(tape, na, a)
            node.in0 = na
            na.live += 1
        elif a is not None:
            node.x0 = owned(a)
            node.flags |= SCALAR0
        if nb is not None:
            if mask & 2:
                node.x1 = b
                node.v1 = save(tape, nb, b)
            node.in1 = nb
            nb.live += 1
        elif b is not None:
            node.x1 = owned(b)
            node.flags |= SCALAR1
    else:
        save_more(tape, node, op, count, na, nb, nc, operands, mask, extra)
    if op.flags & VIEW and ao_is_view(r):
        node.view = True
        if not req:
            r._made = node.version
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


cdef int save_more(Tape tape, Node node, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands,
                   uint32_t mask, object extra) except -1:
    """Operands, and what is saved of them, where a node's own two places do not do."""
    cdef Node n
    cdef Py_ssize_t i
    cdef list values = [None] * count, versions = [0] * count, all_nodes = [na, nb, nc]
    for i in range(count):
        n = all_nodes[i]
        if n is None:
            values[i] = owned(operands[i])
            if operands[i] is not None:
                node.attrs = {**(node.attrs or {}), op.operands[i]: values[i]}
        else:
            if mask & (1 << i):
                values[i] = operands[i]
                versions[i] = save(tape, n, operands[i])
    node.more = (na, nb, nc) if count == 3 else (na, nb) if count == 2 else (na,) if count == 1 else ()
    node.saved_more = (values, versions, extra, None)
    for i in range(count):
        n = all_nodes[i]
        if n is not None:
            n.live += 1
    return 0

cdef object apply_guarded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs, bint exact):
    cdef Node n, node
    cdef list nodes
    cdef uint32_t flags = 0
    cdef bint req, grad = grad_on(), view = False, cloned = False, keyed
    cdef int paused
    cdef Py_ssize_t i, count = len(operands), moves = 0
    cdef object r = None, extra = None
    cdef Entry *e = NULL
    if not tape.optimize:
        for t in operands:
            if counts(tape, op, t):
                break
        else:
            r = ao_call(func, args, kwargs)
            started(r)
            return shown(r) if op.flags & HIDES else r
    nodes = [None] * count
    try:
        for i in range(count):
            t = operands[i]
            if is_tensor(t):
                n = seen(tape, op, t)
                flags |= n.flags
                nodes[i] = n
    except NotImplementedError:
        return beyond(tape, op, func, args, kwargs, operands)
    if flags & SPARSE:
        return WHOLE
    req = grad and op.differentiable and flags & REQUIRES_GRAD
    keyed = tape.optimize and exact and tape.plain and op.flags & PURE and not op.flags & MULTI \
        and not (req and settled_after(MORE_MISSES))
    if keyed:
        e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
        if e != NULL and e.first != NULL and not op.flags & VIEW:
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None and not tape.moved
            if r is not None:
                extra = extra_of(<Node>(<Node>e.first).holder)
        moves = tape.table.moves
    if r is None:
        if op.kernel is not None and req:
            paused = set_paused(1)               # operators inside are part of this node
            try:
                r, extra = op.kernel(*operands, **(attrs or {}))
            finally:
                set_paused(paused)
            started(r, extra)
            if keyed:                            # a kernel is Python code, and may have moved the table
                e = key_of_all(tape, op, nodes, operands, attrs, req, grad)
                moves = tape.table.moves
        else:
            r = ao_call(func, args, kwargs)
            started(r)
        if op.flags & HIDES:
            r = shown(r)
        if op.flags & VIEW and inferred(r):
            return r                     # follows no gradient, whatever its base does
        if op.flags & VIEW and not grad and op.differentiable and flags & REQUIRES_GRAD \
                and set_apart(r, operands[0]):
            return r
        if not (req or tape.optimize):
            return r
        view = op.flags & VIEW and isinstance(r, Tensor) and r._is_view()
    if isinstance(r, Tensor):
        for t in operands:
            if t is r:
                if tape.optimize and not req:
                    missed_here(False)
                return r
        if type(r) is not Tensor and type(r) is not CustomTensor:
            if req:
                from autograd_opt.graph.refusals import unsupported_result
                raise unsupported_result(r, op.name)
            return r
        if not tape.optimize and not (r.is_floating_point() or r.is_complex()):
            return r
        node = fill(tape, op, nodes, operands, attrs, req, r, extra)
        if view:
            node.view = True
        if cloned:
            node.flags |= CLONE
        if not tape.plain:
            pack_saved(tape, node, r)
        if e == NULL and tape.optimize:
            node.vn = fresh_vn()
            if not req:
                learn(node, None)
        else:
            numbered(tape, node, e, moves)
        if op.keeps is not None and e != NULL:
            tape.keep_number(node, r)
        if tape.sources:
            current_source(node)
        attach(tape, node, r)
        return r
    return record_outputs(tape, op, nodes, operands, attrs, req, r, extra)


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
