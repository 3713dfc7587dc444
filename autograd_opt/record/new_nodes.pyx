"""Write nodes: operands, what rules save, outputs, writes and values that others have computed."""

import torch

from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_contiguous, ao_dtype, ao_get, ao_grad_on, ao_is_inference, ao_is_view, ao_method, ao_method0, ao_own,
    ao_plain, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport attach, handle, release_handle
from autograd_opt.graph.node cimport (
    ELEMENTWISE, EXPOSED, MOVES, MULTI, NEEDS_ANS, NO_MERGE, OTHERS, OUTPUT_OP, PACKED, REDUCES, REQUIRES_GRAD, SCALAR0,
    SCALAR1, UNBROADCAST0, UNBROADCAST1, UNBROADCASTN, VARIADIC, VIEW, CustomTensor, Node, Op, awaits, current_source,
    fresh_vn, new_node, shape_of, version_of,
)
from autograd_opt.graph.plain_values cimport deeper, is_float, same_device, shallower
from autograd_opt.graph.tape cimport Tape, active_tape, tape_here
from autograd_opt.record.arguments cimport grad_on, is_tensor, tracked
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.saved_tensors cimport innermost_hooks, pack_extra, packed
from autograd_opt.record.saved_tensors import saving_order
from autograd_opt.record.sites cimport learn

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object grad_enabled = private.is_grad_enabled
cdef object is_inference = private.TensorBase.__dict__["is_inference"]
cdef object stride_method = private.TensorBase.__dict__["stride"]
cdef object detach_method = private.TensorBase.__dict__["detach"]
cdef object get_device = ao_own(private.TensorBase.__dict__["device"])


cdef bint changeable(object value) except -1:
    """Can the caller change the inside of `value` after the call?"""
    cdef object kind = type(value)
    if kind is tuple:
        deeper()
        try:
            for y in <tuple>value:
                if changeable(y):
                    return True
        finally:
            shallower()
        return False
    return kind is list or kind is dict or kind is set or kind is bytearray


cdef object own(object value):
    """`value` with containers of its own, of the same types."""
    cdef object kind = type(value)
    if kind is set or kind is bytearray:
        return kind(value)
    if kind is not list and kind is not dict and kind is not tuple:
        return value
    deeper()
    try:
        if kind is list:
            return [own(y) for y in <list>value]
        if kind is dict:
            return {k: own(y) for k, y in (<dict>value).items()}
        return tuple([own(y) for y in <tuple>value])
    finally:
        shallower()


cdef object owned(object value):
    """What a node keeps of an argument that is no tensor: a list that the caller writes later is another one."""
    if type(value) is int or type(value) is float or type(value) is bool or value is None:
        return value
    try:
        return own(value) if changeable(value) else value
    except RecursionError:                   # it holds itself, and has no key
        return value


cdef dict own_attributes(dict attrs):
    """The attributes of a call as a node keeps them."""
    cdef dict kept = None
    if not attrs:
        return None
    for name, value in attrs.items():
        mine = owned(value)
        if mine is not value:
            if kept is None:
                kept = attrs.copy()
            kept[name] = mine
    return attrs if kept is None else kept


cdef Node fill(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=None):
    """A node with its operands, what its rules save, and the metadata of output `r`."""
    cdef Node node = new_node(op), n
    cdef uint32_t mask = 0
    cdef size_t switch = enter(tape)
    node.attrs = own_attributes(attrs)
    try:
        if r is not None:
            node.device = device_of(op, nodes, r)
            describe(tape, node, r, req)
        elif req:
            node.flags |= REQUIRES_GRAD
        if node.flags & REQUIRES_GRAD:
            mask = needed_by_rules(op, nodes, node)
            if mask & 0x80000000:
                node.flags |= NEEDS_ANS
        if len(nodes) <= 2 and extra is None and not op.flags & VARIADIC:
            save_few(tape, node, nodes[0] if nodes else None, nodes[1] if len(nodes) > 1 else None, operands, mask, False)
        else:
            save_all(tape, node, nodes, operands, mask, extra, False)
    finally:
        leave(tape, switch)
    if not node.flags & REQUIRES_GRAD:
        tape.let_go_unread(nodes)
    for n in nodes:
        if n is not None:
            n.live += 1
    return node


