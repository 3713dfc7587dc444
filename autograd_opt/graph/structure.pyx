"""The structure of a recorded graph as a row of integers: what the passes see, and nothing else.

Two graphs have equal rows exactly when their flat arrays are equal, up to the numbers given
to keys and types; so a result of the passes for one serves for the other.  Rows are compared
in full, the hash only says where to look.
"""

import torch

from autograd_opt.passes.effort import degenerate_hash_forced
cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from autograd_opt.graph.node cimport (
    EXPOSED, LEAF, NO_MERGE, PINNED, PURE, REQUIRES_GRAD, SAME, SCALAR0, SCALAR1, Node, Op,
)
from autograd_opt.graph.plain_values cimport deeper, shallower
from autograd_opt.graph.tape cimport Tape

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object v, int *overflow) except? -1

cdef object torch_size = torch.Size
cdef bint degenerate = degenerate_hash_forced()
cdef enum:
    MOST_HASHED = 256
    LAST = 16
    HEADER = 4
    SAME_PLACE = 1 << 28                 # in the first word of a node, beside its flags
    SAME_SHAPE = 1 << 29
    OTHER_SHAPE = 1 << 30                # the shape before that one: numbers between vectors, say
cdef dict _strings = {}                  # string -> number
cdef dict _words = {}                    # torch's dtypes, layouts and the like -> number
cdef tuple OBJECTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)

cdef inline uint64_t mixed(uint64_t h, int64_t word) noexcept:
    h = (h ^ <uint64_t>word) * 0x9E3779B97F4A7C15ULL
    return h ^ h >> 32


cdef int64_t *spare = NULL               # the memory of the last row that was dropped
cdef Py_ssize_t spare_capacity = 0


