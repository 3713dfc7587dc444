"""The graph as flat arrays: what the passes see of it.

Two nodes have equal keys exactly when `pass_key` gives equal ones.  That is asked only of nodes
with attributes or unusual numbers; the key of any other is a few words, compared here.
"""

from array import array

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from autograd_opt.graph.node cimport *
from autograd_opt.graph.plain_values cimport encode_attributes, same_device
from autograd_opt.graph.tape cimport Tape

cdef object pass_key(Node node):
    """What decides, with the operands, whether two nodes compute the same."""
    cdef Op op = node.op
    if node.flags & LEAF or not op.flags & PURE and op is not OUTPUT_OP:
        return (node.index,)
    try:
        attrs = encode_attributes(node.attributes, op.typed)
    except (TypeError, RecursionError):     # an attribute without a key: equal to nothing
        return (node.index,)
    mask = [n is not None for n in (node.more if node.more is not None else (node.in0, node.in1))]
    return (op.id, node.flags & REQUIRES_GRAD, node.dtype, node.device, attrs, tuple(mask))


cdef struct Plain:
    int64_t op                   # operator, requires_grad, which operands are nodes, kinds of the numbers
    void *dtype
    void *device
    int64_t number0, number1     # their bits
    int64_t id                   # the number of this key


cdef enum Number:
    NO_NUMBER, FLOAT_NUMBER, INT_NUMBER, BOOL_NUMBER, OTHER_NUMBER


cdef int number_of(object v, int64_t *bits) except -1:
    """What kind of number `v` is, and its bits."""
    cdef double number
    t = type(v)
    if t is float:
        number = v
        memcpy(bits, &number, 8)
        return FLOAT_NUMBER
    if t is int:
        if not -(1 << 62) < v < (1 << 62):
            return OTHER_NUMBER
        bits[0] = v
        return INT_NUMBER
    if t is bool:
        bits[0] = v is True
        return BOOL_NUMBER
    return OTHER_NUMBER


cdef class Keys:
    """Numbers for the keys of the nodes of one tape, in the order of their first sight."""
    cdef Plain *table
    cdef size_t mask
    cdef int64_t count
    cdef dict others             # pass_key -> number
    cdef bint degenerate         # are all hashes forced to be equal?
    cdef object device, same     # the last node's device, and the one object that stands for it

    def __cinit__(self, Py_ssize_t n, bint degenerate):
        cdef size_t capacity = 16
        while capacity < <size_t>(2 * n):
            capacity *= 2
        self.table = <Plain *>PyMem_Malloc(capacity * sizeof(Plain))
        if self.table == NULL:
            raise MemoryError()
        memset(self.table, 0, capacity * sizeof(Plain))
        self.mask = capacity - 1
        self.others = {}
        self.degenerate = degenerate

    def __dealloc__(self):
        PyMem_Free(self.table)

    cdef int64_t number(self, Node node) except -1:
        """The number of the key of `node`."""
        cdef Plain key
        cdef Plain *e
        cdef uint64_t h
        cdef size_t i
        cdef int64_t found
        if node.flags & LEAF or not node.op.flags & PURE and node.op is not OUTPUT_OP:
            self.count += 1              # equal to nothing
            return self.count
        if not self.plain(node, &key):
            found = self.others.setdefault(pass_key(node), self.count + 1)
            if found > self.count:
                self.count = found
            return found
        h = <uint64_t>key.op * 0x9E3779B97F4A7C15ULL ^ <uint64_t>key.number0 * 0xC2B2AE3D27D4EB4FULL \
            ^ <uint64_t>key.number1 * 0x165667B19E3779F9ULL ^ <uint64_t><size_t>key.dtype
        h ^= h >> 32
        i = 0 if self.degenerate else <size_t>h & self.mask
        while True:
            e = &self.table[i]
            if e.id == 0:
                self.count += 1
                e[0] = key
                e.id = self.count
                return e.id
            if e.op == key.op and e.dtype == key.dtype and e.device == key.device and e.number0 == key.number0 \
                    and e.number1 == key.number1:
                return e.id
            i = (i + 1) & self.mask

    cdef bint plain(self, Node node, Plain *key) except -1:
        """Fill `key`; false where only `pass_key` can tell."""
        cdef Node a = node.in0, b = node.in1
        cdef int64_t kind0 = NO_NUMBER, kind1 = NO_NUMBER
        if node.attrs:
            return False
        if node.more is not None:
            if len(node.more) != 2:
                return False
            a, b = node.more
        key.number0 = key.number1 = 0
        if node.flags & SCALAR0:
            kind0 = number_of(node.x0, &key.number0)
        if node.flags & SCALAR1:
            kind1 = number_of(node.x1, &key.number1)
        if kind0 == OTHER_NUMBER or kind1 == OTHER_NUMBER:
            return False
        if node.device is not self.device:
            self.device, self.same = node.device, same_device(node.device)
        key.op = <int64_t>node.op.id << 16 | kind0 << 12 | kind1 << 8 | (a is not None) << 1 | (b is not None) << 2 \
            | (node.flags & REQUIRES_GRAD != 0)
        key.dtype = <void *>node.dtype
        key.device = <void *>self.same
        key.id = 0
        return True


