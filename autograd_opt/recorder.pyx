"""The recorder's hot path: operators of CustomTensor, and `apply` for everything else."""

import torch

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from autograd_opt.ctorch cimport ao_builtin0, ao_get, ao_method, ao_method0, ao_try_attr
from autograd_opt.node cimport (
    CLONE, COMMUTATIVE, DEAD, ELEMENTWISE, ESCAPED, FIX0, FIX1, FIXN, LEAF, MULTI, MOVES, NEEDS_ANS, NO_MERGE, OVERWRITTEN,
    PURE, REDUCES, REQUIRES_GRAD, SCALAR0, SCALAR1, SPENT, VARIADIC, VIEW, Entry, Node, Op, Tape, attach,
    current_source, encode, encode_attributes, fresh_vn, handle, is_float, known_value, release_handle, new_node, recording, same_device, set_paused, shape_of,
    version_of,
)

from autograd_opt.node cimport PACKED

from autograd_opt.node import unusual

cdef object base = torch._C.TensorBase
cdef object lazy_clone = base.__dict__["_lazy_clone"]
cdef object is_inference = base.__dict__["is_inference"]
cdef object DType = torch.dtype
cdef object Size = torch.Size
cdef object is_view = base.__dict__["_is_view"]
cdef object get_requires_grad = base.__dict__["requires_grad"]
cdef object NODE = "_node"
cdef object MARK = "_requires_grad"
cdef object get_dtype = base.__dict__["dtype"]
cdef object get_device = base.__dict__["device"]
cdef object guard_enter = torch._C.DisableTorchFunction.__dict__["__enter__"]
cdef object guard_exit = torch._C.DisableTorchFunction.__dict__["__exit__"]
cdef object grad_enabled = torch._C.is_grad_enabled
cdef object all_disabled = torch._C._is_torch_function_all_disabled
cdef object any_autocast = torch._C._is_any_autocast_enabled
cdef tuple NOTHING = (None, None, None)
cdef tuple EMPTY = ()
cdef object CustomTensor = None
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object slow_call = None             # dispatch.call, set by install()
cdef Op OUTPUT = None

cdef inline bint grad_on():
    return ao_builtin0(grad_enabled) is True


cdef inline bint ordinary(object t):
    """A tensor without a behaviour of its own."""
    return type(t) is CustomTensor or type(t) is Tensor or type(t) is Parameter


cdef inline bint tracked(Tape tape, object t) except -1:
    """Does `t` require grad?  Asked before anything is registered for it."""
    cdef PyObject *p
    if type(t) is not CustomTensor:
        if ao_get(get_requires_grad, t) is True:
            return True
        # a view made before its base took part in a recorded write
        return tape.late and t._is_view() and handle(tape, t).flags & REQUIRES_GRAD != 0
    p = ao_try_attr(t, NODE)
    if p != NULL:
        found = <object>p
        Py_DECREF(found)
        if found is not None and not (<Node>found).flags & LEAF:
            return (<Node>found).flags & REQUIRES_GRAD != 0
    return getattr(t, MARK, False)


cdef object clone_of(object value):
    """A copy-on-write clone; None where the memory cannot be shared so (under vmap, say)."""
    try:
        return ao_method0(lazy_clone, value)
    except RuntimeError:
        return None


cdef Tape tape_here():
    """The tape that records now; an error where none does."""
    cdef PyObject *tp = recording()
    if tp == NULL:
        from autograd_opt.errors import OutsideGraphError, at
        raise OutsideGraphError(at("an operation was to be recorded while no AutogradGraph records in this thread"))
    return <Tape>tp


cdef uint32_t saved_version(object t) except? 4294967295:
    """The version of a tensor about to be saved; an inference tensor cannot be."""
    if ao_method0(is_inference, t) is True:
        from autograd_opt.errors import inference_saved
        raise inference_saved()
    return version_of(t)


cdef object reuse(Tape tape, Op op, Node first, bint req):
    """A copy-on-write clone of the value that `first` leads; None, counted, where it must be computed again."""
    cdef object value = known_value(tape, first), r = None
    cdef Py_ssize_t size
    if value is not None and (op.kernel is None or not req or extra_of(<Node>first.holder) is not None):
        r = clone_of(value)
    if r is None:
        tape.missed(first)
        return None
    tape.hits += 1
    size = tape.nbytes(first.shape, first.dtype)
    tape.saved_bytes += size
    tape.reused_bytes += size
    return r


cdef class Kernel:
    """One C-level method of TensorBase and the operator it computes."""
    cdef object descr
    cdef Op op
    cdef object slow
    cdef int arity

    def __init__(self, name, Op op, slow):
        self.descr = base.__dict__[name]
        self.op = op
        self.slow = slow
        self.arity = len(op.operands)


cdef inline bint inside_kernel():
    """Is this a call of torch's own or of a kernel's, which are not recorded piece by piece?"""
    cdef PyObject *tp = recording()
    return tp != NULL and (<Tape>tp).guarded and ao_builtin0(all_disabled) is True


cdef inline object binary(Kernel k, object a, object b):
    """a op b, one of them a CustomTensor."""
    cdef object r = fast_binary(k, a, b)
    if r is None:
        if is_tensor(a) and inside_kernel():
            return ao_method(k.descr, a, (b,))
        return k.slow(a, b)
    return r