cdef int describe(Tape tape, Node node, object t, bint req) except -1:
    """Write shape, dtype and version of a result into its node, and whether it requires grad."""
    node.shape = shape_of(t)
    node.dtype = ao_dtype(t)
    node.version = version_of(t)
    if tape.optimize and not ao_grad_on(grad_enabled) and ao_is_inference(is_inference, t):
        node.flags |= EXPOSED | NO_MERGE         # without a version counter a write goes unseen
    if req and (is_float(node.dtype) or node.dtype.is_floating_point or node.dtype.is_complex):
        node.flags |= REQUIRES_GRAD
    return 0


cdef uint32_t needed_by_rules(Op op, list nodes, Node node) except? 0:
    """Return which operands the rules read, and note which cotangents they leave in another shape or type."""
    cdef uint32_t mask = 0, fix = 0
    cdef Py_ssize_t i, only = 0, asked = 0, count = len(nodes)
    cdef Node n
    for i in range(count):
        n = nodes[i]
        if n is not None and awaits(op, n):
            asked, only = asked + 1, i
            mask |= op.needs(i)
            if op.flags & (ELEMENTWISE | REDUCES) and (n.shape != node.shape or n.dtype is not node.dtype):
                fix |= 1 << min(i, 2)
    if op.flags & OTHERS and asked == 1 and only < 30:
        mask &= ~(<uint32_t>1 << only)
    if op.lean and count == 2 and nodes[1] is None:
        mask &= ~op.lean
    if op.flags & ELEMENTWISE:
        for n in nodes:
            if n is not None and n.dtype is not node.dtype:
                fix = 7              # written in place: the rules compute in the wider type
                break
    if fix & 1:
        node.flags |= UNBROADCAST0
    if fix & 2:
        node.flags |= UNBROADCAST1
    if fix & 4:
        node.flags |= UNBROADCASTN
    return mask


cdef int save_few(Tape tape, Node node, Node na, Node nb, tuple operands, uint32_t mask, bint checked) except -1:
    """Write at most two operands into their node; `checked`: has `handle` just compared their versions?"""
    cdef Py_ssize_t count = len(operands)
    node.in0, node.in1 = na, nb
    if na is not None:
        if mask & 1:
            node.x0 = operands[0]
            node.v0 = save(tape, na, node.x0) if checked else saved_version(node.x0)
    elif count > 0 and operands[0] is not None:
        node.x0 = owned(operands[0])
        node.flags |= SCALAR0
    if nb is not None:
        if mask & 2:
            node.x1 = operands[1]
            node.v1 = save(tape, nb, node.x1) if checked else saved_version(node.x1)
    elif count > 1 and operands[1] is not None:
        node.x1 = owned(operands[1])
        node.flags |= SCALAR1
    return 0


cdef int save_all(Tape tape, Node node, list nodes, tuple operands, uint32_t mask, object extra, bint checked) except -1:
    """Write any number of operands into their node, and what the kernel has left."""
    cdef Py_ssize_t i, count = len(nodes)
    cdef Op op = node.op
    node.more = tuple(nodes)
    values = [None] * count
    versions = [0] * count
    for i in range(count):
        if nodes[i] is None:
            values[i] = owned(operands[i])
            if operands[i] is not None and not op.flags & VARIADIC:
                node.attrs = {**(node.attrs or {}), op.operands[i]: values[i]}
        elif mask & (1 << min(i, 30)):
            values[i] = operands[i]
            versions[i] = save(tape, <Node>nodes[i], operands[i]) if checked else saved_version(operands[i])
    node.saved_more = (values, versions, extra, seal(op, extra))
    return 0


cdef uint32_t save(Tape tape, Node n, object t) except? 4294967295:
    """The version under which `t` is saved; what `handle` has checked is not asked again."""
    return n.version if tape.optimize and not n.flags & EXPOSED else saved_version(t)


cdef uint32_t saved_version(object t) except? 4294967295:
    """The version of a tensor about to be saved; an inference tensor cannot be."""
    if ao_is_inference(is_inference, t):
        from autograd_opt.graph.refusals import inference_saved
        raise inference_saved()
    return version_of(t)


cdef object device_of(Op op, list nodes, object r):
    """The device of a result: its first operand's, but for operators that move values."""
    cdef Node n
    if not op.flags & MOVES:
        for n in nodes:
            if n is not None and n.device is not None:
                return n.device
    return same_device(ao_get(get_device, r))


cdef tuple seal(Op op, object extra):
    """The versions of what a kernel with several outputs saves: the user sees that memory, and may write it."""
    if extra is None or op.kernel is None or not op.flags & MULTI:
        return None
    return tuple([(t, version_of(t)) for t in (extra if isinstance(extra, (tuple, list)) else (extra,))
                  if isinstance(t, Tensor)])


