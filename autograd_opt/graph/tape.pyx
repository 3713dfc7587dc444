"""Tape: nodes in record order, leaves, and how long saved tensors live.

A `Tape` owns its nodes in record order; a tensor owns only its own node.
"""

import weakref

import torch

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.weakref cimport PyWeakref_NewRef
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_memory, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.blocks cimport give, grown, take
from autograd_opt.graph.late_bases cimport any_late
from autograd_opt.graph.node cimport *
from autograd_opt.graph.node_classes cimport shown
from autograd_opt.graph.retention cimport nbytes
from autograd_opt.graph.thread_state cimport forget_active, recording
from autograd_opt.graph.unrecorded_writes cimport UnrecordedWrites
cimport cython

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)

ao_use_reads(reads_address())
cdef object STRIDED_LAYOUT = torch.strided
cdef int64_t _tape_ids = 0


cdef Tape tape_here():
    """The tape that records now; an error where none does."""
    cdef PyObject *tp = recording()
    if tp == NULL:
        from autograd_opt.errors import OutsideGraphError, at
        raise OutsideGraphError(at("an operation was to be recorded while no AutogradGraph records in this thread"))
    return <Tape>tp


cdef class Forgetter:
    """What to do when the constant behind a leaf node dies."""
    cdef int64_t tape
    cdef PyObject *key
    cdef Node node

    def __call__(self, _):
        tape = tape_by_id(self.tape)
        if tape is not None:
            (<Tape>tape).drop_leaf(self.key, self.node)


cdef object forgetter(Tape tape, PyObject *key, Node node):
    cdef Forgetter made = Forgetter.__new__(Forgetter)
    made.tape, made.key, made.node = tape.id, key, node
    return made


cdef bint compacts_always = False


def compact_always(bint on):
    """Compact at every record, which finds what is dropped too early; returns what was set before.  For tests."""
    global compacts_always
    before, compacts_always = compacts_always, on
    return before


@cython.final
cdef class Held:
    """Keeps nodes and what they have saved alive while a call is open whose operands they are."""

    def __init__(self, nodes):
        self.nodes = [n for n in nodes if n is not None]

    def __enter__(self):
        cdef Node node
        for node in self.nodes:
            node.live += 1

    def __exit__(self, *_):
        cdef Node node
        for node in self.nodes:
            tape = tape_by_id(node.tape_id)
            if tape is not None:
                (<Tape>tape).decrement(node)


cdef enum:
    FIRST = 64                           # nodes for which there is room at first