cdef object fast_binary(Kernel k, object a, object b):
    """The hot path; None where the general one is needed (and nothing has been recorded)."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    cdef Node na, nb = None, node
    cdef Op op = k.op
    cdef bint req
    cdef uint32_t mask = 0
    cdef uint64_t kind = 0
    cdef int64_t kb = 0
    cdef double number
    cdef Entry *e = NULL
    cdef bint cloned = False
    cdef object tb, r = None
    if tp == NULL:
        return None
    tape = <Tape>tp
    if not tape.plain or tape.guarded or not ordinary(a) or tape.optimize and not grad_on():
        return None
    tape.guarded = True
    ao_method0(guard_enter, tape.guard)
    try:
        if not tape.optimize and not tracked(tape, a) and not (ordinary(b) and tracked(tape, b)):
            return ao_method(k.descr, a, (b,))
        na = handle(tape, a)
        if not is_float(na.dtype):
            return None
        tb = type(b)
        if tb is float:
            number = b
            memcpy(&kb, &number, 8)
            kind = 1
        elif tb is int:
            if not -(1 << 53) < b < (1 << 53):
                return None
            kb = b
            kind = 2
        elif ordinary(b):
            nb = handle(tape, b)
            if nb.dtype is not na.dtype or nb.device is not na.device:
                return None
            kb = nb.vn
        else:
            return None
        req = grad_on()
        kind |= (req << 2)
        req = req and (na.flags | (0 if nb is None else nb.flags)) & REQUIRES_GRAD
        if tape.optimize:
            kind |= (req << 3) | (<uint64_t>op.id << 8)
            if nb is not None and op.flags & COMMUTATIVE and kb < na.vn:
                e = tape.find(kb, na.vn, kind)
            else:
                e = tape.find(na.vn, kb, kind)
            if e.first != NULL and nb is not None and (<Node>e.first).in0.vn != na.vn and a.stride() != b.stride():
                e = tape.find(na.vn, kb, kind | (1 << 7))   # operands in another order: equal values, another layout
            if e.first != NULL:
                r = reuse(tape, op, <Node>e.first, req)
                cloned = r is not None
        elif not req:
            return ao_method(k.descr, a, (b,))
        if r is None:
            r = ao_method(k.descr, a, (b,))
        node = new_node(op)
        if nb is None or nb.shape is na.shape or nb.shape == na.shape:
            node.shape = na.shape
        else:
            node.shape = shape_of(r)
            if nb.shape != node.shape:
                mask |= FIX1
            if na.shape != node.shape:
                mask |= FIX0
        node.dtype = na.dtype
        node.device = na.device
        node.flags = mask
        if cloned:
            node.flags |= CLONE
        if req:
            node.flags |= REQUIRES_GRAD
            mask = 0
            if na.flags & REQUIRES_GRAD:
                mask = op.need0
            if nb is not None and nb.flags & REQUIRES_GRAD:
                mask |= op.need1
            if mask & 1:
                node.x0 = a
                node.v0 = save(tape, na, a)
            if mask & 2 and nb is not None:
                node.x1 = b
                node.v1 = save(tape, nb, b)
            if mask & 0x80000000:
                node.flags |= NEEDS_ANS
    except NotImplementedError:          # a tensor of an unusual kind, which the general path judges
        return None
    finally:
        tape.guarded = False
        ao_method(guard_exit, tape.guard, NOTHING)
    node.in0 = na
    na.live += 1
    if nb is None:
        node.x1 = b
        node.flags |= SCALAR1
    else:
        node.in1 = nb
        nb.live += 1
    finish(tape, node, e)
    if nb is None and tape.algebra and op.number_symbol and (b == 1 or b == 0 or b == -1):
        tape.recognize(node, r)
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return r


cdef inline int finish(Tape tape, Node node, Entry *e) except -1:
    """Give the node its value number, or that of the first node with the same key."""
    cdef Node first
    if e == NULL:
        node.vn = 0
        return 0
    if e.first == NULL:
        node.vn = fresh_vn()
        e.first = node.holder = <PyObject *>node
        tape.used += 1
        return 0
    first = <Node>e.first
    node.vn = first.vn
    if first.flags & (DEAD | SPENT):         # the number outlives its value; the leader does not
        e.first = node.holder = <PyObject *>node
    else:
        node.leader = first
        first.live += 1
        tape.twins += 1
        first.holder = <PyObject *>node
    return 0


cdef inline object unary(Kernel k, object a):
    cdef object r = fast_unary(k, a)
    if r is None:
        return ao_method(k.descr, a, EMPTY) if inside_kernel() else k.slow(a)
    return r


cdef object fast_unary(Kernel k, object a):
    cdef PyObject *tp = recording()
    cdef Tape tape
    cdef Node na, node
    cdef Op op = k.op
    cdef bint req
    cdef uint64_t kind
    cdef Entry *e = NULL
    cdef bint cloned = False
    cdef object r = None
    if tp == NULL:
        return None
    tape = <Tape>tp
    if not tape.plain or tape.guarded or not ordinary(a) or ao_builtin0(any_autocast) is True \
            or tape.optimize and not grad_on():
        return None
    tape.guarded = True
    ao_method0(guard_enter, tape.guard)
    try:
        if not tape.optimize and not tracked(tape, a):
            return ao_method(k.descr, a, EMPTY)
        na = handle(tape, a)
        if not is_float(na.dtype):
            return None
        req = grad_on()
        kind = req << 2
        req = req and na.flags & REQUIRES_GRAD
        if tape.optimize:
            kind |= (req << 3) | (<uint64_t>op.id << 8)
            e = tape.find(na.vn, 0, kind)
            if e.first != NULL:
                r = reuse(tape, op, <Node>e.first, req)
                cloned = r is not None
        elif not req:
            return ao_method(k.descr, a, EMPTY)
        if r is None:
            r = ao_method(k.descr, a, EMPTY)
        node = new_node(op)
        node.shape, node.dtype, node.device = na.shape, na.dtype, na.device
        if cloned:
            node.flags = CLONE
        if req:
            node.flags |= REQUIRES_GRAD
            if op.need0 & 1:
                node.x0 = a
                node.v0 = save(tape, na, a)
            if op.need0 & 0x80000000:
                node.flags |= NEEDS_ANS
    except NotImplementedError:          # a tensor of an unusual kind, which the general path judges
        return None
    finally:
        tape.guarded = False
        ao_method(guard_exit, tape.guard, NOTHING)
    node.in0 = na
    na.live += 1
    finish(tape, node, e)
    if op.values_only and tape.algebra and na.in0 is not None and (na.op.values_only or na.op.number_symbol):
        tape.recognize(node, r)
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return r


# Everything that has no hot path ------------------------------------------------------
cdef inline object enter(Tape tape):
    """Switch torch functions off; what `leave` needs: None where they are off already.

    The tape's own switch cannot be entered twice, so a region inside a region takes part in
    the outer one, or a switch of its own where user code has turned torch functions on.
    """
    cdef object switch
    if tape.guarded:
        if ao_builtin0(all_disabled) is True:
            return None
        switch = torch._C.DisableTorchFunction()
    else:
        tape.guarded = True
        switch = tape.guard
    ao_method0(guard_enter, switch)
    return switch


cdef inline int leave(Tape tape, object switch) except -1:
    if switch is None:
        return 0
    if switch is tape.guard:
        tape.guarded = False
    ao_method(guard_exit, switch, NOTHING)
    return 0


def run_raw(func, args, kwargs):
    """Call `func` with every torch-function route switched off."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    if tp == NULL:
        return func(*args, **kwargs)
    tape = <Tape>tp
    switch = enter(tape)
    try:
        return func(*args, **kwargs) if kwargs else func(*args)
    finally:
        leave(tape, switch)


def apply(Op op, func, tuple args, dict kwargs, tuple operands, dict attrs):
    """Run `func(*args, **kwargs)` and record it as `op`.

    `operands` are the tensors, numbers or None that the rule calls by name, `attrs` the
    rest.  Returns what the function returned, with nodes on its tensors when the result
    requires grad, or when values are numbered (`optimize=True`).
    """
    cdef PyObject *tp = recording()
    cdef Tape tape
    if tp == NULL:
        return func(*args, **kwargs)
    tape = <Tape>tp
    switch = enter(tape)
    try:
        if tape.plain and len(operands) <= 3 and not op.flags & (MULTI | VARIADIC):
            return apply_few(tape, op, func, args, kwargs, operands, attrs)
        return apply_guarded(tape, op, func, args, kwargs, operands, attrs)
    finally:
        leave(tape, switch)