cdef int pack_saved(Tape tape, Node node, object r) except -1:
    """Hand everything that the node's rules save to the saved-tensor hooks that are on.

    Such a node is never merged: its hooks are part of what it does.
    """
    cdef Py_ssize_t i
    cdef object hooks = innermost_hooks()
    node.flags |= NO_MERGE
    if hooks is None or not node.flags & REQUIRES_GRAD or node.op.flags & VARIADIC and node.op.joint is not None and not node.op.need0:
        return 0
    try:
        if node.saved_more is None:
            for i in saving_order(node.op.name, 2):
                if i == 0 and node.x0 is not None and not node.flags & SCALAR0:
                    node.x0 = packed(hooks, node.x0, node.in0, False)
                elif i == 1 and node.x1 is not None and not node.flags & SCALAR1:
                    node.x1 = packed(hooks, node.x1, node.in1, False)
        else:
            values, versions, extra, _ = node.saved_more
            values = list(values)
            for i in saving_order(node.op.name, len(values)):
                if node.more[i] is not None and values[i] is not None:
                    values[i] = packed(hooks, values[i], node.more[i], False)
            node.saved_more = (values, versions, pack_extra(hooks, extra), None)
        if node.flags & NEEDS_ANS and r is not None:
            node.value = packed(hooks, r, node, True)
            node.flags |= PACKED
    except BaseException:
        tape.unlink(node)
        raise
    return 0


cdef object record_outputs(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=None):
    """One node for the call, and one `output` node for each of its tensors."""
    cdef Node parent, node
    cdef Py_ssize_t i
    if not isinstance(r, (tuple, list)):
        if req and isinstance(r, Tensor):
            from autograd_opt.graph.refusals import unsupported_result
            raise unsupported_result(r, op.name)
        return r
    parent = fill(tape, op, nodes, operands, attrs, req, None, extra)
    if not tape.plain:
        pack_saved(tape, parent, None)
    parent.vn = fresh_vn()
    if not req:
        learn(parent, None)
    if tape.sources:
        current_source(parent)
    metas = []
    tape.append(parent)
    parent.live = 1
    for i, t in enumerate(r):
        if type(t) is not Tensor and (type(t) is not CustomTensor or t._node is not None):
            metas.append(None)
            continue
        node = output_of(tape, parent, i, t, req)
        if not (node.dtype.is_floating_point or node.dtype.is_complex):
            metas.append((node.shape, node.dtype, node.device))
            tape.decrement(parent)               # torch holds no history by an index either
            continue
        if op.flags & VIEW:
            node.view = True
        node.code, node.lasti = parent.code, parent.lasti
        metas.append((node.shape, node.dtype, node.device))
        attach(tape, node, t)
    parent.shape = tuple(metas)
    tape.decrement(parent)
    return r


cdef Node output_of(Tape tape, Node parent, Py_ssize_t i, object t, bint req):
    """The node of output `i` of a call: the identity of one part of it."""
    cdef Node node = new_node(OUTPUT_OP)
    cdef size_t switch = enter(tape)
    try:
        node.device = same_device(ao_get(get_device, t))
        describe(tape, node, t, req)
    finally:
        leave(tape, switch)
    node.attrs = {"i": i}
    node.in0 = parent
    parent.live += 1
    node.vn = fresh_vn()
    return node


def output_nodes(Node parent):
    """The nodes of a call's results that are there, by their numbers."""
    cdef Tape tape = active_tape()
    cdef Py_ssize_t at = parent.index + 1
    cdef Node node
    cdef dict found = {}
    while tape is not None and at < tape.n:
        node = <Node>tape.nodes[at]
        if node.op is not OUTPUT_OP or node.in0 is not parent:
            break
        found[node.attrs["i"]] = node
        at += 1
    return found


def results_of(Node parent, values):
    """`values`, which a call has made, as a recorded run reads them: what comes to one goes on at its node."""
    from autograd_opt.graph.tensor import connected
    cdef Tape tape = active_tape()
    cdef dict nodes = output_nodes(parent)
    cdef list found = []
    cdef size_t switch
    for i, t in enumerate(values):
        if t is None or i in nodes:
            found.append(None if t is None else connected(t, nodes[i]))
            continue
        switch = enter(tape)
        try:
            t = ao_method0(detach_method, t)     # the user has dropped the result, and its node is gone
        finally:
            leave(tape, switch)
        attach(tape, output_of(tape, parent, i, t, True), t)
        found.append(t)
    return found


cdef bint any_requires(list nodes) except -1:
    """True if one of these nodes requires grad."""
    cdef Node n
    for n in nodes:
        if n is not None and n.flags & REQUIRES_GRAD:
            return True
    return False


