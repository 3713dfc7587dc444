"""Find the entry of a call in the value table: a digest finds the candidate, the attributes themselves decide."""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from autograd_opt.graph.node cimport SCALAR0, SCALAR1, VARIADIC, Node, Op, fresh_vn
from autograd_opt.graph.plain_values cimport deeper, encode, is_float, shallower
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.value_table cimport Entry, find

cdef object DType = torch.dtype
cdef object Size = torch.Size

cdef enum:
    GENERAL = 64                 # apart from the keys of the hot operators
    PAIR = 32                    # an entry that only numbers a pair of operands
    NO_KEY = 1                   # in place of a digest: the call has no key

cdef uint64_t LOW = 0xFFFFFFFFFFULL  # the bits of a digest that a kind has room for


cdef inline uint64_t mix(uint64_t h, uint64_t x) noexcept:
    h = (h ^ x) * 0x9E3779B97F4A7C15ULL
    return h ^ (h >> 29)


cdef uint64_t digest(uint64_t h, object v, bint typed) except? 0:
    """Mix an attribute's type and bits into `h`, those of sequences where they are `typed`.

    TypeError for a value of unknown meaning.
    """
    cdef object t = type(v)
    cdef double number
    cdef uint64_t bits
    if v is None:
        return mix(h, 1)
    if t is bool:
        return mix(h, 3 if v else 2)
    if t is int:
        return mix(mix(h, 5), <uint64_t>hash(v))
    if t is float:
        number = v
        memcpy(&bits, &number, 8)
        return mix(mix(h, 6), bits)
    if t is str:
        return mix(mix(h, 7), <uint64_t>hash(v))
    if t is tuple or t is list or t is Size:
        h = mix(mix(h, 8 if not typed else 12 if t is list else 13 if t is tuple else 14), len(v))
        deeper()
        try:
            for x in v:
                h = digest(h, x, typed)
        finally:
            shallower()
        return h
    if t is DType:
        return mix(mix(h, 9), <uint64_t><size_t><PyObject *>v)
    if t is slice:
        return digest(digest(digest(mix(h, 10), v.start, typed), v.stop, typed), v.step, typed)
    return mix(mix(h, 11), <uint64_t>hash(encode(v)))


cdef bint same(object a, object b, bint typed) except -1:
    """Are two attribute values of one type and the same bits?  Sequences are compared by what they hold, or `typed`."""
    cdef object t = type(a)
    cdef double x, y
    if t is tuple or t is list or t is Size:
        if not (type(b) is t if typed else type(b) is tuple or type(b) is list or type(b) is Size) or len(a) != len(b):
            return False
        for p, q in zip(a, b):
            if not same(p, q, typed):
                return False
        return True
    if type(b) is not t:
        return False
    if a is b or a is None:
        return True
    if t is float:
        x, y = a, b
        return memcmp(&x, &y, 8) == 0
    if t is slice:
        return same(a.start, b.start, typed) and same(a.stop, b.stop, typed) and same(a.step, b.step, typed)
    if t is int or t is bool or t is str:
        return a == b
    return encode(a) == encode(b)


cdef bint same_attributes(Node first, dict attrs, Py_ssize_t expected) except -1:
    """Has `first` these attributes, and as many as `expected` with the numbers that are kept among them?"""
    if (0 if first.attrs is None else len(first.attrs)) != expected:
        return False
    if attrs:
        for name, value in attrs.items():
            if name not in first.attrs or not same(value, first.attrs[name], first.op.typed):
                return False
    return True


cdef bint same_rest(Node first, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs) except -1:
    """Has the call that made `first` the same attributes, and numbers in the same places?"""
    cdef Node n
    cdef Py_ssize_t i, expected = len(attrs) if attrs is not None else 0
    cdef object value
    for i in range(count):
        n = na if i == 0 else nb if i == 1 else nc
        if n is None:
            if first.more is not None:
                if first.more[i] is not None:
                    return False
                value = None if first.attrs is None else first.attrs.get(op.operands[i])
                if value is not None:
                    expected += 1
            elif i == 0:
                value = first.x0 if first.flags & SCALAR0 else None
            else:
                value = first.x1 if first.flags & SCALAR1 else None
            if not same(operands[i], value, op.typed):
                return False
    return same_attributes(first, attrs, expected)


cdef uint64_t digest_of(Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs) except? 0:
    """Of what a call's key holds beside its tensors; NO_KEY where something has no bits of its own."""
    cdef uint64_t h = 0
    cdef Py_ssize_t i
    try:
        if na is None and count > 0:
            h = digest(mix(h, 21), operands[0], op.typed)
        if nb is None and count > 1:
            h = digest(mix(h, 22), operands[1], op.typed)
        if nc is None and count > 2:
            h = digest(mix(h, 23), operands[2], op.typed)
        if attrs:
            for name, value in attrs.items():
                h = digest(mix(h, <uint64_t>hash(name)), value, op.typed)
    except (TypeError, RecursionError):
        return NO_KEY
    return h if h > NO_KEY else 2


cdef dict default_dtypes = {}