cdef inline bint is_tensor(object t):
    cdef object kind = type(t)
    return kind is CustomTensor or kind is Tensor or kind is Parameter or \
        not (t is None or kind is float or kind is int or kind is bool) and isinstance(t, Tensor)


cdef inline uint32_t save(Tape tape, Node n, object t) except? 4294967295:
    """The version under which `t` is saved; what `handle` has checked is not asked again."""
    return n.version if tape.optimize and not n.flags & ESCAPED else saved_version(t)


cdef object apply_few(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs):
    """`apply` for at most three operands and one output, without hooks on saved tensors."""
    cdef Py_ssize_t count = len(operands)
    cdef Node na = None, nb = None, nc = None, node
    cdef object a = None, b = None, c = None, r = None, extra = None, shape, dtype
    cdef bint grad = grad_on(), req = False, cloned = False, found = False, usual
    cdef uint32_t mask = 0, flags = 0
    cdef Entry *e = NULL
    if count > 0:
        a = operands[0]
        if count > 1:
            b = operands[1]
            if count > 2:
                c = operands[2]
    if not tape.optimize and not (op.differentiable and (
            is_tensor(a) and tracked(tape, a) or is_tensor(b) and tracked(tape, b) or is_tensor(c) and tracked(tape, c))):
        return func(*args, **kwargs) if kwargs else func(*args)
    try:
        if is_tensor(a):
            na = handle(tape, a)
            flags = na.flags
        if is_tensor(b):
            nb = handle(tape, b)
            flags |= nb.flags
        if is_tensor(c):
            nc = handle(tape, c)
            flags |= nc.flags
    except NotImplementedError:          # a tensor of an unusual kind
        return beyond(tape, op, func, args, kwargs, operands)
    req = grad and op.differentiable and flags & REQUIRES_GRAD
    if tape.optimize and op.flags & PURE and ao_builtin0(any_autocast) is not True:
        e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
        found = e != NULL and e.first != NULL
        if found and not op.flags & VIEW:
            r = reuse(tape, op, <Node>e.first, req)
            cloned = r is not None
            if cloned:
                extra = extra_of(<Node>(<Node>e.first).holder)
    if r is None:
        if op.kernel is not None and req:
            r, extra = op.kernel(*operands, **attrs) if attrs else op.kernel(*operands)
            if e != NULL:                        # a kernel is Python code, and may have moved the table
                e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)
        elif kwargs:
            r = func(*args, **kwargs)
        else:
            r = func(*args)
        if op.flags & VIEW and not grad and flags & REQUIRES_GRAD and op.differentiable and set_apart(r):
            return r
        if not (req or tape.optimize):
            return r
    if r is a or r is b or r is c:
        return r
    if type(r) is not Tensor and type(r) is not CustomTensor:
        return record_outputs(tape, op, [na, nb, nc][:count], operands, attrs, req, r, extra)
    dtype = ao_get(get_dtype, r)
    usual = is_float(dtype)
    if not usual and not (dtype.is_floating_point or dtype.is_complex):
        if not tape.optimize:
            return r
        req = False
    node = new_node(op)
    node.attrs = attrs if attrs else None
    node.dtype = dtype
    shape = None
    if op.flags & ELEMENTWISE and na is not None and (nb is None or nb.shape == na.shape) \
            and (nc is None or nc.shape == na.shape):
        shape = na.shape
    else:
        shape = shape_of(r)
    node.shape = shape
    if op.flags & MOVES or na is None:
        node.device = device_of(op, [na, nb, nc], r)
    else:
        node.device = na.device
    node.version = version_of(r)
    flags = CLONE if cloned else 0
    if tape.optimize and not grad and ao_method0(is_inference, r) is True:
        flags |= ESCAPED | NO_MERGE          # without a version counter a write goes unseen
    if req:
        flags |= REQUIRES_GRAD
        if na is not None and na.flags & REQUIRES_GRAD:
            mask = op.need0
            if op.flags & (ELEMENTWISE | REDUCES) and (na.dtype is not dtype or na.shape != shape):
                flags |= FIX0
        if nb is not None and nb.flags & REQUIRES_GRAD:
            mask |= op.need1
            if op.flags & (ELEMENTWISE | REDUCES) and (nb.dtype is not dtype or nb.shape != shape):
                flags |= FIX1
        if nc is not None and nc.flags & REQUIRES_GRAD:
            mask |= op.needs(2)
            if op.flags & (ELEMENTWISE | REDUCES) and (nc.dtype is not dtype or nc.shape != shape):
                flags |= FIXN
        if mask & 0x80000000:
            flags |= NEEDS_ANS
    node.flags = flags
    if count <= 2 and extra is None:
        if na is not None:
            if mask & 1:
                node.x0 = a
                node.v0 = save(tape, na, a)
            node.in0 = na
            na.live += 1
        elif a is not None:
            node.x0 = a
            node.flags |= SCALAR0
        if nb is not None:
            if mask & 2:
                node.x1 = b
                node.v1 = save(tape, nb, b)
            node.in1 = nb
            nb.live += 1
        elif b is not None:
            node.x1 = b
            node.flags |= SCALAR1
    else:
        save_more(tape, node, op, count, na, nb, nc, operands, mask, extra)
    if op.flags & VIEW and ao_method0(is_view, r) is True:
        node.view = True
    if e == NULL and tape.optimize:
        node.vn = fresh_vn()
    else:
        finish(tape, node, e)
        if op.values_only and tape.algebra:
            tape.recognize(node, r)
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return r


cdef int save_more(Tape tape, Node node, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands,
                   uint32_t mask, object extra) except -1:
    """Operands, and what is saved of them, where a node's own two places do not do."""
    cdef Node n
    cdef Py_ssize_t i
    cdef list values = [None] * count, versions = [0] * count, all_nodes = [na, nb, nc]
    for i in range(count):
        n = all_nodes[i]
        if n is None:
            values[i] = operands[i]
            if operands[i] is not None:
                node.attrs = {**(node.attrs or {}), op.operands[i]: operands[i]}
        else:
            if mask & (1 << i):
                values[i] = operands[i]
                versions[i] = save(tape, n, operands[i])
    node.more = (na, nb, nc) if count == 3 else (na, nb) if count == 2 else (na,) if count == 1 else ()
    node.saved_more = (values, versions, extra)
    for i in range(count):
        n = all_nodes[i]
        if n is not None:
            n.live += 1
    return 0