cdef list nodes_of(Tape tape, tuple operands):
    """Return the nodes of operands, None where one is no tensor."""
    with private.DisableTorchFunction():
        return [handle(tape, t) if isinstance(t, Tensor) else None for t in operands]


def record_node(Op op, tuple operands, dict attrs, r, bint requires_grad, extra=None):
    """Attach a node for `op` to the tensor `r`, computed already; returns the node.

    `extra` is what a VARIADIC operator saves beside its operands.
    """
    cdef Tape tape = tape_here()
    cdef list nodes = nodes_of(tape, operands)
    cdef Node node = fill(tape, op, nodes, operands, attrs, requires_grad, r, extra)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return node


def record_multi(Op op, tuple operands, dict attrs, outputs, bint requires_grad, extra=None):
    """Attach one node and its `output` nodes to the tensors in `outputs`."""
    cdef Tape tape = tape_here()
    cdef list nodes = nodes_of(tape, operands)
    return record_outputs(tape, op, nodes, operands, attrs, requires_grad, outputs, extra)


def record_write(Op op, list nodes, tuple operands, dict attrs, target, extra=None, versions=None):
    """Move `target`, whose memory has been written already, to a node of its own.

    `nodes` are the operands' nodes from before the write, `versions` the versions of the
    operands then: one that shares the target's memory is found to be written at backward.
    Returns the new node.
    """
    cdef Tape tape = tape_here()
    cdef Node node = fill(tape, op, nodes, operands, attrs, any_requires(nodes), target, extra)
    earlier_versions(node, versions)
    if not tape.plain:
        pack_saved(tape, node, target)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    release_handle(tape, target)
    if attach(tape, node, target) == 0 and ao_is_view(target):
        node.view = True
    return node


def record_writes(Op op, list nodes, tuple operands, dict attrs, list targets, extra=None):
    """`record_write` for an operation with several outputs."""
    cdef Tape tape = tape_here()
    for t in targets:
        release_handle(tape, t)
    record_outputs(tape, op, nodes, operands, attrs, True, targets, extra)
    for t in targets:
        if ao_is_view(t):
            t._node.view = True


cdef int earlier_versions(Node node, versions) except -1:
    """Of every operand but the written one, the version from before the write."""
    if versions is None:
        return 0
    if node.saved_more is not None:
        node.saved_more[1][1:] = list(versions[1:])
    elif len(versions) > 1:
        node.v1 = versions[1]
    return 0


def record_value(Op op, list nodes, tuple operands, dict attrs, value, extra=None, versions=None):
    """A node whose value no tensor of the user's shows: the written part of a base."""
    cdef Tape tape = tape_here()
    cdef Node node = fill(tape, op, nodes, operands, attrs, True, value, extra)
    earlier_versions(node, versions)
    if not tape.plain:
        pack_saved(tape, node, value)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    if node.flags & NEEDS_ANS and not node.flags & PACKED:
        node.value = value.detach()
    tape.append(node)
    return node


cdef int copied_operands(Tape tape, object a, object b) except -1:
    """Which operands of a product torch copies, as their leading axes cannot be seen as one: 1 and 2, added.

    Those of two stacks of matrices; or of a stack and a matrix, where a gradient of the matrix is asked for.
    """
    cdef tuple first, second
    cdef Py_ssize_t n
    if not is_tensor(a) or not is_tensor(b) or not ao_plain(a) or not ao_plain(b) or ao_contiguous(a) and ao_contiguous(b):
        return 0
    first, second = tuple(shape_of(a)), tuple(shape_of(b))
    n = len(second)
    if len(first) < 3 or n == 0 or not is_float(ao_dtype(a)) or not grad_on():
        return 0
    if n < 3:
        return tracked(tape, b) and scattered(first, a, 1)
    if first[:len(first) - 2] != second[:n - 2] or not tracked(tape, a) and not tracked(tape, b):
        return 0
    return scattered(first, a, 2) + 2 * scattered(second, b, 2)


cdef bint scattered(tuple sizes, object t, Py_ssize_t last) except -1:
    """True if the axes of `t` but for the last few cannot be seen as one without a copy."""
    cdef Py_ssize_t i, step = -1
    if ao_contiguous(t):
        return False
    strides = ao_method(stride_method, t, ())
    for i in range(len(sizes) - last - 1, -1, -1):
        if sizes[i] != 1:
            if step != -1 and strides[i] != step:
                return True
            step = sizes[i] * strides[i]
    return False
