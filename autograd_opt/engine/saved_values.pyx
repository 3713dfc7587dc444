"""Read what a node has saved, and refuse what was written since."""

from libc.stdint cimport uint32_t

from autograd_opt.engine.hot cimport DIV, MUL
from autograd_opt.engine.kernels cimport Tensor
from autograd_opt.graph import refusals
from autograd_opt.graph.node cimport (
    FREED, NEEDS_ANS, ONCE, OVERWRITTEN, PACKED, SCALAR0, SCALAR1, Node, Op, Vjp, awaits, version_of,
)
from autograd_opt.record.saved_tensors cimport Packed


cdef object stale(Node node, int i):
    raise refusals.modified(node, i)


cdef object saved(Node node, int i):
    """The saved value of operand `i`, unchanged since it was recorded."""
    cdef object t
    if node.saved_more is not None:
        values, versions = node.saved_more[0], node.saved_more[1]
        t = values[i]
        if type(t) is Packed:
            return (<Packed>t).value()
        if node.more[i] is not None and t is not None and version_of(t) != versions[i]:
            return stale(node, i)
        return t
    if node.more is not None:            # released: only numbers are left, among the attributes
        return node.attrs.get(node.op.operands[i]) if node.attrs is not None and node.more[i] is None else None
    if i == 0:
        t = node.x0
        if type(t) is Packed:
            return (<Packed>t).value()
        if t is not None and not node.flags & SCALAR0 and version_of(t) != node.v0:
            return stale(node, 0)
    else:
        t = node.x1
        if type(t) is Packed:
            return (<Packed>t).value()
        if t is not None and not node.flags & SCALAR1 and version_of(t) != node.v1:
            return stale(node, 1)
    return t


cpdef object require_unwritten(Node node):
    """Refuse a node of whose saved tensors one was written."""
    cdef Py_ssize_t i
    cdef object t, version
    if node.saved_more is not None:
        for i, (t, version) in enumerate(zip(node.saved_more[0], node.saved_more[1])):
            if node.more[i] is not None and isinstance(t, Tensor) and version_of(t) != version:
                stale(node, i)
    elif isinstance(node.x0, Tensor) and version_of(node.x0) != node.v0:
        stale(node, 0)
    elif isinstance(node.x1, Tensor) and version_of(node.x1) != node.v1:
        stale(node, 1)
    if node.flags & NEEDS_ANS and not node.flags & PACKED and (
            node.flags & OVERWRITTEN or node.tensor != NULL and version_of(<object>node.tensor) != node.version):
        stale(node, -1)
    if node.saved_more is not None and node.saved_more[3] is not None:
        for t, version in node.saved_more[3]:
            if version_of(t) != version:
                stale(node, -1)


cdef object answer(Node node, bint recorded):
    """Return the output of `node`, unchanged; with its handle where the run is recorded."""
    cdef object t
    if node.op.lean and not node.flags & NEEDS_ANS:
        return None
    if node.flags & PACKED:
        if node.value is None:
            raise refusals.freed(node)
        return node.value.value()
    if node.flags & OVERWRITTEN:
        return stale(node, -1)
    if node.tensor != NULL:
        t = <object>node.tensor
        if version_of(t) != node.version:
            return stale(node, -1)
        return t
    t = node.value
    if t is None:
        raise refusals.freed(node)
    if version_of(t) != node.version:
        return stale(node, -1)
    if recorded:
        return revive(node, t)
    return t


cdef object revive(Node node, object t):
    """A tensor for a node whose own tensor the user has dropped."""
    from autograd_opt.graph.tensor import revive as make
    return make(node, t)


cdef bint reads_extra(Op op) except -1:
    """Does a rule read what the call itself has left, as noise, indices or torch's small graph?"""
    if op.joint is not None:
        return 9 in (<Vjp>op.joint).codes
    for vjp in op.vjps:
        if vjp is not None and (9 in (<Vjp>vjp).codes or 12 in (<Vjp>vjp).codes):
            return True
    return False


cdef bint stateless(Node node) except -1:
    """Can a spent node run again because its rules read nothing that was released?"""
    cdef uint32_t mask = 0
    cdef Py_ssize_t i
    cdef Node n
    cdef bint asked = False
    if node.index < 0:
        return False
    if node.op.functions:                # its `ctx` refuses to give what it had saved
        return node.saved_more is not None
    for i, other in enumerate(node.operands):
        n = other
        if n is not None and awaits(node.op, n):
            mask |= node.op.needs(i)
            asked = True
    if asked and (node.op.flags & ONCE and node.flags & FREED or node.saved_more is None and reads_extra(node.op)):
        return False
    if node.op.hot != MUL and node.op.hot != DIV:        # whose number torch saves as a tensor
        for i, other in enumerate(node.operands):
            if other is None and i < 30:
                mask &= ~(<uint32_t>1 << i)  # a number is not released
    return mask == 0


def runs_again(Node node):
    """Can the rules of `node` run, in spite of an earlier run that freed what they had saved?"""
    return not node.flags & FREED or stateless(node)


def node_saved(Node node, int i):
    """The saved value of operand `i` (for verification and introspection)."""
    return saved(node, i)