cdef enum:
    GENERAL = 64                 # apart from the keys of the hot operators
    PAIR = 32                    # an entry that only numbers a pair of operands
    NO_KEY = 1                   # in place of a digest: the call has no key


cdef inline uint64_t mix(uint64_t h, uint64_t x) noexcept:
    h = (h ^ x) * 0x9E3779B97F4A7C15ULL
    return h ^ (h >> 29)


cdef uint64_t digest(uint64_t h, object v) except? 0:
    """Mix an attribute's type and bits into `h`; TypeError for a value of unknown meaning."""
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
        h = mix(mix(h, 8), len(v))
        for x in v:
            h = digest(h, x)
        return h
    if t is DType:
        return mix(mix(h, 9), <uint64_t><size_t><PyObject *>v)
    if t is slice:
        return digest(digest(digest(mix(h, 10), v.start), v.stop), v.step)
    return mix(mix(h, 11), <uint64_t>hash(encode(v)))


cdef bint same(object a, object b) except -1:
    """Are two attribute values of one type and the same bits?  Sequences are compared by what they hold."""
    cdef object t = type(a)
    cdef double x, y
    if t is tuple or t is list or t is Size:
        if not (type(b) is tuple or type(b) is list or type(b) is Size) or len(a) != len(b):
            return False
        for p, q in zip(a, b):
            if not same(p, q):
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
        return same(a.start, b.start) and same(a.stop, b.stop) and same(a.step, b.step)
    if t is int or t is bool or t is str:
        return a == b
    return encode(a) == encode(b)


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
            if not same(operands[i], value):
                return False
    if (0 if first.attrs is None else len(first.attrs)) != expected:
        return False
    if attrs:
        for name, value in attrs.items():
            if name not in first.attrs or not same(value, first.attrs[name]):
                return False
    return True


cdef uint64_t digest_of(Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs) except? 0:
    """Of what a call's key holds beside its tensors; NO_KEY where something has no bits of its own."""
    cdef uint64_t h = 0
    cdef Py_ssize_t i
    try:
        if na is None and count > 0:
            h = digest(mix(h, 21), operands[0])
        if nb is None and count > 1:
            h = digest(mix(h, 22), operands[1])
        if nc is None and count > 2:
            h = digest(mix(h, 23), operands[2])
        if attrs:
            for name, value in attrs.items():
                h = digest(mix(h, <uint64_t>hash(name)), value)
    except TypeError:
        return NO_KEY
    return h if h > NO_KEY else 2


cdef dict default_dtypes = {}


cdef uint64_t default_number() except? 0:
    """The default dtype as a number from 1 to 7, in the bits of a kind that are free."""
    cdef uint64_t n = default_dtypes.setdefault(torch.get_default_dtype(), len(default_dtypes) + 1)
    return (n & 3) | (n >> 2) << 4


cdef Entry *key_of(Tape tape, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs,
                   bint req, bint grad) except? NULL:
    """The entry of a call in the value table, NULL where it has no key.

    A digest chooses the entry, and the attributes themselves decide: one digest for two calls
    costs another look, never a wrong answer.
    """
    cdef uint64_t rest = 0, kind = (<uint64_t>op.id << 8) | GENERAL | (req << 3) | (grad << 2)
    cdef int64_t second = 0 if nb is None else nb.vn
    cdef Entry *e
    if na is not None and not is_float(na.dtype) or nb is not None and not is_float(nb.dtype) \
            or nc is not None and not is_float(nc.dtype):
        kind |= default_number()                 # promotion may ask for it
    if attrs or na is None or nb is None and count > 1 or nc is None and count > 2:
        rest = digest_of(count, na, nb, nc, operands, attrs)
        if rest == NO_KEY:
            return NULL
        if tape.degenerate():
            rest = 0
    if nc is not None:
        e = tape.find(second, nc.vn, PAIR)
        if e.first == NULL:
            e.first = <PyObject *><size_t>fresh_vn()     # a number, not a node
            tape.used += 1
        second = <int64_t><size_t>e.first
    kind |= (rest & 0xFFFFFFFFFF) << 24
    while True:
        e = tape.find(0 if na is None else na.vn, second, kind)
        if e.first == NULL or same_rest(<Node>e.first, op, count, na, nb, nc, operands, attrs):
            return e
        kind += 1 << 24


cdef object apply_guarded(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands, dict attrs):
    cdef Node n, node, first
    cdef list nodes = []
    cdef bint req = False, grad = grad_on(), view = False, cloned = False
    cdef int paused
    cdef object r = None, key = None, extra = None, entry = None
    if not tape.optimize:
        for t in operands:
            if op.differentiable and isinstance(t, Tensor) and tracked(tape, t):
                break
        else:
            return func(*args, **kwargs) if kwargs else func(*args)
    try:
        for t in operands:
            if isinstance(t, Tensor):
                n = handle(tape, t)
                if n.flags & REQUIRES_GRAD:
                    req = True
                nodes.append(n)
            else:
                nodes.append(None)
    except NotImplementedError:
        return beyond(tape, op, func, args, kwargs, operands)
    req = req and grad and op.differentiable
    if tape.optimize and tape.plain and op.flags & PURE and not op.flags & MULTI:
        key = make_key(op, nodes, operands, attrs, req, grad)
        if key is not None:
            entry = tape.general.get(key)
            if entry is not None and not op.flags & VIEW:
                r = reuse(tape, op, <Node>entry, req)
                cloned = r is not None
                if cloned:
                    extra = extra_of(<Node>(<Node>entry).holder)
    if r is None:
        if op.kernel is not None and req:
            paused = set_paused(1)               # operators inside are part of this node
            try:
                r, extra = op.kernel(*operands, **(attrs or {}))
            finally:
                set_paused(paused)
        elif kwargs:
            r = func(*args, **kwargs)
        else:
            r = func(*args)
        if op.flags & VIEW and not grad and op.differentiable and any_requires(nodes):
            if set_apart(r):
                return r
        if not (req or tape.optimize):
            return r
        view = op.flags & VIEW and isinstance(r, Tensor) and r._is_view()
    if isinstance(r, Tensor):
        for t in operands:
            if t is r:
                return r
        if type(r) is not Tensor and type(r) is not CustomTensor:
            if req:
                from autograd_opt.errors import unsupported_result
                raise unsupported_result(r, op.name)
            return r
        if not tape.optimize and not (r.is_floating_point() or r.is_complex()):
            return r
        node = fill(tape, op, nodes, operands, attrs, req, r, extra)
        if view:
            node.view = True
        if cloned:
            node.flags |= CLONE
        if not tape.plain:
            pack_saved(tape, node, r)
        if key is None:
            node.vn = fresh_vn() if tape.optimize else 0
        elif entry is None:
            node.vn = fresh_vn()
            node.holder = <PyObject *>node
            tape.general[key] = node
        else:
            first = <Node>entry
            node.vn = first.vn
            if first.flags & (DEAD | SPENT):         # the number outlives its value; the leader does not
                node.holder = <PyObject *>node
                tape.general[key] = node
            else:
                node.leader = first
                first.live += 1
                tape.twins += 1
                first.holder = <PyObject *>node
        if op.values_only and tape.algebra and key is not None:
            tape.recognize(node, r)
        if tape.sources:
            current_source(node)
        attach(tape, node, r)
        return r
    return record_outputs(tape, op, nodes, operands, attrs, req, r, extra)


