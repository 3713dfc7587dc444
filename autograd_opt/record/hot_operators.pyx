"""Record the operators of hot loops: one or two operands, no attributes but a number."""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_builtin0, ao_casts, ao_dtype, ao_is_inference, ao_is_zero, ao_method, ao_method0, ao_on_cpu, ao_pair, ao_plain, ao_single, ao_start,
    ao_use_reads,
)
from autograd_opt.abi.kernel_names import PAIRS, SINGLES
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport attach_strided, handle
from autograd_opt.graph.node cimport (
    CLONE, COMMUTATIVE, DEAD, FREED, NEEDS_ANS, REQUIRES_GRAD, SCALAR1, SPARSE, UNBROADCAST0, UNBROADCAST1,
    Node, Op, awaits, current_source, fresh_vn, new_node, ordinary, same_shape, shape_of,
)
from autograd_opt.graph.plain_values cimport CPU, is_float, number_arguments
from autograd_opt.graph.retention cimport nbytes
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.value_table cimport Entry, find
from autograd_opt.graph.values cimport known_value, left_over
from autograd_opt.record.arguments cimport grad_on, tracked
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.new_nodes cimport save
from autograd_opt.record.sites cimport MORE_MISSES, learn, settled, settled_after, work

cdef extern from *:
    """
    static volatile double ao_smallest = 4.9406564584124654e-324, ao_unit = 1.0;
    """
    double ao_smallest, ao_unit

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object lazy_clone = private.lazy_clone
cdef object clone_method = base.__dict__["clone"]
cdef object stride_method = base.__dict__["stride"]
cdef tuple EMPTY = ()
cdef object is_inference = base.__dict__["is_inference"]
cdef object is_zero = private.is_zerotensor
cdef object any_autocast = private.is_any_autocast_enabled
cdef object inference_mode = private.is_inference_mode_enabled
cdef set quantized = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
KERNELS = {}
UNARY = tuple("""abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor lgamma log
    log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sin sinh sqrt square tan tanh trunc""".split())
BINARY = tuple("add sub mul div pow atan2 maximum minimum hypot".split())


def install(dict ops):
    """Know the kernels of the operators above."""
    for name in UNARY + BINARY:
        if name in ops:
            KERNELS[name] = Kernel(name, ops[name])


cdef Node seen(Tape tape, Op op, object t):
    """The node of an operand of `op`."""
    return handle(tape, t) if not tape.late or op.differentiable else unread(tape, t)


cdef Node unread(Tape tape, object t):
    """The node of an operand that no gradient flows to: a view gets no history by being looked at so."""
    tape.late = False
    try:
        return handle(tape, t)
    finally:
        tape.late = True


cdef object clone_of(object value):
    """A copy-on-write clone; None where the memory cannot be shared so (under vmap, or where there is none).

    A copy on devices other than the CPU: CUDA's kernels for lists of tensors (`_foreach_add_`, `_fused_adam_`) write
    memory that torch takes for read, and a shared one with it.  torch's clone of a quantized tensor has no quantizer.
    """
    cdef object r
    if ao_is_zero(is_zero, value) or ao_dtype(value) in quantized:
        return None
    try:
        if ao_on_cpu(value):
            return ao_method0(lazy_clone, value)
        r = ao_method(clone_method, value, EMPTY)
        ao_start(r, 1, 0)                        # its kernel's own write is not counted
        return r if ao_method(stride_method, r, EMPTY) == ao_method(stride_method, value, EMPTY) else None
    except RuntimeError:
        return None