@cython.no_gc
cdef class Structure:
    """One row."""
    def __cinit__(self, Py_ssize_t nodes):
        global spare, spare_capacity
        self.nodes = nodes
        if spare != NULL:                # fresh pages would cost more than what is written on them
            self.row, self.capacity = spare, spare_capacity
            spare = NULL
            return
        self.capacity = 6 * nodes + 64
        self.row = <int64_t *>malloc(self.capacity * sizeof(int64_t))
        if self.row == NULL:
            raise MemoryError()

    def __dealloc__(self):
        global spare, spare_capacity
        if spare == NULL and self.row != NULL:
            spare, spare_capacity = self.row, self.capacity
        else:
            free(self.row)

    def __hash__(self):
        """Of some hundred words, and the last ones, in which runs over one graph differ: it only says where to look."""
        cdef Py_ssize_t i, step = 1 + self.n // MOST_HASHED
        cdef uint64_t h = <uint64_t>self.n
        if degenerate or self.hash:
            return <Py_ssize_t>self.hash
        for i in range(0, self.n, step):
            h = mixed(h, self.row[i])
        for i in range(max(0, self.n - LAST), self.n):
            h = mixed(h, self.row[i])
        self.hash = (h >> 2) | 1
        return <Py_ssize_t>self.hash

    def __eq__(self, other):
        if not isinstance(other, Structure):
            return NotImplemented
        return self.n == (<Structure>other).n \
            and memcmp(self.row, (<Structure>other).row, self.n * sizeof(int64_t)) == 0

    def __len__(self):
        return self.n

    def words(self):
        """The row as bytes."""
        return (<char *>self.row)[:self.n * sizeof(int64_t)]

    cdef int reserve(self, Py_ssize_t words) except -1:
        cdef int64_t *grown
        if self.n + words > self.capacity:
            grown = <int64_t *>realloc(self.row, 2 * (self.capacity + words) * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError()
            self.row = grown
            self.capacity = 2 * (self.capacity + words)
        return 0

    cdef int push(self, int64_t word) except -1:
        if self.n == self.capacity:
            self.reserve(1)
        self.row[self.n] = word
        self.n += 1
        return 0

    cdef int end(self, list roots, list captured) except -1:
        """Append the outputs and the captured nodes, after all nodes."""
        cdef Py_ssize_t i
        self.push(len(roots))
        for i in roots:
            self.push(i)
        for i in captured:
            self.push(i)
        return 0

    cdef int value(self, object v) except -1:
        """Append a value by its type and bits; TypeError for one of unknown meaning."""
        cdef double number
        cdef int64_t bits
        cdef int overflow = 0
        t = type(v)
        if t is int:
            bits = PyLong_AsLongLongAndOverflow(v, &overflow)
            if overflow:
                raise TypeError(v)
            self.push(INT)
            return self.push(bits)
        if t is torch_size or t is tuple or t is list:
            self.push(SEQUENCE)
            self.push(4 * len(v) + (1 if t is list else 2 if t is torch_size else 0))
            deeper()
            try:
                for x in v:
                    self.value(x)
            finally:
                shallower()
            return 0
        if v is None:
            return self.push(NONE)
        if t is bool:
            return self.push(TRUE if v else FALSE)
        if t is float:
            number = v
            memcpy(&bits, &number, 8)
            self.push(FLOAT)
            return self.push(bits)
        if t is complex:
            self.push(COMPLEX)
            self.value(v.real)
            return self.value(v.imag)
        if t is str:
            self.push(STRING)
            return self.push(_strings.setdefault(v, len(_strings)))
        if t in OBJECTS:
            self.push(WORD)
            return self.push(_words.setdefault((t, v), len(_words)))
        if t is slice:
            self.push(SLICE)
            self.value(v.start)
            self.value(v.stop)
            return self.value(v.step)
        if v is Ellipsis:
            return self.push(ELLIPSIS)
        raise TypeError(t)

    cdef int node(self, Node node, Node last) except -1:
        """Append a node; `last` is the one before it, of which dtype and device are mostly the same."""
        cdef Node other
        cdef bint same_place = last is not None and node.dtype is last.dtype and node.device is last.device
        cdef PyObject *shape = <PyObject *>node.shape
        cdef int64_t shaped = SAME_SHAPE if shape == self.shape else OTHER_SHAPE if shape == self.other_shape else 0
        cdef int64_t *row
        if self.n + HEADER > self.capacity:
            self.reserve(HEADER)
        row = self.row + self.n
        row[0] = (<int64_t>node.op.id << 32) | (SAME_PLACE if same_place else 0) | shaped | (
            node.flags & (LEAF | REQUIRES_GRAD | PINNED | NO_MERGE | EXPOSED | SAME | SCALAR0 | SCALAR1))
        if node.more is None:            # two operands in one word; a longer list has a negative one for its length
            row[1] = <int64_t>(0 if node.in0 is None else node.in0.index + 1) << 32 \
                | (0 if node.in1 is None else node.in1.index + 1)
        else:
            row[1] = -1 - <int64_t>len(node.more)
        self.n += 2
        if not same_place:
            row[2] = <int64_t><size_t><PyObject *>node.dtype
            row[3] = <int64_t><size_t><PyObject *>node.device
            self.n += 2
        if node.more is not None:
            for other in node.more:
                self.push(-1 if other is None else other.index)
        if shape != self.shape:
            self.shape, self.other_shape = shape, self.shape
            if not shaped:
                self.value(node.shape)
        if node.attrs is None and not node.flags & (SCALAR0 | SCALAR1) or node.flags & LEAF:
            return 0
        if node.op.flags & PURE or node.op.name == "output":     # of a call that never merges passes see no attributes
            if node.flags & SCALAR0:
                self.value(node.x0)
            if node.flags & SCALAR1:
                self.value(node.x1)
            if node.attrs is not None:
                self.push(ATTRIBUTES)
                self.push(len(node.attrs))
                for name, v in (<dict>node.attrs).items():
                    self.value(name)
                    self.value(v)
        return 0


def structure_of(Tape tape, list roots, list captured):
    """The structure of all that `tape` has recorded, with the outputs and captured nodes of a run.

    None where an attribute has no known meaning.
    """
    cdef Structure s = Structure(tape.n)
    cdef Py_ssize_t i
    cdef Node node, last = None
    try:
        for i in range(tape.n):
            node = <Node>tape.nodes[i]
            s.node(node, last)
            last = node
    except (TypeError, RecursionError):
        return None
    s.end(roots, captured)
    return s


@cython.final
cdef class Place:
    """A place in the user's program whose result is differentiated."""
    cdef object code
    cdef int lasti
    cdef public int new                  # runs in a row, up to the latest, that met a structure not known before
    cdef public int known                # runs in a row that met a known one in which the passes found nothing more
    cdef public int skipped              # runs there before which no pass was asked
    cdef public int found                # merged nodes that the passes, when last asked, found beyond the numbers given while recording


cdef dict _places = {}


def place_of(Node root, Py_ssize_t most):
    """The place where `root` was recorded; where there are `most` of them, the others are forgotten."""
    cdef int lasti = 0 if root.code is None else root.lasti
    cdef uint64_t mixture = mixed(<uint64_t><size_t><PyObject *>root.code, lasti)
    cdef object found = _places.get(mixture)
    cdef Place place
    if found is not None and (<Place>found).code is root.code and (<Place>found).lasti == lasti:
        return found
    place = Place.__new__(Place)
    place.code, place.lasti = root.code, lasti
    if len(_places) >= most:
        _places.clear()
    _places[mixture] = place
    return place


def forget_roots():
    """Forget what is known of the places whose results were differentiated."""
    _places.clear()