cdef object beyond(Tape tape, Op op, object func, tuple args, dict kwargs, tuple operands):
    """A call on a tensor that cannot be recorded: refused where a gradient would be lost, else run."""
    if grad_on() and op.differentiable and any([isinstance(t, Tensor) and tracked(tape, t) for t in operands]):
        refuse(operands, op.name)
    return func(*args, **kwargs) if kwargs else func(*args)


cdef int refuse(operands, str name) except -1:
    """Raise the error that is being handled, with the operation's name where a tensor's kind is the reason."""
    for t in operands:
        if unusual(t):
            from autograd_opt.errors import unsupported_operand
            raise unsupported_operand(t, name)
    raise


def nodes_or_refuse(list tensors, str name):
    """The node of each tensor; None where one cannot be recorded and none requires grad.

    Raises UnsupportedError where a gradient would be lost.
    """
    cdef Tape tape = tape_here()
    try:
        return [handle(tape, t) for t in tensors]
    except NotImplementedError:
        if grad_on() and any([tracked(tape, t) for t in tensors]):
            refuse(tensors, name)
        return None


cdef bint set_apart(object r) except -1:
    """Give views made under no_grad of a tensor that requires grad the node that torch's words describe."""
    cdef bint any_view = False
    from autograd_opt.views import apart
    for t in (r if isinstance(r, (tuple, list)) else (r,)):
        if type(t) is Tensor and t._is_view() and not t.is_inference():
            any_view = apart(t, True) is not None or any_view
    return any_view


cdef object extra_of(Node node):
    return None if node.saved_more is None else node.saved_more[2]


cdef object make_key(Op op, list nodes, tuple operands, dict attrs, bint req, bint grad):
    """What two calls must have in common to be one value; None where that cannot be said.

    A tuple compared element by element: value numbers as ints, everything else frozen so that
    values of different type or bits are never equal.
    """
    cdef Node n
    cdef list parts
    if ao_builtin0(any_autocast) is True:
        return None
    parts = [(op.id << 2) | (req << 1) | grad]
    try:
        for n, t in zip(nodes, operands):
            if n is None:
                parts.append(frozen(t))
            else:
                parts.append(n.vn)
                if not is_float(n.dtype):        # promotion may ask for the default dtype
                    parts.append(torch.get_default_dtype())
        if attrs:
            for name, value in attrs.items():
                parts.append(name)
                parts.append(frozen(value))
    except TypeError:
        return None
    return tuple(parts)


cdef object frozen(object v):
    """A hashable stand-in, equal exactly for values of one type and the same bits."""
    t = type(v)
    if v is None or t is str or t is DType:
        return v
    if t is bool:
        return b"T" if v else b"F"
    if t is int:
        return ("i", v)
    if t is tuple or t is list or t is Size:
        return ("(", *[frozen(x) for x in v])
    if t is slice:
        return ("l", frozen(v.start), frozen(v.stop), frozen(v.step))
    return encode(v)


cdef object device_of(Op op, list nodes, object r):
    """The device of a result: its first operand's, but for operators that move values."""
    cdef Node n
    if not op.flags & MOVES:
        for n in nodes:
            if n is not None and n.device is not None:
                return n.device
    return same_device(ao_get(get_device, r))


cdef Node fill(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=None):
    """A node with its operands, what its rules save, and the metadata of output `r`."""
    cdef Node node = new_node(op), n
    cdef uint32_t mask = 0, fix = 0
    cdef Py_ssize_t i, count = len(nodes)
    cdef object switch = enter(tape)
    node.attrs = attrs if attrs else None
    try:
        if r is not None:
            node.shape = shape_of(r)
            node.dtype = ao_get(get_dtype, r)
            node.device = device_of(op, nodes, r)
            node.version = version_of(r)
            if tape.optimize and not grad_on() and r.is_inference():
                node.flags |= ESCAPED | NO_MERGE         # without a version counter a write goes unseen
            if node.dtype.is_floating_point or node.dtype.is_complex:
                if req:
                    node.flags |= REQUIRES_GRAD
            else:
                req = False
        elif req:
            node.flags |= REQUIRES_GRAD
        if req:
            for i in range(count):
                n = nodes[i]
                if n is not None and n.flags & REQUIRES_GRAD:
                    mask |= op.needs(i)
                    if op.flags & (ELEMENTWISE | REDUCES) and (n.shape != node.shape or n.dtype is not node.dtype):
                        fix |= 1 << min(i, 2)
            if mask & 0x80000000:
                node.flags |= NEEDS_ANS
            if op.flags & ELEMENTWISE:
                for n in nodes:
                    if n is not None and n.dtype is not node.dtype:
                        fix = 7              # written in place: the rules compute in the wider type
                        break
        if fix & 1:
            node.flags |= FIX0
        if fix & 2:
            node.flags |= FIX1
        if fix & 4:
            node.flags |= FIXN
        if count <= 2 and extra is None and not op.flags & VARIADIC:
            if count > 0:
                node.in0 = nodes[0]
                if node.in0 is None:
                    if operands[0] is not None:
                        node.x0 = operands[0]
                        node.flags |= SCALAR0
                elif mask & 1:
                    node.x0 = operands[0]
                    node.v0 = saved_version(node.x0)
            if count > 1:
                node.in1 = nodes[1]
                if node.in1 is None:
                    if operands[1] is not None:
                        node.x1 = operands[1]
                        node.flags |= SCALAR1
                elif mask & 2:
                    node.x1 = operands[1]
                    node.v1 = saved_version(node.x1)
        else:
            node.more = tuple(nodes)
            values = [None] * count
            versions = [0] * count
            for i in range(count):
                if nodes[i] is None:
                    values[i] = operands[i]
                    if operands[i] is not None and not op.flags & VARIADIC:
                        node.attrs = {**(node.attrs or {}), op.operands[i]: operands[i]}
                elif mask & (1 << min(i, 30)):
                    values[i] = operands[i]
                    versions[i] = saved_version(operands[i])
            node.saved_more = (values, versions, extra)
    finally:
        leave(tape, switch)
    for n in nodes:
        if n is not None:
            n.live += 1
    return node