cdef object reuse(Tape tape, Op op, Node first, bint req):
    """A tensor of the value that `first` leads; None, counted, where it must be computed again.

    One that nobody has any more, or a copy-on-write clone; under inference mode neither would be an inference tensor.
    """
    if not grad_on() and ao_builtin0(inference_mode) is True:
        return None
    cdef object value = None if first.spare is not None else known_value(tape, first), r = left_over(tape, first, value)
    cdef Py_ssize_t size
    if r is None:
        if value is None:
            value = known_value(tape, first)     # the spare one was not fit
        tape.moved = False
        if value is not None and (op.kernel is None or not req or extra_of(<Node>first.holder) is not None):
            r = clone_of(value)
        if r is None:
            tape.missed(first)
            return None
    tape.hits += 1
    if not req:
        tape.plain_hits += 1
    tape.saved_work += work(first)
    size = nbytes(first.shape, first.dtype)
    tape.reused_bytes += size
    if not tape.moved:
        tape.retention.saved_bytes += size
    return r


cdef object extra_of(Node node):
    return None if node.saved_more is None else node.saved_more[2]


cpdef bint denormals_survive() except -1:
    """Are denormal numbers kept in this thread?  Where they are flushed, `x * 1` is not `x`."""
    return ao_smallest * ao_unit != 0.0


cdef class Kernel:
    """One C-level method of TensorBase and the operator it computes; its fields are declared in the .pxd."""

    def __init__(self, name, Op op):
        self.descr = base.__dict__[name]
        self.op = op
        self.arity = len(op.operands)
        names = PAIRS if self.arity == 2 else SINGLES
        self.direct = names.index(name) if name in names else -1
        self.numbers = name in ("add", "sub", "mul", "div")
        self.tensors = not self.numbers and name != "pow"


cdef inline bint all_plain(object a, object b) except -1:
    """Are the operands, `b` where it is a tensor, plain ones?"""
    return ao_plain(a) and (not ordinary(b) or ao_plain(b))


cdef inline bint untouched(Tape tape, object a, object b, bint grad) except -1:
    """True if a call on these operands records nothing: gradients are off, or neither takes part in differentiation."""
    if not grad:
        return True                          # with `optimize=True`, `settled` was asked
    return not tracked(tape, a) and not (ordinary(b) and tracked(tape, b)) and all_plain(a, b) \
        and (not tape.optimize or settled())