@cython.no_gc_clear
cdef class Tape:
    """The staging area of one graph: nodes in record order, leaves, value table."""

    def __cinit__(self, bint optimize=False, bint sources=True, Py_ssize_t allowance=16 << 20):
        global _tape_ids
        _tape_ids += 1
        self.id = _tape_ids
        self.optimize = optimize
        self.sources = sources
        self.plain = True
        self.late = any_late()
        self.capacity = FIRST
        self.nodes = <PyObject **>take(FIRST * sizeof(PyObject *))
        self.recent = <Recent *>take(2 * RECENT * sizeof(Recent))
        memset(self.recent, 0, 2 * RECENT * sizeof(Recent))
        self.leaves = {}
        self.exposed, self.seeds, self.abroad = {}, {}, {}
        self.writes = UnrecordedWrites.__new__(UnrecordedWrites)
        tapes[self.id] = <size_t><PyObject *>self
        self.table = ValueTable.__new__(ValueTable)
        self.retention = Retention.__new__(Retention, allowance)
        self.merges = Merges.__new__(Merges)
        if optimize:
            self.table.allocate(32)

    def __dealloc__(self):
        cdef Py_ssize_t i
        tapes.pop(self.id, None)
        forget_active(<PyObject *>self)
        for i in range(self.n):
            Py_XDECREF(self.nodes[i])
        give(self.nodes, self.capacity * sizeof(PyObject *))
        give(self.trash, self.room * sizeof(PyObject *))
        give(self.recent, 2 * RECENT * sizeof(Recent))

    def __len__(self):
        return self.n

    def node(self, Py_ssize_t i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return <object>self.nodes[i]

    def snapshot(self):
        """All nodes in record order, as a list."""
        return [<object>self.nodes[i] for i in range(self.n)]

    cdef int append(self, Node node) except -1:
        cdef size_t size = self.capacity * sizeof(PyObject *)
        if self.n == self.capacity:
            self.nodes = <PyObject **>grown(self.nodes, size, 2 * size)
            self.capacity *= 2
        node.tape_id = self.id
        node.index = self.n
        Py_INCREF(node)
        self.nodes[self.n] = <PyObject *>node
        self.n += 1
        if self.n > self.floor:
            self.compact_if_due()
        return 0

    cdef Node leaf_of(self, PyObject *t):
        """The node of the leaf at this address; None where it has none here."""
        cdef Recent *places = &self.recent[2 * ((<size_t>t >> 5) % RECENT)]
        cdef PyObject *found
        if places[0].tensor == t:
            return <Node>places[0].node
        if places[1].tensor == t:
            return <Node>places[1].node
        found = PyDict_GetItemWithError(self.leaves, <size_t>t)
        if found == NULL:
            return None
        places[1] = places[0]
        places[0].tensor, places[0].node = t, found
        return <Node>found

    cdef int forget_recent(self, PyObject *t) except -1:
        cdef Recent *places = &self.recent[2 * ((<size_t>t >> 5) % RECENT)]
        for i in range(2):
            if places[i].tensor == t:
                places[i].tensor = NULL
        return 0

    cdef int add_leaf(self, PyObject *t, Node node) except -1:
        """Let `node` be the one of the leaf at this address."""
        self.forget_recent(t)
        self.leaves[<size_t>t] = node
        return 0

    cdef int drop_leaf(self, PyObject *t, Node node) except -1:
        """Let the leaf at this address have no node, where it has this one, or any for None."""
        cdef Node known = self.leaf_of(t)
        if known is not None and (node is None or known is node):
            self.forget_recent(t)
            del self.leaves[<size_t>t]
        return 0

    cpdef bint shares_exposed(self, object t) except -1:
        """Does `t` lie in memory that is visible outside torch?"""
        cdef size_t memory
        if not self.exposed:
            return False
        memory = <size_t>ao_memory(t)
        if memory != 0:
            return memory in self.exposed
        return t.layout is STRIDED_LAYOUT and private.storage_id(t.untyped_storage()) in self.exposed

    def escape(self, t):
        """The memory of `t` can change unseen from now on."""
        self.changes += 1
        if t.layout is STRIDED_LAYOUT:
            storage = t.untyped_storage()
            self.exposed[private.storage_id(storage)] = storage

    def leaf_items(self):
        """(node, tensor) of every leaf whose tensor is alive."""
        return [(node, node.tensor) for node in list(self.leaves.values()) if node.tensor is not None]

    # Lifetimes -----------------------------------------------------------------------
    cdef void release(self, Node node) noexcept:
        """Move everything the node saved to the trash."""
        if node.x0 is not None and not node.flags & SCALAR0:
            self.throw(node.x0)
            node.x0 = None
        if node.x1 is not None and not node.flags & SCALAR1:
            self.throw(node.x1)
            node.x1 = None
        if node.saved_more is not None and node.op is not ELSEWHERE_OP:
            self.throw(node.saved_more)
            node.saved_more = None
        if node.value is not None and node.flags & NEEDS_ANS and not node.flags & KEPT:
            self.throw(node.value)
            node.value = None
            node.spare = None
        if node.flags & COUNTED and node.tensor == NULL:
            self.retention.uncount(node)

    cdef void decrement(self, Node node) noexcept:
        node.live -= 1
        if node.live == 0:
            if not node.flags & LEAF:
                self.throw(node)
                self.drain()
            elif node.flags & REQUIRES_GRAD and not is_weak(node.value):
                self.let_go(node)

    cpdef int let_go_unread(self, nodes) except -1:
        """Hold those of the nodes that are leaves which no record reads as a finished run of torch's does: not at all."""
        cdef Node node
        for node in nodes:
            if node is not None and node.live == 0 and node.flags & LEAF and node.flags & REQUIRES_GRAD \
                    and not is_weak(node.value):
                self.let_go(node)
        return 0

    cdef void let_go(self, Node node) noexcept:
        """A leaf that no living record reads is its user's alone: its next use takes hold of it again."""
        cdef object t = node.value
        if t is None or self.leaf_of(<PyObject *>t) is not node:
            return
        if node.x1 is None:
            node.x1 = PyWeakref_NewRef(t, forgetter(self, <PyObject *>t, node))
        node.value = node.x1
        if Py_REFCNT(t) == 1:            # nobody else has it: its end may run code of the user's
            self.throw(t)
            t = None
            self.drain()

    cdef void unlink(self, Node node) noexcept:
        """The node no longer keeps its operands alive."""
        if node.more is not None:
            for other in node.more:
                if other is not None:
                    self.decrement(<Node>other)
        else:
            if node.in0 is not None:
                self.decrement(node.in0)
            if node.in1 is not None:
                self.decrement(node.in1)
        if node.leader is not None:
            self.decrement(node.leader)

    cdef void throw(self, object what) noexcept:
        """Let go of `what` when the trash is next drained."""
        cdef size_t size = self.room * sizeof(PyObject *)
        if self.thrown == self.room:
            try:
                self.trash = <PyObject **>(grown(self.trash, size, 2 * size) if size else take(32 * sizeof(PyObject *)))
            except MemoryError:
                return                       # it goes at once
            self.room = 2 * self.room or 32
        Py_INCREF(what)
        self.trash[self.thrown] = <PyObject *>what
        self.thrown += 1

    cdef void drain(self) noexcept:
        """Free what is in the trash; a node there is dead.  Never recursive."""
        cdef Node node
        cdef object item
        if self.sweeping:
            return
        self.sweeping = True
        while self.thrown:
            self.thrown -= 1
            item = <object>self.trash[self.thrown]
            Py_DECREF(item)
            if type(item) is Node or not ordinary(item) and isinstance(item, Node):      # by its kind, if it was shown
                node = <Node>item
                if node.live == 0 and not node.flags & DEAD:
                    node.flags |= DEAD
                    if node.view is not None:
                        self.throw(node.view)
                        node.view = None
                    if node.hooks is not None:
                        self.throw(node.hooks)
                        node.hooks = None
                    if not node.flags & FREED or node.saved_more is not None:
                        self.release(node)
                    self.unlink(node)
                node = None
            item = None
        self.sweeping = False

    def start_counting(self, Py_ssize_t expected):
        """From now on, know the bytes that the program would have alive without any reuse.

        Views count for nothing, cotangents of runs that are not recorded neither.
        `expected` is the most that such a program is known to have alive at once.
        """
        cdef Py_ssize_t i
        cdef Node node
        self.retention.counting, self.retention.expected = True, expected
        for i in range(self.n):
            node = <Node>self.nodes[i]
            if node.tensor != NULL or node.value is not None and node.flags & NEEDS_ANS and not node.flags & FREED:
                self.retention.count(node)

    cdef int missed(self, Node node) except -1:
        """A known value has to be computed again because it was not kept: allow to keep more.

        So a program without repeats keeps nothing, and its peak of memory is torch's.
        """
        self.recomputed += 1
        self.retention.missed_bytes += nbytes(node.shape, node.dtype)
        if not self.retention.counting and not self.retention.advance:
            self.start_counting(0)
        return 0

    def set_leaders(self, leader):
        """Merge node i into node leader[i]; where they are equal, keep node i apart.

        A leader that is dead or spent can no longer be differentiated: the first member of
        its class that can takes its place.  Returns how many nodes that require grad had no leader before.
        """
        cdef Py_ssize_t i, found = 0
        cdef Node node, target
        cdef const int[::1] view = leader
        cdef dict heirs = {}
        for i in range(min(self.n, view.shape[0])):
            node = <Node>self.nodes[i]
            target = None
            if view[i] != i:
                target = <Node>self.nodes[view[i]]
                if target.flags & (DEAD | FREED):
                    target = heirs.get(view[i])
                    if target is None and not node.flags & (DEAD | FREED):
                        heirs[view[i]] = node
                found += target is not None and node.leader is None and node.flags & (DEAD | REQUIRES_GRAD) == REQUIRES_GRAD
            self.lead(node, target)
        self.changes += 1
        self.planned += self.n
        return found

    cdef int lead(self, Node node, Node target) except -1:
        cdef Node old = node.leader
        if old is target:
            return 0
        if node.flags & DEAD:
            return 0                     # its leader has been let go already
        node.flags &= ~<uint32_t>MERGED
        if target is not None:
            target.live += 1
        node.leader = target
        if old is not None:
            self.decrement(old)
        return 0

    cdef int resolve(self, dict captured) except -1:
        """Decide which nodes hand their cotangent to their leader in the next run."""
        return self.merges.resolve(self.nodes, self.n, self.changes, captured)

    cdef int keep_number(self, Node node, object r) except -1:
        """Give `node`, just recorded, the number of its operand if `r` is that, bit for bit and in its strides.

        What is found by this number later looks to the user as if it had been computed from `r`.
        """
        cdef Node at = operand_of(node)
        if at is None or (node.flags | at.flags) & (NO_MERGE | EXPOSED) or at.dtype is not node.dtype \
                or at.device is not node.device or (at.flags ^ node.flags) & REQUIRES_GRAD or at.shape != node.shape:
            return 0
        if node.op.keeps is not None and node.op.keeps is not True and not node.op.keeps(node):
            return 0
        with private.DisableTorchFunction():
            value = at.value if at.tensor == NULL else <object>at.tensor
            if isinstance(value, weakref.ref):
                value = value()
            if value is None or version_of(value) != at.version or r.stride() != value.stride():
                return 0
        node.flags |= SAME
        node.vn = at.vn
        self.lead(node, at.leader if at.leader is not None and at.leader.vn == at.vn else at)
        return 0

    cdef int compact_if_due(self) except -1:
        """Called when the array grows beyond `floor`."""
        if self.running or self.fixed:   # somebody holds record numbers
            if not compacts_always:
                self.floor = self.n + (self.n >> 1) + 64
        elif self.consumed or self.n > (1 << 20) or compacts_always:
            from autograd_opt.graph.compaction import compact
            compact(self, compacts_always)
        else:
            self.floor = min(2 * self.n + 64, (1 << 20) + 1) if self.n < (1 << 20) else 2 * self.n
        return 0

    cpdef int clear(self) except -1:
        """Release everything but the leaves' own tensors."""
        cdef Py_ssize_t i, n = self.n
        cdef Node node
        cdef PyObject **old = self.nodes
        cdef size_t room = self.capacity * sizeof(PyObject *)
        if n == 0:
            old = NULL                       # the array stays
        else:
            self.nodes, self.capacity, self.n = <PyObject **>take(FIRST * sizeof(PyObject *)), FIRST, 0
        self.sweeping = True                 # nothing goes before all is cleared: finalizers run code that may record
        for i in range(n):
            node = <Node>old[i]
            if node.tensor != NULL and node.op.named:
                shown(node)                  # while the operands that its name depends on are there
            node.index = -1
            if node.x0 is not None and not node.flags & SCALAR0:
                self.throw(node.x0)
                node.x0 = None
            if node.x1 is not None and not node.flags & SCALAR1:
                self.throw(node.x1)
                node.x1 = None
            if node.value is not None:
                self.throw(node.value)
                node.value = None
            if node.spare is not None:
                self.throw(node.spare)
                node.spare = None
            if node.saved_more is not None or node.view is not None or node.hooks is not None:
                self.throw((node.saved_more, node.view, node.hooks))
                node.saved_more = node.hooks = None
                if type(node.view) is Node:      # else what says that it is one, which its tensor goes on being
                    node.view = None
            node.in0 = node.in1 = node.leader = None
            node.more = None
            node.flags = (node.flags | FREED) & ~<uint32_t>COUNTED
            node.holder = NULL
            Py_XDECREF(node.cotangent)
            node.cotangent = NULL
        self.exposed.clear()
        self.seeds.clear()
        self.writes.clear()
        self.abroad.clear()
        self.casts = self.cast_seal = None
        self.retention.clear()
        memset(self.recent, 0, 2 * RECENT * sizeof(Recent))
        self.leaves.clear()
        self.table.clear()
        self.consumed = False
        self.floor = 0
        while self.thrown:
            self.thrown -= 1
            Py_DECREF(<object>self.trash[self.thrown])
        self.sweeping = False
        for i in range(n):
            Py_DECREF(<object>old[i])
        give(old, room)
