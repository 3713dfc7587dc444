"""Views that a rule reads, and lets nobody see."""

from autograd_opt.abi.ctorch cimport ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.node cimport (
    DEAD, EXPOSED, FREED, INNER, LEAF, NO_MERGE, OVERWRITTEN, PINNED, REQUIRES_GRAD, WROTE, CustomTensor, Node, Op, version_of,
)
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.value_table cimport Entry
from autograd_opt.record.arguments cimport grad_on, is_tensor
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.keys cimport key_of
from autograd_opt.record.recorder cimport record

ao_use_reads(reads_address())


cdef object inner_view(Tape tape, Op op, object func, object t):
    """`func(t)` for a rule: the view that was made before, while it is there.

    A view that the user has, or can come to have, is never taken: a hook on it would see the rule's cotangents.
    """
    cdef object r = made_before(tape, op, t) if tape.optimize and is_tensor(t) else None
    if r is None:
        r = record(tape, op, func, (t,), (t,), None)
        if type(r) is CustomTensor:
            (<Node>r._node).flags |= INNER
    return r


cdef object made_before(Tape tape, Op op, object t):
    """The view of `t` that a rule has made, or what `t` itself is such a view of; None where neither is there."""
    cdef size_t switch = enter(tape)
    try:
        return found(tape, op, t)
    finally:
        leave(tape, switch)


cdef object found(Tape tape, Op op, object t):
    """`made_before`, with torch functions switched off."""
    cdef Node n = handle(tape, t), node
    cdef Entry *e
    cdef object r
    if n.flags & INNER and n.op is op and not n.flags & PINNED:
        r = whole_value(n.in0)               # such a view, undone
        if r is not None:
            return r
    e = key_of(tape, op, 1, n, None, None, (t,), None, grad_on() and n.flags & REQUIRES_GRAD != 0, grad_on())
    if e == NULL or e.first == NULL:
        return None
    node = <Node>(<Node>e.first).holder
    if not node.flags & INNER or node.flags & (DEAD | FREED | EXPOSED | NO_MERGE | OVERWRITTEN | PINNED) \
            or node.tensor == NULL or version_of(<object>node.tensor) != node.version:
        return None
    return <object>node.tensor


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