cdef object fast_binary(Kernel k, object a, object b):
    """The hot path; None where the general one is needed (and nothing has been recorded)."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    cdef bint grad
    cdef size_t switch
    if tp == NULL:
        return None
    tape = <Tape>tp
    if not tape.plain or tape.guarded or not ordinary(a) or not (ordinary(b) or not k.tensors and (type(b) is float or type(b) is int)):
        return None
    grad = grad_on()
    if not grad and (tape.optimize and not settled() or not all_plain(a, b)):
        return None
    switch = enter(tape)
    try:
        if untouched(tape, a, b, grad):
            return ao_pair(k.direct, k.descr, a, (b,))
        return recorded_pair(tape, k, a, b, grad, &switch)
    except NotImplementedError:          # a tensor of an unusual kind, which the general path judges
        return None
    finally:
        leave(tape, switch)


cdef object recorded_pair(Tape tape, Kernel k, object a, object b, bint grad, size_t *switch):
    """The result of two operands, recorded, with torch functions off; None for the general path."""
    cdef Op op = k.op
    cdef Node na = handle(tape, a), nb = None, node
    cdef bint req, cloned = False
    cdef uint64_t kind = 0
    cdef int64_t kb = 0
    cdef Entry *e = NULL
    cdef object r = None
    cdef Py_ssize_t moves = 0
    if not is_float(na.dtype):
        return None
    if ordinary(b):
        nb = handle(tape, b)
        if nb.dtype is not na.dtype or nb.device is not na.device or nb.flags & SPARSE:
            return None
        kb = nb.vn
    elif not number_key(b, &kb, &kind):
        return None
    if na.flags & SPARSE:
        return None
    req = grad and (na.flags | (0 if nb is None else nb.flags)) & REQUIRES_GRAD != 0 \
        and not (nb is not None and ao_is_inference(is_inference, a) and ao_is_inference(is_inference, b))
    if tape.optimize:
        kind |= (grad << 2) | (req << 3) | (<uint64_t>op.id << 8)
        if not req or not settled_after(MORE_MISSES):
            e = pair_entry(tape, op, na, nb, a, b, kb, kind)
            if e.first != NULL:
                r = reuse(tape, op, <Node>e.first, req)
                cloned = r is not None and not tape.moved
        moves = tape.table.moves
    elif not req:
        return ao_pair(k.direct, k.descr, a, (b,))
    if r is None:
        r = ao_pair(k.direct, k.descr, a, number_arguments(b, a, na.dtype) if nb is None and k.numbers and na.device is CPU else (b,))
    node = new_node(op)
    node.dtype, node.device = na.dtype, na.device
    node.flags = CLONE if cloned else 0
    shape_of_pair(node, na, nb, r)
    if req:
        save_pair(tape, node, na, nb, a, b)
    if nb is None:
        node.x1 = b
        node.flags |= SCALAR1
    else:
        node.in1 = nb
        nb.live += 1
    return concluded(tape, node, na, e, moves, op.unit and nb is None and tape.optimize and b == 1 and denormals_survive(), r,
                     switch)


cdef inline bint number_key(object b, int64_t *key, uint64_t *kind) except -1:
    """Note the key of a Python number; False where it has none."""
    cdef double number
    if type(b) is float:
        number = b
        memcpy(key, &number, 8)
        kind[0] = 1
        return True
    if not -(1 << 53) < b < (1 << 53):
        return False
    key[0] = b
    kind[0] = 2
    return True


cdef inline Entry *pair_entry(Tape tape, Op op, Node na, Node nb, object a, object b, int64_t kb, uint64_t kind) except NULL:
    """The entry of two operands in the value table."""
    cdef Entry *e
    if nb is not None and op.flags & COMMUTATIVE and kb < na.vn:
        e = find(tape.table, kb, na.vn, kind)
    else:
        e = find(tape.table, na.vn, kb, kind)
    if e.first != NULL and nb is not None and (<Node>e.first).in0.vn != na.vn and len(<tuple>na.shape) \
            and len(<tuple>nb.shape) and a.stride() != b.stride():
        e = find(tape.table, na.vn, kb, kind | (1 << 7))   # operands in another order: equal values, another layout
        tape.layouts = True
    return e


cdef inline int shape_of_pair(Node node, Node na, Node nb, object r) except -1:
    """Write the shape of a result, one object for equal shapes (compared by identity first), and who was broadcast."""
    if nb is None or nb.shape is na.shape:
        node.shape = na.shape
    elif len(<tuple>nb.shape) == 0 and len(<tuple>na.shape):
        node.shape = na.shape
        node.flags |= UNBROADCAST1
    elif len(<tuple>na.shape) == 0 and len(<tuple>nb.shape):
        node.shape = nb.shape
        node.flags |= UNBROADCAST0
    elif same_shape(nb.shape, na.shape):
        node.shape = na.shape
    else:
        node.shape = shape_of(r)
        if not same_shape(nb.shape, node.shape):
            node.flags |= UNBROADCAST1
        if not same_shape(na.shape, node.shape):
            node.flags |= UNBROADCAST0
    return 0


cdef inline int save_pair(Tape tape, Node node, Node na, Node nb, object a, object b) except -1:
    """Save what the rules of a result that requires grad read of one or two operands."""
    cdef Op op = node.op
    cdef uint32_t mask = 0
    node.flags |= REQUIRES_GRAD
    if awaits(op, na):
        mask = op.need0
    if nb is None:
        mask &= ~op.lean
    elif awaits(op, nb):
        mask |= op.need1
    if mask & 1:
        node.x0 = a
        node.v0 = save(tape, na, a)
    if mask & 2 and nb is not None:
        node.x1 = b
        node.v1 = save(tape, nb, b)
    if mask >> 31:
        node.flags |= NEEDS_ANS
    return 0


cdef inline object concluded(Tape tape, Node node, Node na, Entry *e, Py_ssize_t moves, bint same, object r, size_t *switch):
    """Number the node of `r`, and attach it; `same`: is the result its operand, bit for bit?"""
    leave(tape, switch[0])               # what `attach` lets go of may be the user's
    switch[0] = 0
    node.in0 = na
    na.live += 1
    numbered(tape, node, e, moves)
    if same:
        tape.keep_number(node, r)
    if tape.sources:
        current_source(node)
    attach_strided(tape, node, r)        # made elementwise of operands that have strides
    return r


cdef int numbered(Tape tape, Node node, Entry *e, Py_ssize_t moves) except -1:
    """`finish`, but where the entry is no longer there: a dispatch mode of the user's may have recorded in the kernel."""
    if e != NULL and tape.table.moves != moves:
        node.vn = fresh_vn()
        return 0
    return finish(tape, node, e, tape.optimize)


