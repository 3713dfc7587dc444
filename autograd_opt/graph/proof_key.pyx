"""What a proof sees of a recorded graph: all that the passes see, and more."""

from math import isfinite

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memset

from autograd_opt.graph.node cimport (
    EXPOSED, LEAF, NO_MERGE, PINNED, REQUIRES_GRAD, SCALAR0, SCALAR1, Node, Op,
)
from autograd_opt.graph.structure cimport ALIKE, Structure

cdef enum:
    HOOKED = 1 << 30                     # in the first word of a node, beside its flags
    UNREAD = -2                          # in place of the number of attributes
    SEEN = -3                            # in front, where the rows of `structure_of` have a node
    SEEN_LOOSELY = -4                    # the same where some numbers are left out
    ANY = -5                             # in place of a number

cdef frozenset WITH_A_NUMBER = frozenset("add sub rsub mul div".split())
"""Operators of which another number makes another operation of the same types, whatever the numbers are."""


cdef Py_ssize_t place_in(list nodes, object node) except -2:
    """Position of a node, given itself or by its position; -1 where it is not in the list."""
    cdef Py_ssize_t k
    if isinstance(node, Node):
        k = (<Node>node).index
        return k if 0 <= k < len(nodes) and nodes[k] is node else -1
    if type(node) is not int:
        return -1
    k = node
    return k if 0 <= k < len(nodes) else -1


def loose_numbers(list nodes, leader):
    """1 at the nodes whose number no proof by premises reads; None where there are none.

    Such a node is the only one that computes this with the number, and is not merged: it is alone in its class, with
    this number or another one.  So it has to be no number that changes nothing, or makes nothing of its operand.
    """
    cdef Node node
    cdef Py_ssize_t i
    cdef dict met = {}
    cdef bytearray loose = bytearray(len(nodes))
    for i in range(len(nodes)):
        node = <Node?>nodes[i]
        if not node.flags & (SCALAR0 | SCALAR1) or node.attrs is not None or node.op.name not in WITH_A_NUMBER:
            continue
        number = node.x0 if node.flags & SCALAR0 else node.x1
        if type(number) is not float or not isfinite(number) or number in (0.0, 1.0, -1.0):
            continue
        met.setdefault((node.op.id, number, node.shape, node.dtype), []).append(i)
    for same in met.values():
        if len(same) == 1 and leader[same[0]] == same[0] and (<Node>nodes[same[0]]).leader is None:
            loose[same[0]] = 1
    return loose if 1 in loose else None


cdef bint described(Structure s, Node node, tuple places, object number_of, bint loose) except -1:
    """Append numbers among the operands and attributes; False where the row has no word for one."""
    cdef Py_ssize_t k
    if loose:
        s.push(ANY)
        return True
    try:
        s.push(0 if node.attrs is None else len(<dict>node.attrs))
        if node.flags & SCALAR0:
            s.value(node.x0)
        if node.flags & SCALAR1:
            s.value(node.x1)
        if node.attrs is not None:
            for name, v in (<dict>node.attrs).items():
                s.value(name)
                s.value(v)
        if len(places) > 2:
            for k in range(len(places)):
                if places[k] is None and (k >= len(node.op.operands) or node.attrs is None
                                          or node.op.operands[k] not in node.attrs):
                    s.value(number_of(node, k))
    except (TypeError, LookupError, RecursionError):
        return False
    return True


cdef bint same_operator(Structure s, Op op, dict ops) except -1:
    """Append the defaults of an operator that is new in this row; False where another one has its number."""
    found = ops.get(op.id)
    if found is not None:
        return found is op
    ops[op.id] = op
    s.push(len(op.attributes))
    for name, v in op.attributes.items():
        s.value(name)
        s.value(v)
    return True


cdef bint before(Structure s, list nodes, Py_ssize_t i, Node operand) except -1:
    """Append the position of an operand; False where it does not stand before node i in the list."""
    if operand is None:
        s.push(-1)
        return True
    if not 0 <= operand.index < i or nodes[operand.index] is not operand:
        return False
    s.push(operand.index)
    return True


cdef bint see(Structure s, list nodes, Py_ssize_t i, dict ops, PyObject **latest, object shape, bint led,
              object reading, bint loose) except -1:
    """Append node i; False where the row cannot hold all that a proof reads of it."""
    cdef Node node, other
    cdef Op op
    cdef Py_ssize_t start
    if not isinstance(nodes[i], Node):
        return False
    node = <Node>nodes[i]
    op = node.op
    if node.index != i:
        return False
    if latest[op.id & 255] != <PyObject *>op:
        if not same_operator(s, op, ops):
            return False
        latest[op.id & 255] = <PyObject *>op
    s.push(<int64_t>op.id << 32 | (0 if node.hooks is None else HOOKED) | (
        node.flags & (LEAF | REQUIRES_GRAD | PINNED | NO_MERGE | EXPOSED | SCALAR0 | SCALAR1)))
    s.push(<int64_t><size_t><PyObject *>node.dtype)
    s.push(<int64_t><size_t><PyObject *>node.device)
    if node.more is None:
        s.push(-1)
        if not (before(s, nodes, i, node.in0) and before(s, nodes, i, node.in1)):
            return False
    else:
        s.push(len(node.more))
        for other in node.more:
            if not before(s, nodes, i, other):
                return False
    if led:
        other = node.leader
        s.push(-1 if other is None else place_in(nodes, other))
    if node.shape is shape:
        s.push(ALIKE)
    else:
        s.value(node.shape)
    start = s.n
    if not described(s, node, () if node.more is None else node.more, reading.number_of, loose):
        if reading.readable(node):
            return False
        s.n = start
        s.push(UNREAD)
    return True


def seen_by_proofs(list nodes, roots, leaves, bint led, object reading, bytearray loose=None):
    """Everything that passes and proofs read of recorded nodes; None where a row cannot hold it.

    A row, and the operators with their rules and meanings.

    With `led`, leaders are read from the nodes; where `loose` is 1, a node's number is not.  `reading` is the module
    that reads nodes for proofs: what it cannot read of an attribute, it does not see.  Devices are told apart by
    address, which `same_device` keeps for ever.
    """
    cdef Structure s = Structure(len(nodes))
    cdef Py_ssize_t i, k
    cdef Op op
    cdef dict ops = {}
    cdef PyObject *latest[256]
    cdef object shape = None
    memset(latest, 0, sizeof(latest))
    try:
        s.push(SEEN if loose is None else SEEN_LOOSELY)
        for i in range(len(nodes)):
            if not see(s, nodes, i, ops, latest, shape, led, reading, loose is not None and loose[i]):
                return None
            shape = (<Node>nodes[i]).shape
        for wanted in (leaves, roots):
            if wanted is None:
                s.push(-1)
                continue
            s.push(len(wanted))
            for x in wanted:
                k = place_in(nodes, x)
                if k < 0:
                    return None
                s.push(k)
    except Exception:                    # whatever is wrong with a graph is said by who verifies it
        return None
    return s, tuple([(op, *op.vjps, op.meaning) for op in ops.values()])
