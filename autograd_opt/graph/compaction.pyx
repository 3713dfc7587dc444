"""Forget records that nothing needs any more."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t

from autograd_opt.abi.ctorch cimport ao_hold, ao_try_attr, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.leaf_nodes cimport leaf_tensor
from autograd_opt.graph.node cimport *
from autograd_opt.graph.tape cimport Tape

cdef extern from "Python.h":
    Py_ssize_t references "Py_REFCNT"(PyObject *o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef enum:
    KEPT_RECORD = -1                     # instead of a number of references


cdef Py_ssize_t own_references(Node node) except -1:
    """How many references to a leaf's node are its tensor's handle, and what waits for the tensor's end."""
    cdef Py_ssize_t found = is_weak(node.value) or is_weak(node.x1)
    cdef PyObject *t = leaf_tensor(node)
    cdef PyObject *p
    if t != NULL and type(<object>t) is CustomTensor:
        p = ao_try_attr(<object>t, NODE)
        if p != NULL:
            found += p == <PyObject *>node
            Py_DECREF(<object>p)
    return found


def compact(Tape tape, bint always):
    """Forget dead and spent records; what something needs or somebody holds keeps its order, with all below it.

    A call may be open that has looked up its operands and runs code of the user's.  No record
    counts them yet, but they have references that the graph does not account for, as have
    nodes behind a `GradientEdge`, a `ctx` or a frame of a traceback.
    """
    cdef Py_ssize_t i, k = 0, dropped = 0, n
    cdef Py_ssize_t *known
    cdef Node node
    cdef bint by_leaf
    cdef list trash
    tape.retention.forget_values()
    tape.table.clear()
    n = tape.n
    known = <Py_ssize_t *>PyMem_Malloc((n + 1) * sizeof(Py_ssize_t))
    if known == NULL:
        raise MemoryError()
    # nothing is made or released before the numbers are right again: finalizers run code that may record
    count_references(tape, known)
    for i in range(n - 1, -1, -1):
        node = <Node>tape.nodes[i]
        if known[i] >= 0:
            by_leaf = node.op is WRITTEN_OP and node.in0 is not None and node.in0.view is node
            if references(tape.nodes[i]) - 2 > known[i] or node.live > by_leaf \
                    or node.flags & TOUCHED and not always:
                known[i] = KEPT_RECORD
            elif by_leaf:                    # its leaf makes another one when it is used again
                node.in0.view = None
                node.in0.live -= 1
                node.in0.flags |= WROTE
        if known[i] == KEPT_RECORD:
            keep_below(tape, node, known)
    for i in range(n):
        node = <Node>tape.nodes[i]
        node.holder = NULL                   # no key finds it any more
        if known[i] == KEPT_RECORD:
            node.flags &= ~<uint32_t>TOUCHED
            node.index = k
            tape.nodes[k] = <PyObject *>node
            k += 1
        else:
            if node.flags & LEAF:
                forget_leaf(tape, node)
            node.index = -1
            (<PyObject **>known)[dropped] = <PyObject *>node
            dropped += 1
    tape.dropped += dropped
    tape.n = k
    tape.floor = 0 if always else 2 * k + 64
    tape.consumed = False
    tape.merges.resolved = 0
    tape.epoch += 1
    tape.merges.twins = tape.merges.merging = 0
    for i in range(k):
        node = <Node>tape.nodes[i]
        node.spare = None
        if node.leader is not None:
            tape.merges.twins += 1
            if node.flags & REQUIRES_GRAD:
                tape.merges.merging += 1
    trash = []
    for i in range(dropped):
        node = <Node>(<PyObject **>known)[i]
        trash.append(node)
        Py_DECREF(node)
    PyMem_Free(known)
    for node in trash:
        node.in0 = node.in1 = None
        node.more = None
        node.leader = None
        node.value = node.spare = None
    return 0


cdef int count_references(Tape tape, Py_ssize_t *known) except -1:
    """For each record, how many references to its node the graph itself holds, besides the array."""
    cdef Py_ssize_t i
    cdef Node node
    cdef PyObject *more
    for i in range(tape.n):
        known[i] = 0
    for i in range(tape.n):
        node = <Node>tape.nodes[i]
        count_reference(tape, node.in0, known)
        count_reference(tape, node.in1, known)
        count_reference(tape, node.leader, known)
        more = <PyObject *>node.more
        if node.more is not None and references(more) == 1:
            for other in node.more:
                count_reference(tape, <Node>other, known)
        if node.flags & LEAF:
            if type(node.view) is Node:
                count_reference(tape, <Node>node.view, known)
            known[i] += own_references(node)
    for other in tape.leaves.values():
        count_reference(tape, <Node>other, known)
    return 0


cdef inline int count_reference(Tape tape, Node node, Py_ssize_t *known) except -1:
    if node is not None and 0 <= node.index < tape.n and tape.nodes[node.index] == <PyObject *>node:
        known[node.index] += 1
    return 0


cdef int keep_below(Tape tape, Node node, Py_ssize_t *known) except -1:
    """The operands of a record that stays, and its leader, stay, too."""
    keep_record(tape, node.in0, known)
    keep_record(tape, node.in1, known)
    keep_record(tape, node.leader, known)
    if node.more is not None:
        for other in node.more:
            keep_record(tape, <Node>other, known)
    return 0


cdef inline int keep_record(Tape tape, Node node, Py_ssize_t *known) except -1:
    if node is not None and 0 <= node.index < tape.n and tape.nodes[node.index] == <PyObject *>node:
        known[node.index] = KEPT_RECORD
    return 0


cdef int forget_leaf(Tape tape, Node node) except -1:
    """The next use of the tensor behind this node registers it anew."""
    cdef PyObject *t = leaf_tensor(node)
    if t == NULL:
        return 0
    tape.drop_leaf(t, node)
    if type(<object>t) is CustomTensor and getattr(<object>t, NODE, None) is node:
        ao_hold(<object>t, NODE, None)
    return 0