cdef inline int finish(Tape tape, Node node, Entry *e, bint optimize) except -1:
    """Give the node its value number, or that of the first node with the same key."""
    cdef Node first
    if e == NULL:
        node.vn = fresh_vn() if optimize else 0
        return 0
    tape.keyed += 1
    if e.first == NULL:
        node.vn = fresh_vn()
        e.first = node.holder = <PyObject *>node
        tape.table.used += 1
        learn(node, None)
        return 0
    first = <Node>e.first
    learn(node, first)
    node.vn = first.vn
    if first.flags & (DEAD | FREED):         # the number outlives its value; the leader does not
        e.first = node.holder = <PyObject *>node
    else:
        node.leader = first
        first.live += 1
        tape.merges.twins += 1
        if node.flags & REQUIRES_GRAD:
            tape.merges.merging += 1
        first.holder = <PyObject *>node
    return 0


cdef object fast_unary(Kernel k, object a, bint asked=False):
    """The same for one operand; `asked`: the caller knows that autocast is off."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    cdef bint grad
    cdef size_t switch
    if tp == NULL:
        return None
    tape = <Tape>tp
    if not tape.plain or tape.guarded or not ordinary(a) or not asked and ao_casts(any_autocast):
        return None
    grad = grad_on()
    if not grad and (tape.optimize and not settled() or not ao_plain(a)):
        return None
    switch = enter(tape)
    try:
        return single(k, a) if untouched(tape, a, None, grad) else recorded_single(tape, k, a, grad, &switch)
    except NotImplementedError:          # a tensor of an unusual kind, which the general path judges
        return None
    finally:
        leave(tape, switch)


cdef inline object single(Kernel k, object a):
    """The kernel of one operand, whose result begins at version 0."""
    cdef object r = ao_single(k.direct, k.descr, a)
    ao_start(r, 1, 0)
    return r


cdef object recorded_single(Tape tape, Kernel k, object a, bint grad, size_t *switch):
    """`recorded_pair` for one operand."""
    cdef Op op = k.op
    cdef Node na = handle(tape, a), node
    cdef bint req, cloned = False
    cdef Entry *e = NULL
    cdef object r = None
    cdef Py_ssize_t moves = 0
    if not is_float(na.dtype) or na.flags & SPARSE:
        return None
    req = grad and na.flags & REQUIRES_GRAD != 0 and not ao_is_inference(is_inference, a)
    if tape.optimize:
        if not req or not settled_after(MORE_MISSES):
            e = find(tape.table, na.vn, 0, (grad << 2) | (req << 3) | (<uint64_t>op.id << 8))
            if e.first != NULL:
                r = reuse(tape, op, <Node>e.first, req)
                cloned = r is not None and not tape.moved
        moves = tape.table.moves
    elif not req:
        return single(k, a)
    if r is None:
        r = single(k, a)
    node = new_node(op)
    node.shape, node.dtype, node.device = na.shape, na.dtype, na.device
    if cloned:
        node.flags = CLONE
    if req:
        save_pair(tape, node, na, None, a, None)
    return concluded(tape, node, na, e, moves, op.keeps is not None and tape.optimize, r, switch)