cdef struct Seen:
    void *shape
    void *dtype
    void *device
    uint32_t flags
    int64_t id


def flat_arrays(Tape tape):
    """The graph as flat arrays for `autograd_opt.passes.NodeTable`.

    Returns (key int64, offsets int64, operands int32, flags uint8, meta int64), each an `array.array`
    in record order, and as `same` int32 the node whose value each has bit for bit: its own number, or its
    operand's where the operation has left that as it was; None where none has.  Two nodes have equal `key`
    exactly when operator, attributes with their types and bits, Python-number operands, dtype, device and
    differentiability are equal.
    """
    cdef Py_ssize_t i, j, m = 0, n = tape.n
    cdef Node node, other
    cdef Op op
    cdef long long[::1] keys, offsets, metas
    cdef int[::1] edges, sames
    cdef unsigned char[::1] flags
    cdef object same = None
    cdef int flag
    cdef Keys numbers = Keys(n, tape.table.degenerate)
    cdef dict meta_ids = {}
    cdef Seen seen[64]
    cdef Seen *last
    memset(seen, 0, sizeof(seen))
    for i in range(n):
        node = <Node>tape.nodes[i]
        m += (node.in0 is not None) + (node.in1 is not None) if node.more is None else len(node.more)
    key_array, offset_array = array("q", bytes(8 * n)), array("q", bytes(8 * (n + 1)))
    meta_array, flag_array = array("q", bytes(8 * n)), array("B", bytes(n))
    operands = array("i", bytes(4 * m))
    if n == 0:
        return key_array, offset_array, operands, flag_array, meta_array, same
    keys, offsets, metas, flags = key_array, offset_array, meta_array, flag_array
    if m:
        edges = operands
    m = 0
    for i in range(n):
        node = <Node>tape.nodes[i]
        op = node.op
        keys[i] = numbers.number(node)
        if op.flags & MULTI:
            metas[i] = -1 - i if node.flags & LEAF else meta_ids.setdefault(node.shape, len(meta_ids))
        else:
            last = &seen[(<size_t><PyObject *>node.shape >> 4) & 63]
            if not (last.shape == <void *>node.shape and last.dtype == <void *>node.dtype
                    and last.device == <void *>node.device and last.flags == node.flags & REQUIRES_GRAD):
                last.shape, last.dtype, last.device = <void *>node.shape, <void *>node.dtype, <void *>node.device
                last.flags = node.flags & REQUIRES_GRAD
                last.id = meta_ids.setdefault((node.shape, node.dtype, node.device, last.flags), len(meta_ids))
            metas[i] = last.id
        if node.flags & SAME:
            if same is None:
                same = array("i", range(n))
                sames = same
            sames[i] = <int>operand_of(node).index
        flag = 0
        if node.flags & LEAF:
            flag |= 1
        elif op is not OUTPUT_OP and not op.flags & PURE:
            flag |= 2
        if node.flags & PINNED:
            flag |= 4 | 16
        if op.flags & COMMUTATIVE and node.in0 is not None and node.in1 is not None and commutes(node):
            flag |= 8
        if node.flags & (NO_MERGE | EXPOSED) or node.in0 is not None and node.in0.flags & EXPOSED \
                or node.in1 is not None and node.in1.flags & EXPOSED:
            flag |= 32
        if node.more is not None:
            for other in node.more:
                if other is not None:
                    edges[m] = <int>other.index
                    m += 1
                    if other.flags & EXPOSED:
                        flag |= 32
        else:
            if node.in0 is not None:
                edges[m] = <int>node.in0.index
                m += 1
            if node.in1 is not None:
                edges[m] = <int>node.in1.index
                m += 1
        flags[i] = flag
        offsets[i + 1] = m
    return key_array, offset_array, operands[:m], flag_array, meta_array, same