cdef uint64_t default_number() except? 0:
    """The default dtype as a number from 1 to 7, in the bits of a kind that are free."""
    cdef uint64_t n = default_dtypes.setdefault(torch.get_default_dtype(), len(default_dtypes) + 1)
    return (n & 3) | (n >> 2) << 4


cdef inline uint64_t kind_of(Op op, bint req, bint grad, bint wide) except? 0:
    """What a key holds of the call itself; `wide`: is there an operand that is not of a floating type?"""
    cdef uint64_t kind = (<uint64_t>op.id << 8) | GENERAL | (req << 3) | (grad << 2)
    if wide:
        kind |= default_number()                 # promotion may ask for it
    return kind


cdef Entry *key_of(Tape tape, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs,
                   bint req, bint grad) except? NULL:
    """The entry of a call in the value table, NULL where it has no key.

    A digest chooses the entry, and the attributes themselves decide: one digest for two calls
    costs another look, never a wrong answer.  Operands that may change places are looked up in
    the order of their numbers; where that made another layout, the value is another.  The hot
    operators do that in `recorder.pyx`, where it keeps the bits: not for products of complex numbers.
    """
    cdef uint64_t rest = 0, kind = kind_of(
        op, req, grad, na is not None and not is_float(na.dtype) or nb is not None and not is_float(nb.dtype)
        or nc is not None and not is_float(nc.dtype))
    cdef int64_t first = 0 if na is None else na.vn, second = 0 if nb is None else nb.vn
    cdef bint changes = count == 2 and na is not None and nb is not None and not op.hot and op.commutes(attrs)
    cdef Node before
    cdef Entry *e
    if attrs or na is None or nb is None and count > 1 or nc is None and count > 2:
        rest = digest_of(op, count, na, nb, nc, operands, attrs)
        if rest == NO_KEY:
            return NULL
        if tape.table.degenerate:
            rest = 0
    if nc is not None:
        second = paired(tape, second, nc.vn)
    kind |= (rest & LOW) << 24
    if changes and second < first:
        first, second = second, first
    while True:
        e = find(tape.table, first, second, kind)
        if e.first == NULL:
            return e
        if same_rest(<Node>e.first, op, count, na, nb, nc, operands, attrs):
            before = (<Node>e.first).in0         # None where the node is spent
            if not changes or before is not None and before.vn == na.vn \
                    or not laid_out_apart(operands[0], operands[1]):
                return e
            tape.layouts = True
            changes, first, second, kind = False, na.vn, nb.vn, kind | 1 << 7
            continue
        kind += 1 << 24


cdef bint laid_out_apart(object a, object b) except -1:
    """Can the strides of a result tell the order of these operands?"""
    return a.ndim > 0 and b.ndim > 0 and b.stride() != a.stride()


cdef int64_t paired(Tape tape, int64_t a, int64_t b) except? -1:
    """The number of a pair of numbers, given where it is asked for the first time."""
    cdef Entry *e = find(tape.table, a, b, PAIR)
    if e.first == NULL:
        e.first = <PyObject *><size_t>fresh_vn()         # a number, not a node
        tape.table.used += 1
    return <int64_t><size_t>e.first


cdef Entry *key_of_all(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, bint grad) except? NULL:
    """`key_of` for any number of operands: the numbers of all but the first are paired up, from the last on."""
    cdef uint64_t rest = 0, kind
    cdef int64_t second = 0
    cdef Py_ssize_t i, count = len(nodes)
    cdef bint wide = False
    cdef Node n
    cdef Entry *e
    try:
        for i in range(count):
            n = nodes[i]
            if n is None:
                rest = digest(mix(mix(rest, 21), i), operands[i], op.typed)
            elif not is_float(n.dtype):
                wide = True
        if attrs:
            for name, value in attrs.items():
                rest = digest(mix(rest, <uint64_t>hash(name)), value, op.typed)
    except (TypeError, RecursionError):
        return NULL
    kind = kind_of(op, req, grad, wide)
    if tape.table.degenerate:
        rest = 0
    for i in range(count - 1, 0, -1):
        n = nodes[i]
        second = paired(tape, 0 if n is None else n.vn, second)
    kind |= (rest & LOW) << 24
    while True:
        e = find(tape.table, 0 if count == 0 or nodes[0] is None else (<Node>nodes[0]).vn, second, kind)
        if e.first == NULL or same_others(<Node>e.first, op, nodes, operands, attrs):
            return e
        kind += 1 << 24


cdef bint same_others(Node first, Op op, list nodes, tuple operands, dict attrs) except -1:
    """`same_rest` for any number of operands."""
    cdef Py_ssize_t i, count = len(nodes), expected = len(attrs) if attrs is not None else 0
    cdef tuple known = first.operands
    cdef object value
    if len(known) != count:
        return False
    for i in range(count):
        if (known[i] is None) != (nodes[i] is None):
            return False
        if nodes[i] is not None or op.flags & VARIADIC and operands[i] is None:
            continue
        if op.flags & VARIADIC:
            return False                         # numbers in a list of tensors are not kept
        value = first.attributes.get(op.operands[i])
        if not same(operands[i], value, op.typed):
            return False
        if value is not None and not (i == 0 and first.flags & SCALAR0 or i == 1 and first.flags & SCALAR1):
            expected += 1
    return same_attributes(first, attrs, expected)
