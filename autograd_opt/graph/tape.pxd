"""Tape: nodes in record order, leaves, and how long saved tensors live."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from autograd_opt.graph.merges cimport Merges
from autograd_opt.graph.node cimport Node, TapeBase
from autograd_opt.graph.retention cimport Retention
from autograd_opt.graph.thread_state cimport active
from autograd_opt.graph.unrecorded_writes cimport UnrecordedWrites
from autograd_opt.graph.value_table cimport ValueTable

cdef enum:
    RECENT = 32                  # pairs of leaves that are found without asking a dictionary, by their address

cdef struct Recent:
    PyObject *tensor             # borrowed, both, from `leaves`
    PyObject *node

cdef class Tape(TapeBase):
    cdef PyObject **nodes        # owned
    cdef ValueTable table
    cdef readonly Retention retention
    cdef readonly Merges merges
    cdef Py_ssize_t n, capacity, floor
    cdef public bint optimize, consumed, sources
    cdef public Py_ssize_t running   # backward runs under way: record numbers must not move
    cdef public Py_ssize_t runs      # backward runs so far
    cdef public Py_ssize_t fixed     # others that hold record numbers
    cdef bint moved              # the last value handed out again was the kept one itself, not a clone
    cdef bint layouts            # a value was computed twice for its strides
    cdef public bint stands      # has a transform run here on what stands in for tensors of the graph?
    cdef readonly list histories # nodes of leaves that torch has computed: their gradients go on in torch's graph
    cdef public bint heard       # leaves have hooks: they see the order in which leaves get their gradients
    cdef dict casts              # (id(leaf), grad mode) -> the leaf and its cast by autocast
    cdef object cast_seal        # dies when torch forgets its own
    cdef bint sweeping, guarded
    cdef int64_t modes           # how many torch-function modes there were when its context began, its own the innermost
    cdef PyObject **trash        # owned: what `drain` frees
    cdef Py_ssize_t thrown, room # how much is there, and how much has room
    cdef dict abroad             # id(tensor of another graph) -> (weak reference, the node that stands for it)
    cdef dict leaves             # id(tensor) -> leaf Node; written by the two functions below alone
    cdef Recent *recent          # 2 * RECENT of them
    cdef int forget_recent(self, PyObject *t) except -1
    cdef public Py_ssize_t hits, recomputed, epoch
    cdef readonly Py_ssize_t plain_hits  # those of `hits` that no gradient follows
    cdef readonly Py_ssize_t saved_work  # elements that were not read or written thanks to `hits`
    cdef readonly Py_ssize_t keyed       # records whose value was looked up
    cdef readonly Py_ssize_t planned     # records that runs have asked a plan for
    cdef readonly UnrecordedWrites writes
    cdef public dict seeds       # cotangents of scalars, by shape, dtype and device
    cdef public dict exposed     # storage -> storage object, of memory visible outside torch
    cdef int missed(self, Node node) except -1
    cdef public Py_ssize_t reused_bytes
    cdef readonly Py_ssize_t dropped # records that are in the array no more
    cdef public Py_ssize_t executed  # nodes, by runs that keep the graph for another
    cdef public object graph     # weak reference to the AutogradGraph
    cdef int append(self, Node node) except -1
    cdef Node leaf_of(self, PyObject *t)
    cdef int add_leaf(self, PyObject *t, Node node) except -1
    cdef int drop_leaf(self, PyObject *t, Node node) except -1
    cdef void decrement(self, Node node) noexcept
    cpdef int let_go_unread(self, nodes) except -1
    cdef void let_go(self, Node node) noexcept
    cdef void release(self, Node node) noexcept
    cdef void throw(self, object what) noexcept
    cdef void drain(self) noexcept
    cdef void unlink(self, Node node) noexcept
    cdef int compact_if_due(self) except -1
    cpdef int clear(self) except -1
    cpdef bint shares_exposed(self, object t) except -1
    cdef int resolve(self, dict captured) except -1
    cdef int lead(self, Node node, Node target) except -1
    cdef int keep_number(self, Node node, object r) except -1

cdef class Held:
    cdef list nodes

cdef inline Tape active_tape():
    """The tape that records in this thread, or would if it were not paused; None without one."""
    cdef PyObject *tape = active()
    return None if tape == NULL else <Tape>tape

cdef Tape tape_here()
cdef object forgetter(Tape tape, PyObject *key, Node node)