cdef int pack_saved(Tape tape, Node node, object r) except -1:
    """Hand everything that the node's rules save to the saved-tensor hooks that are on.

    Such a node is never merged: its hooks are part of what it does.
    """
    from autograd_opt.saved import pack, pack_extra
    cdef Py_ssize_t i
    node.flags |= NO_MERGE
    if not node.flags & REQUIRES_GRAD or node.op.flags & VARIADIC and node.op.joint is not None and not node.op.need0:
        return 0
    try:
        if node.x0 is not None and not node.flags & SCALAR0:
            node.x0 = pack(node.x0, node.in0)
        if node.x1 is not None and not node.flags & SCALAR1:
            node.x1 = pack(node.x1, node.in1)
        if node.saved_more is not None:
            values, versions, extra = node.saved_more
            values = [t if n is None or t is None else pack(t, n) for t, n in zip(values, node.more)]
            node.saved_more = (values, versions, pack_extra(extra))
        if node.flags & NEEDS_ANS and r is not None:
            node.value = pack(r, node, True)
            if type(node.value) is not CustomTensor and type(node.value) is not Tensor:
                node.flags |= PACKED
            else:
                node.value = None
    except BaseException:
        tape.unlink(node)
        raise
    return 0


cdef object record_outputs(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=None):
    """One node for the call, and one `output` node for each of its tensors."""
    cdef Node parent, node
    cdef Py_ssize_t i
    if not isinstance(r, (tuple, list)):
        if req and isinstance(r, Tensor):
            from autograd_opt.errors import unsupported_result
            raise unsupported_result(r, op.name)
        return r
    parent = fill(tape, op, nodes, operands, attrs, req, None, extra)
    if not tape.plain:
        pack_saved(tape, parent, None)
    parent.vn = fresh_vn()
    if tape.sources:
        current_source(parent)
    metas = []
    tape.append(parent)
    parent.live = 1
    for i, t in enumerate(r):
        if type(t) is not Tensor and (type(t) is not CustomTensor or t._node is not None):
            metas.append(None)
            continue
        node = fill(tape, OUTPUT, [parent], (None,), {"i": i}, req, t)
        node.flags &= ~<uint32_t>SCALAR0
        node.vn = fresh_vn()
        if op.flags & VIEW:
            node.view = True
        node.code, node.lasti = parent.code, parent.lasti
        metas.append((node.shape, node.dtype, node.device))
        attach(tape, node, t)
    parent.shape = tuple(metas)
    tape.decrement(parent)
    return r


cdef bint any_requires(list nodes):
    cdef Node n
    for n in nodes:
        if n is not None and n.flags & REQUIRES_GRAD:
            return True
    return False


cdef list nodes_of(Tape tape, tuple operands):
    with torch._C.DisableTorchFunction():
        return [handle(tape, t) if isinstance(t, Tensor) else None for t in operands]


def record_node(Op op, tuple operands, dict attrs, r, bint requires_grad, extra=None):
    """Attach a node for `op` to the tensor `r`, computed already; returns the node.

    `extra` is what a VARIADIC operator saves beside its operands.
    """
    cdef Tape tape = tape_here()
    cdef list nodes = nodes_of(tape, operands)
    cdef Node node = fill(tape, op, nodes, operands, attrs, requires_grad, r, extra)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return node


def record_multi(Op op, tuple operands, dict attrs, outputs, bint requires_grad, extra=None):
    """Attach one node and its `output` nodes to the tensors in `outputs`."""
    cdef Tape tape = tape_here()
    cdef list nodes = nodes_of(tape, operands)
    return record_outputs(tape, op, nodes, operands, attrs, requires_grad, outputs, extra)


def record_write(Op op, list nodes, tuple operands, dict attrs, target, extra=None, versions=None):
    """Move `target`, whose memory has been written already, to a node of its own.

    `nodes` are the operands' nodes from before the write, `versions` the versions of the
    operands then: one that shares the target's memory is found to be written at backward.
    Returns the new node.
    """
    cdef Tape tape = tape_here()
    cdef Node node = fill(tape, op, nodes, operands, attrs, any_requires(nodes), target, extra)
    earlier_versions(node, versions)
    if not tape.plain:
        pack_saved(tape, node, target)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    release_handle(tape, target)
    if attach(tape, node, target) == 0 and target._is_view():
        node.view = True
    return node


def record_writes(Op op, list nodes, tuple operands, dict attrs, list targets, extra=None):
    """`record_write` for an operation with several outputs."""
    cdef Tape tape = tape_here()
    for t in targets:
        release_handle(tape, t)
    record_outputs(tape, op, nodes, operands, attrs, True, targets, extra)


cdef int earlier_versions(Node node, versions) except -1:
    """Of every operand but the written one, the version from before the write."""
    if versions is None:
        return 0
    if node.saved_more is not None:
        node.saved_more[1][1:] = list(versions[1:])
    elif len(versions) > 1:
        node.v1 = versions[1]
    return 0


def record_value(Op op, list nodes, tuple operands, dict attrs, value, extra=None, versions=None):
    """A node whose value no tensor of the user's shows: the written part of a base."""
    cdef Tape tape = tape_here()
    cdef Node node = fill(tape, op, nodes, operands, attrs, True, value, extra)
    earlier_versions(node, versions)
    if not tape.plain:
        pack_saved(tape, node, value)
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    if node.flags & NEEDS_ANS and not node.flags & PACKED:
        node.value = value.detach()
    tape.append(node)
    return node


# Tensors inside arguments and results. --------------------------------------------------
def collect(x, list out):
    """Append every tensor inside nested tuples, lists and dicts to `out`, in order."""
    if isinstance(x, Tensor):
        out.append(x)
    elif isinstance(x, (tuple, list)):
        for y in x:
            collect(y, out)
    elif isinstance(x, dict):
        for y in x.values():
            collect(y, out)


def substitute(x, dict by_id):
    """The same structure with every tensor replaced by `by_id[id(tensor)]`, where there is one."""
    cdef type t = type(x) if not isinstance(x, Tensor) else None
    if t is None:
        return by_id.get(id(x), x)
    if t is tuple:
        return tuple([substitute(y, by_id) for y in x])
    if t is list:
        return [substitute(y, by_id) for y in x]
    if isinstance(x, dict):
        return t([(k, substitute(y, by_id)) for k, y in x.items()])
    if isinstance(x, tuple):
        items = [substitute(y, by_id) for y in x]
        return t(*items) if hasattr(x, "_make") else t(items)
    return x


