"""Hold the state of one backward run, and hand cotangents on to the nodes that wait for them."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t

from autograd_opt.abi.ctorch cimport (
    ao_contiguous, ao_dtype, ao_into, ao_is_neg, ao_is_view, ao_is_zero, ao_pair, ao_strided, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.engine.frontier cimport close_frontier, open_frontier, push
from autograd_opt.engine.kernels cimport ADD_K, IADD_K, Tensor, add, iadd, is_neg, is_zero, transforms_active
from autograd_opt.engine.saved_values cimport stateless
from autograd_opt.engine.spending cimport spend_twin
from autograd_opt.engine.unbroadcast cimport dtype_of, fit
from autograd_opt.graph import refusals
from autograd_opt.graph.node cimport (
    CONTIGUOUS, FREED, FRESH, MERGED, MULTI, NOWHERE, REACHED_DIRECTLY, Node, followed, leads_on, same_shape, shape_of,
)
from autograd_opt.graph.tape cimport Tape

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

ao_use_reads(reads_address())
cdef int64_t _tasks = 0


class Contribution:
    """The cotangents of one multi-output node, by output number."""
    __slots__ = ("parts",)

    def __init__(self, n):
        self.parts = [None] * n


cdef class GraphTask:
    """One backward run over a tape."""

    def __cinit__(self, Tape tape, bint retain, bint create_graph, bint merge, batch=None):
        global _tasks
        _tasks += 1
        self.id = _tasks
        self.tape = tape
        self.retain, self.create_graph, self.merge = retain, create_graph, merge
        open_frontier(&self.frontier)
        self.overflow = {}
        self.batch = batch
        self.inplace = not create_graph and batch is None and not transforms_active()
        self.direct = create_graph and batch is None and not transforms_active()
        self.callbacks = []
        self.places = {}
        self.undefined = set()
        self.accumulate = True

    def __dealloc__(self):
        close_frontier(&self.frontier)

    cdef Node aim(self, Node node):
        """Where a cotangent for `node` goes: itself, the leader it was merged into, or None."""
        if self.merge and node.flags & MERGED:
            if self.needed is not None and not leads_on(self.needed, node.leader.index):
                return None              # as written, this run does not come here either
            if node.flags & FREED and node.task != self.id and not stateless(node):
                raise refusals.freed(node)
            if not self.retain and self.own:
                spend_twin(self.tape, node, self.id, self.needed)
            self.tape.merges.handed += 1
            node = node.leader
            if node.flags & NOWHERE:
                return None
        elif self.own:
            node.flags |= REACHED_DIRECTLY
        if self.needed is not None and not self.leads(node):
            return None
        if node.index < 0:
            raise refusals.freed(node)
        return node

    cdef int send(self, Node node, object g, int fresh) except -1:
        """Add cotangent `g` to what is waiting for `node`.

        `fresh`: is its memory this run's own?  FILLED where a kernel has just made it, contiguous.
        """
        node = self.aim(node)
        return 0 if node is None else self.put(node, g, fresh)

    cdef int put(self, Node node, object g, int fresh) except -1:
        cdef object old
        if node.cotangent == NULL:
            Py_INCREF(g)
            node.cotangent = <PyObject *>g
            node.task = self.id
            node.live += 1               # pending: what it saved must not go
            node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
            if fresh:
                node.flags |= FRESH | CONTIGUOUS if fresh == FILLED else FRESH
            return 0 if self.due is not None and node.index in self.waiting else push(&self.frontier, node.index)
        if node.task == self.id:
            old = <object>node.cotangent
            if g is None:
                return 0
            node.flags &= ~<uint32_t>CONTIGUOUS
            if old is None:
                Py_INCREF(g)
                node.cotangent = <PyObject *>g
                node.flags = node.flags | FRESH if fresh else node.flags & ~<uint32_t>FRESH
                return 0
            if self.inplace and not sparse(g) and not sparse(old):
                if (node.flags & FRESH or Py_REFCNT(old) == 2 and alone(old, g)) and not self.shows(node, old):
                    ao_into(IADD_K, iadd, old, (g,))
                    return 0
                g = ao_into(IADD_K, iadd, g, (old,)) if fresh and alike(g, old) and not self.shows(node, g) \
                    else ao_pair(ADD_K, add, old, (g,))
                node.flags |= FRESH
            else:
                g = self.add(old, g)
            node.cotangent = NULL
            Py_DECREF(old)               # `old` still holds it
            Py_INCREF(g)
            node.cotangent = <PyObject *>g
            return 0
        if node.index not in self.overflow:
            self.overflow[node.index] = g
            node.live += 1
            return 0 if self.due is not None and node.index in self.waiting else push(&self.frontier, node.index)
        old = self.overflow[node.index]
        if g is not None:
            self.overflow[node.index] = g if old is None else self.add(old, g)
        return 0

    cdef bint shows(self, Node node, object t) except -1:
        """Would a sum made in `t` be a view that the user sees, while torch's is none?"""
        return self.captures is not None and ao_is_view(t) and node.index in self.captures

    cdef bint hands_out(self, Node node) except -1:
        """True if the user gets the cotangent of `node` itself."""
        return self.captures is not None and not self.accumulate and not self.onward and node.index in self.captures

    cdef object add(self, object old, object g):
        """old + g, in memory of its own; dense where one of them is."""
        if not self.create_graph and sparse(old) and not sparse(g):
            return g + old
        return old + g

    cdef object take(self, Node node):
        cdef object g
        if node.task == self.id and node.cotangent != NULL:
            g = <object>node.cotangent
            node.cotangent = NULL
            Py_DECREF(g)
            self.fresh = node.flags & FRESH != 0
            self.solid = node.flags & CONTIGUOUS != 0
            node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
            return g
        self.fresh = self.solid = False
        return self.overflow.pop(node.index)

    cdef bint pending(self, Node node) except -1:
        """Does a cotangent of this run wait for `node`?"""
        return node.task == self.id and node.cotangent != NULL or node.index in self.overflow

    cdef int abandon(self) except -1:
        """After an exception: leave no cotangent behind."""
        cdef Node node
        if self.due is not None:
            for i in self.waiting:
                if self.pending(<Node>self.tape.nodes[<int64_t>i]):
                    push(&self.frontier, i)
        while self.frontier.count:
            self.frontier.count -= 1
            if self.frontier.heap[self.frontier.count] < self.tape.n:
                node = <Node>self.tape.nodes[self.frontier.heap[self.frontier.count]]
                node.flags &= ~<uint32_t>REACHED_DIRECTLY
                self.tape.decrement(node)
                if node.task == self.id and node.cotangent != NULL:
                    node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
                    g = <object>node.cotangent
                    node.cotangent = NULL
                    Py_DECREF(g)
        self.overflow.clear()
        return 0

    cpdef bint wants(self, Node node) except -1:
        """Is a cotangent of this operand asked for?"""
        if not followed(node):
            return False
        return self.needed is None or self.leads(node) or self.merge and node.flags & MERGED

    cdef bint leads(self, Node node) except -1:
        """In a run with targets: is `node` one, or on a way to one?"""
        return leads_on(self.needed, node.index)

    cdef int send_fixed(self, Node node, Node operand, object g, uint32_t fix) except -1:
        """Bring `g` to the operand's shape, where broadcasting changed it, and to its dtype."""
        cdef Py_ssize_t i
        if g is None:
            return self.deliver(node, operand, None) if self.collected is None and self.wants(operand) else 0
        if self.anomaly:
            refusals.check_nan(g, node)
        if self.inplace and isinstance(g, Tensor) and ao_is_zero(is_zero, g):
            self.inplace = False             # zeros without memory, and what is made of them, cannot be written
        if fix or operand.dtype is not None and isinstance(g, Tensor) and dtype_of(g) is not operand.dtype:
            g = fit(g, operand, self.hands_out(operand))
        if self.collected is not None:
            operands = node.operands
            for i in range(len(operands) - 1, -1, -1):
                if operands[i] is operand and i not in self.collected:
                    self.collected[i] = g
                    return 0
        return self.deliver(node, operand, g)

    cdef int deliver(self, Node node, Node operand, object g) except -1:
        if operand.op.flags & MULTI:
            return self.send_part(node, operand, g)
        return self.send(operand, g, False)

    cdef int send_part(self, Node output, Node parent, object g) except -1:
        cdef object whole
        i = output.attrs["i"]
        if self.merge and parent.flags & MERGED:         # while this output of it was not merged: its twin is gone
            if self.needed is not None and not leads_on(self.needed, parent.leader.index):
                return 0
            if parent.flags & FREED and parent.task != self.id and not stateless(parent):
                raise refusals.freed(parent)
            if not self.retain and self.own:
                spend_twin(self.tape, parent, self.id, self.needed)
            self.tape.merges.handed += 1
            parent = parent.leader
        if self.needed is not None and not self.leads(parent):
            return 0
        if parent.index < 0:
            raise refusals.freed(parent)
        if parent.cotangent != NULL and parent.task == self.id:
            whole = <object>parent.cotangent
        elif parent.index in self.overflow:
            whole = self.overflow[parent.index]
        else:
            whole = Contribution(len(parent.shape))
            if parent.cotangent == NULL:
                Py_INCREF(whole)
                parent.cotangent = <PyObject *>whole
                parent.task = self.id
            else:
                self.overflow[parent.index] = whole
            parent.live += 1
            push(&self.frontier, parent.index)
        if self.own:
            parent.flags |= REACHED_DIRECTLY
        old = whole.parts[i]
        if g is not None:
            whole.parts[i] = g if old is None else self.add(old, g)
        return 0


cdef bint alone(object old, object g) except -1:
    """True if `old`, which nobody else holds, may be written: it is the only tensor over its memory."""
    return type(old) is Tensor and type(g) is Tensor and ao_dtype(old) is ao_dtype(g) \
        and ao_strided(old) and ao_strided(g) \
        and ao_contiguous(old) and not ao_is_neg(is_neg, old) \
        and not ao_is_zero(is_zero, old) \
        and not old.is_complex() and sole_owner(old) \
        and same_shape(shape_of(old), shape_of(g))


cdef inline bint sparse(object g) except -1:
    return not ao_strided(g)


cdef bint alike(object a, object b) except -1:
    """True if both are of one shape and dtype: either may be added to the other."""
    return type(a) is Tensor and type(b) is Tensor and ao_dtype(a) is ao_dtype(b) \
        and same_shape(shape_of(a), shape_of(b))
