"""Which values are held only for reuse, and how many bytes of them: a budget in which torch's peak is kept."""

from collections import deque

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t

from autograd_opt.graph.node cimport (
    CLONE, COUNTED, DEAD, FREED, KEPT, LEAF, MULTI, NEEDS_ANS, PURE, SAME, VIEW, Node,
)
cimport cython

cdef Py_ssize_t SMALL = 1 << 20          # bytes alive below which a peak is not worth a kernel

cdef struct Sized:
    PyObject *shape                      # held
    PyObject *dtype                      # which lives as long as torch
    Py_ssize_t bytes

cdef Sized known_sizes[64]               # the latest of each remainder of addresses


cdef Py_ssize_t nbytes(object shape, object dtype) except -1:
    """Bytes of the elements of a tensor; its shape is asked for again and again, mostly as the same object."""
    cdef size_t place = (<size_t><PyObject *>shape >> 4 ^ <size_t><PyObject *>dtype >> 5) % 64
    cdef Sized *known = &known_sizes[place]
    cdef PyObject *former
    cdef Py_ssize_t n
    if known.shape == <PyObject *>shape and known.dtype == <PyObject *>dtype:
        return known.bytes
    n = dtype.itemsize
    for d in <tuple>shape:
        n *= <Py_ssize_t>d
    former = known.shape
    Py_INCREF(shape)
    known.shape, known.dtype, known.bytes = <PyObject *>shape, <PyObject *>dtype, n
    if former != NULL:
        Py_DECREF(<object>former)
    return n


@cython.final
cdef class Retention:
    """The values of one graph that are held only for reuse."""

    def __cinit__(self, Py_ssize_t allowance):
        self.allowance = allowance
        self.ring = deque()

    cdef Py_ssize_t budget(self) noexcept:
        """Bytes that may be held only for reuse: what living clones save, and a small advance.

        Unless the user has fixed it, the advance grows with what had to be computed again for
        want of it, up to `allowance`: a program without repeats then keeps nothing.  And it
        ends where the peak would rise: what the program itself has alive, the advance and the
        output of one operation more stay below the most that it has had alive before, or below
        `SMALL`.  A run that frees the graph gets no advance, for nobody counts its cotangents.
        """
        cdef Py_ssize_t room
        if self.advance:
            return self.saved_bytes + self.allowance
        if not self.counting or self.freeing:
            return self.saved_bytes
        room = max(self.most_alive, self.expected, SMALL) - self.alive_bytes - self.largest
        return self.saved_bytes + max(0, min(room, self.allowance, 4 * self.missed_bytes))

    cdef int count(self, Node node) except -1:
        """The output of `node` is alive."""
        cdef Py_ssize_t size
        if node.flags & (LEAF | COUNTED) or node.op.flags & (VIEW | MULTI):
            return 0
        size = nbytes(node.shape, node.dtype)
        node.flags |= COUNTED
        self.alive_bytes += size
        if size > self.largest:
            self.largest = size
        if self.alive_bytes > self.most_alive:
            self.most_alive = self.alive_bytes
        if self.kept_bytes > 0:
            self.evict(self.budget())
        return 0

    cdef void uncount(self, Node node) noexcept:
        node.flags &= ~<uint32_t>COUNTED
        self.alive_bytes -= nbytes(node.shape, node.dtype)

    cdef int lost(self, Node node, bint wanted=False) except -1:
        """The tensor of `node` is gone, or was written: its clone saves nothing any more."""
        if node.flags & COUNTED and not wanted:
            self.uncount(node)
        if node.flags & CLONE:
            node.flags &= ~<uint32_t>CLONE
            self.saved_bytes -= nbytes(node.shape, node.dtype)
            if self.kept_bytes > 0:
                self.evict(self.budget())
        return 0

    cdef int inherit(self, Node node) except -1:
        """Let go of the value of `node`: a clone that shares its memory now holds it alone."""
        cdef Node first = node if node.leader is None else node.leader, heir
        if first.holder == NULL:
            return 0
        heir = <Node>first.holder
        if heir.flags & CLONE and heir.tensor != NULL:
            heir.flags &= ~<uint32_t>CLONE
            self.saved_bytes -= nbytes(heir.shape, heir.dtype)
        return 0

    cdef int keep(self, Node node) except -1:
        """Take the value of `node`, whose tensor is dying, into what is held for reuse.

        What a run that frees the graph lets go of is not: torch's memory goes down then, too.
        """
        cdef Py_ssize_t size, limit
        cdef Node first
        if self.freeing or not node.op.flags & PURE or node.op.flags & (VIEW | MULTI):
            return 0
        first = node if node.leader is None or node.flags & SAME else node.leader
        if first.holder == NULL:
            return 0
        size, limit = nbytes(node.shape, node.dtype), self.budget()
        if size > limit:
            return 0
        if first is not node and (first.tensor != NULL or first.value is not None):
            return 0                     # the leader still has it
        if self.steady and self.kept_bytes + size > limit:
            return 0
        self.evict(limit - size)
        node.flags |= KEPT
        self.ring.append(node)
        self.kept_bytes += size
        if self.kept_bytes > self.peak_kept_bytes:
            self.peak_kept_bytes = self.kept_bytes
        return 1

    cdef int evict(self, Py_ssize_t limit) except -1:
        """Let go of the oldest values held for reuse until they take at most `limit` bytes; if `steady`, of the newest."""
        cdef Node old
        while self.kept_bytes > limit and self.ring:
            old = <Node>(self.ring.pop() if self.steady else self.ring.popleft())
            if not old.flags & KEPT:
                continue                         # it was handed out again
            self.kept_bytes -= nbytes(old.shape, old.dtype)
            old.flags &= ~<uint32_t>KEPT
            if not old.flags & NEEDS_ANS or old.flags & (FREED | DEAD):
                old.value = old.spare = None
                self.inherit(old)
        return 0

    @property
    def allowance(self):
        return self.allowance

    @allowance.setter
    def allowance(self, Py_ssize_t value):
        self.allowance = value
        self.evict(self.budget())

    def forget_values(self):
        """Drop every value kept for reuse."""
        self.evict(0)
        self.ring.clear()
        self.kept_bytes = 0

    def clear(self):
        """The graph has released everything."""
        self.ring.clear()
        self.kept_bytes = self.alive_bytes = 0