# The routes of the torch-function mode. ------------------------------------------------
cdef class Recorded:
    """How one operator is run: bound to operands and attributes, then recorded."""
    cdef Op op
    cdef object bind, rename, fallback, whole
    cdef Kernel kernel
    cdef Py_ssize_t n

    def __init__(self, Op op, bind, rename, fallback):
        from autograd_opt.opaque import handler
        self.kernel = KERNELS.get(op.name)
        self.whole = handler             # under autocast: torch casts, and differentiates the casts
        self.op, self.bind, self.rename, self.fallback = op, bind, rename, fallback
        # where every positional argument is an operand there is nothing to bind
        self.n = 0 if op.attributes or op.flags & VARIADIC else len(op.operands)

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp
        cdef Tape tape
        cdef tuple operands
        cdef dict attrs
        cdef object r, bound, switch
        if ao_builtin0(any_autocast) is True:
            return self.whole(func, args, kwargs)
        if self.kernel is not None and not kwargs and len(args) == self.kernel.arity:
            r = fast_unary(self.kernel, args[0]) if self.kernel.arity == 1 \
                else fast_binary(self.kernel, args[0], args[1])
            if r is not None:
                return r
        if not kwargs and self.n and len(args) == self.n:
            return apply(self.op, func, args, kwargs, args, None)
        tp = recording()
        if tp == NULL:
            return func(*args, **kwargs)
        if kwargs and kwargs.get("out") is not None:
            return self.fallback(func, args, kwargs)
        tape = <Tape>tp
        switch = enter(tape)                 # a binder reads shapes and types
        try:
            bound = self.bound(args, kwargs)
            if bound is not None:
                operands, attrs = bound
                return apply(self.op, func, args, kwargs, operands, attrs)
        finally:
            leave(tape, switch)
        return self.fallback(func, args, kwargs)

    cdef object bound(self, tuple args, dict kwargs):
        """Operands and attributes; None for a spelling that the table does not know."""
        try:
            return self.bind(*args, **self.rename(kwargs, self.op.operands)) if kwargs else self.bind(*args)
        except TypeError:
            return None


cdef class Chosen:
    """How an overloaded callable is run: its arguments say which operator it is."""
    cdef object pick, route, fallback
    cdef dict routes

    def __init__(self, pick, route, fallback):
        self.pick, self.route, self.fallback = pick, route, fallback
        self.routes = {}

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef object name, route, switch
        if tp == NULL:
            return func(*args, **kwargs)
        tape = <Tape>tp
        switch = enter(tape)
        try:
            name = self.pick(*args, **kwargs)
        except TypeError:
            name = None                      # torch decides whether it is valid
        finally:
            leave(tape, switch)
        if name is None:
            return self.fallback(func, args, kwargs)
        route = self.routes.get(name)
        if route is None:
            route = self.routes[name] = self.route(name)
        return (<Recorded>route).run(func, args, kwargs)


cdef class Decomposed:
    """Python code of torch's own, run with the mode on so that its calls are recorded one by one."""
    cdef object body, mode, whole
    cdef list running

    def __init__(self, body, mode, whole):
        self.body, self.mode, self.whole = body, mode, whole
        self.running = []

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        # a body that hands its own arguments back to the mode under the same name is taken whole
        for before in self.running:
            if len(before) == len(args) and all([a is b for a, b in zip(before, args)]):
                return self.whole(func, args, kwargs)
        self.running.append(args)
        push(self.mode)
        try:
            return self.body(*args, **kwargs)
        finally:
            pop()
            for i in range(len(self.running) - 1, -1, -1):
                if self.running[i] is args:      # another thread's may be above it
                    del self.running[i]
                    break


cdef class Raw:
    """Run without recording."""

    def __call__(self, func, args, kwargs):
        return run_raw(func, args, kwargs)


cdef object push = torch._C._push_on_torch_function_stack
cdef object pop = torch._C._pop_torch_function_stack
cdef dict handlers = {}
cdef object classify = None


cdef object Wrapper = type(Tensor.dtype.__get__)
cdef set plain_reads = {base.__dict__[name] for name in "shape dtype device ndim layout is_nested is_sparse is_cuda is_cpu is_meta \
is_quantized is_mkldnn is_mps is_xpu itemsize nbytes names".split() if name in base.__dict__}


def torch_function(self, func, types, args=(), kwargs=None):
    """The mode's `__torch_function__`: one dictionary look-up, then the callable's route."""
    if type(func) is Wrapper and len(args) == 1 and func.__self__ in plain_reads and func.__name__ == "__get__" \
            and ordinary(args[0]) and not kwargs:
        return func(*args)               # a property that is no operation
    handler = handlers.get(func)
    if handler is None:
        handler = handlers[func] = classify(func)
    if kwargs is None:
        kwargs = {}
    if type(handler) is Recorded:
        return (<Recorded>handler).run(func, args, kwargs)
    if type(handler) is Chosen:
        return (<Chosen>handler).run(func, args, kwargs)
    if type(handler) is Decomposed:
        return (<Decomposed>handler).run(func, args, kwargs)
    return handler(func, args, kwargs)


def install_routes(dict table, classifier, mode):
    """The dictionary of routes, what fills it on a callable's first sight, and the mode."""
    global handlers, classify, MODE
    handlers, classify, MODE = table, classifier, mode


# The operators of CustomTensor. --------------------------------------------------------
cdef dict KERNELS = {}                   # operator name -> Kernel
UNARY = tuple("""abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor lgamma log
    log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sin sinh sqrt square tan tanh trunc""".split())
BINARY = tuple("add sub mul div pow atan2 maximum minimum hypot".split())
DUNDER = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "neg": "__neg__",
          "pow": "__pow__", "abs": "__abs__"}


def unary_method(Kernel k):
    """The method of CustomTensor for one operand."""
    def method(self):
        return unary(k, self)
    return method


def binary_method(Kernel k):
    """The method of CustomTensor for two operands."""
    def method(self, other):
        return binary(k, self, other)
    return method


def reflected_method(Kernel k):
    """The method for `other op self`, where `self` is of the more special class."""
    def method(self, other):
        if type(other) is Tensor or type(other) is Parameter:
            return binary(k, other, self)     # the first operand decides about the layout
        return binary(k, self, other)
    return method


cdef object read(object descr, object t):
    """A property of a CustomTensor, without asking any torch-function mode."""
    if ao_builtin0(all_disabled) is True:
        return ao_get(descr, t)
    guard = torch._C.DisableTorchFunction()
    ao_method0(guard_enter, guard)
    try:
        return ao_get(descr, t)
    finally:
        ao_method(guard_exit, guard, NOTHING)


cdef object get_shape = base.__dict__["shape"]
cdef object get_ndim = base.__dict__["ndim"]


def p_shape(self):
    return read(get_shape, self)


def p_dtype(self):
    return read(get_dtype, self)


def p_device(self):
    return read(get_device, self)


def p_ndim(self):
    return read(get_ndim, self)


def t_dim(self):
    return read(get_ndim, self)


def t_size(self, dim=None):
    shape = read(get_shape, self)
    return shape if dim is None else shape[dim]


METHODS = tuple("""view reshape transpose permute unsqueeze squeeze contiguous flatten t sum mean matmul softmax
    log_softmax expand masked_fill clone unflatten amax logsumexp var std prod""".split())


def routed_method(func):
    """A method of CustomTensor that goes straight to its route, past the mode."""
    def method(*args, **kwargs):
        if recording() == NULL or (<Tape>recording()).guarded:
            return func(*args, **kwargs)
        handler = handlers.get(func)
        if type(handler) is Recorded:
            return (<Recorded>handler).run(func, args, kwargs)
        return func(*args, **kwargs)
    method.__name__ = func.__name__
    method.__doc__ = func.__doc__
    return method


cdef inline bint basic(object entry):
    """An index entry that makes a view."""
    return entry is None or entry is Ellipsis or type(entry) is int or type(entry) is slice and plain_slice(entry)


cdef inline bint plain_slice(object s):
    """Bounds that are numbers already, not tensors or objects that turn into one."""
    return (s.start is None or type(s.start) is int) and (s.stop is None or type(s.stop) is int) \
        and (s.step is None or type(s.step) is int)


# The operators' slots, written into the class: what Python calls for `a + b` itself, also where
# `a` is a plain tensor, since CustomTensor is a subclass of its class.
cdef extern from "Python.h":
    ctypedef struct PyNumberMethods:
        void *nb_add
        void *nb_subtract
        void *nb_multiply
        void *nb_true_divide
        void *nb_negative
        void *nb_matrix_multiply
    ctypedef struct PyMappingMethods:
        void *mp_subscript
    ctypedef struct PyTypeObject:
        PyNumberMethods *tp_as_number
        PyMappingMethods *tp_as_mapping

cdef Kernel ADD, SUB, MUL, DIV, NEG


cdef inline object operator(Kernel k, object a, object b, object reflected):
    """`a op b` for an operator's slot; `reflected` is the method of `b` for an `a` that is no tensor."""
    if type(a) is CustomTensor or ordinary(a):
        r = fast_binary(k, a, b)
        if r is not None:
            return r
        if type(a) is not CustomTensor or is_tensor(b) or type(b) is float or type(b) is int:
            return binary(k, a, b)
        try:
            return binary(k, a, b)
        except TypeError:
            if hasattr(type(b), reflected):
                return NotImplemented        # the other class may know what to do
            raise
    if is_tensor(a):
        return binary(k, a, b)
    return getattr(b, reflected)(a)


cdef object slot_add(object a, object b):
    return operator(ADD, a, b, "__radd__")


cdef object slot_sub(object a, object b):
    return operator(SUB, a, b, "__rsub__")


cdef object slot_mul(object a, object b):
    return operator(MUL, a, b, "__rmul__")


cdef object slot_div(object a, object b):
    return operator(DIV, a, b, "__rtruediv__")


cdef object slot_neg(object a):
    return unary(NEG, a)


cdef int install_slots(custom) except -1:
    """Write the slots; last, since giving a class a method rewrites its slot."""
    global ADD, SUB, MUL, DIV, NEG
    cdef PyTypeObject *kind = <PyTypeObject *><PyObject *>custom
    ADD, SUB, MUL, DIV, NEG = [KERNELS[name] for name in ("add", "sub", "mul", "div", "neg")]
    kind.tp_as_number.nb_add = <void *>slot_add
    kind.tp_as_number.nb_subtract = <void *>slot_sub
    kind.tp_as_number.nb_multiply = <void *>slot_mul
    kind.tp_as_number.nb_true_divide = <void *>slot_div
    kind.tp_as_number.nb_negative = <void *>slot_neg
    kind.tp_as_mapping.mp_subscript = <void *>t_getitem
    return 0


cdef object getitem = Tensor.__getitem__
cdef Op SLICE = None


cdef object t_getitem(object self, object index):
    """`self[index]`: straight to its operator where the index makes a view."""
    cdef PyObject *tp = recording()
    if tp == NULL or (<Tape>tp).guarded or ao_builtin0(any_autocast) is True:
        return getitem(self, index)
    if type(index) is tuple:
        for entry in index:
            if not basic(entry):
                return getitem(self, index)
        return apply(SLICE, getitem, (self, index), None, (self,), {"index": index})
    if basic(index):
        return apply(SLICE, getitem, (self, index), None, (self,), {"index": (index,)})
    return getitem(self, index)


def install(custom, Op output, dict ops, slow):
    """Bind the hot operators into `custom`; `slow(function)` gives each one's general route."""
    global CustomTensor, OUTPUT, SLICE
    CustomTensor, OUTPUT, SLICE = custom, output, ops["slice"]
    for name in UNARY + BINARY:
        if name not in ops:
            continue
        k = KERNELS[name] = Kernel(name, ops[name], slow(name))
        method = unary_method(k) if name in UNARY else binary_method(k)
        if name in DUNDER:
            setattr(custom, DUNDER[name], method)
        if name in UNARY and name not in ("round",):
            setattr(custom, name, method)
    # torch computes `number + self` as self.add(number), and the node says what was computed
    custom.__radd__, custom.__rmul__ = reflected_method(KERNELS["add"]), reflected_method(KERNELS["mul"])
    custom.shape, custom.dtype = property(p_shape), property(p_dtype)
    custom.device, custom.ndim = property(p_device), property(p_ndim)
    custom.dim, custom.size = t_dim, t_size
    for name in METHODS:
        setattr(custom, name, routed_method(getattr(Tensor, name)))
    custom.__matmul__ = routed_method(Tensor.matmul)         # torch knows the operator by this name
    install_slots(custom)


# torch's Python functions. --------------------------------------------------------------
cdef object original = torch.overrides.handle_torch_function
cdef object stack_size = torch._C._len_torch_function_stack
cdef object stack_at = torch._C._get_function_stack_at
cdef object MODE = None


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """`torch.overrides.handle_torch_function`, by a shorter way where the mode of this library is the innermost.

    torch's own asks every argument for its class and swaps the stack of modes through two
    context managers, which costs more than recording the call.
    """
    cdef PyObject *tp = recording()
    if tp == NULL or (<Tape>tp).guarded or MODE is None:
        return original(public_api, relevant_args, *args, **kwargs)
    n = stack_size()
    if n == 0 or stack_at(n - 1) is not MODE:
        return original(public_api, relevant_args, *args, **kwargs)
    pop()
    try:
        return torch_function(MODE, public_api, None, args, kwargs)
    finally:
        push(MODE)

