"""Node and Tape: what is recorded, who keeps it alive, and how values are numbered.

A `Tape` owns its nodes in record order; a tensor owns only its own node.  How long saved
tensors live is decided by a count in each node (alive consumers, plus one while the
node's tensor is alive), so a branch that the user drops is released at once, without
recursion and without a reference cycle, while the graph as written stays readable.
"""

from array import array
from collections import deque
import struct
import os
import sys
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_DECREF, Py_XDECREF
from libc.string cimport memcpy, memset

from autograd_opt.ctorch cimport (
    ao_builtin0, ao_frame, ao_frame_back, ao_frame_code, ao_frame_done, ao_frame_lasti, ao_frame_t, ao_get, ao_has_weakrefs, ao_set_type, ao_strip,
    ao_try_attr,
)
cimport cython

cdef extern from *:
    """
    static AO_THREAD PyObject *ao_active = NULL;   /* the Tape recording in this thread */
    static AO_THREAD int ao_paused = 0;
    """
    PyObject *ao_active
    int ao_paused

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object o, object name, object value) except -1
    Py_ssize_t Py_REFCNT(object o)
    void PyErr_Fetch(PyObject **t, PyObject **v, PyObject **tb)
    void PyErr_Restore(PyObject *t, PyObject *v, PyObject *tb)
    ctypedef void (*destructor)(PyObject *)
    ctypedef struct PyTypeObject:
        destructor tp_finalize
        unsigned long tp_flags
    int PyType_Modified(PyTypeObject *t)

cdef object _base = torch._C.TensorBase
cdef object get_version = _base.__dict__["_version"]
cdef object get_shape = _base.__dict__["shape"]
cdef object get_dtype = _base.__dict__["dtype"]
cdef object get_device = _base.__dict__["device"]
cdef object get_requires_grad = _base.__dict__["requires_grad"]
cdef object get_is_leaf = _base.__dict__["is_leaf"]
cdef object PlainTensor = torch.Tensor
cdef object CustomTensor = None          # set by install()
cdef object NODE = "_node"
cdef object MARK = "_requires_grad"
cdef int64_t _vn = 0
cdef int64_t _tape_ids = 0
cdef dict _tapes = {}                    # id -> address of the Tape, while it lives
cdef Py_ssize_t SMALL = 1 << 20          # bytes alive below which a peak is not worth a kernel
cdef Op LEAF_OP = None
cdef Op OUTPUT_OP = None
cdef Op WRITTEN_OP = None


cdef class Vjp:
    """One operand's vector-Jacobian product and what it reads."""

    def __init__(self, fn, tuple codes, tuple attributes, uint32_t needs):
        self.fn, self.codes, self.attributes, self.needs = fn, codes, attributes, needs


cdef class Op:
    """One line of the operator table; `autograd_opt.ops.table` builds these."""

    def __init__(self, str name, int id, tuple operands, dict attributes, uint32_t flags,
                 list vjps, joint=None, forward=None, int hot=0, kernel=None):
        self.name, self.id, self.operands, self.attributes = name, id, operands, attributes
        self.flags, self.vjps, self.joint, self.forward = flags, vjps, joint, forward
        self.hot, self.kernel = hot, kernel
        self.differentiable = joint is not None or any([v is not None for v in vjps])
        self.need0 = self.needs(0)
        self.need1 = self.needs(1)

    cdef uint32_t needs(self, int i):
        if self.joint is not None:
            return (<Vjp>self.joint).needs
        if i >= len(self.vjps) or self.vjps[i] is None:
            return 0
        return (<Vjp>self.vjps[i]).needs

    def saved_by(self, int i):
        """Bit mask of what the rule of operand `i` reads: bit k operand k, bit 31 the output."""
        return self.needs(i)

    def __str__(self):
        return self.name

    def __eq__(self, other):
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f"<Op {self.name}({', '.join(self.operands)})>"


@cython.no_gc
@cython.freelist(4096)
@cython.final
cdef class Node:
    """One recorded operation, or one leaf; also what `tensor.grad_fn` returns."""

    def __dealloc__(self):
        Py_XDECREF(self.cotangent)

    # What a node shows: the payload of the DAG.
    @property
    def attributes(self):
        """Attribute name to value; Python-number operands appear under their operand's name."""
        out = {}
        if self.flags & SCALAR0:
            out[self.op.operands[0]] = self.x0
        if self.flags & SCALAR1:
            out[self.op.operands[1]] = self.x1
        if self.attrs is not None:
            out.update(self.attrs)
        return out

    @property
    def raw_attributes(self):
        return self.attrs

    @property
    def operands(self):
        """Operand nodes in order; None where the operand is a Python number or absent."""
        if self.more is not None:
            return self.more
        n = len(self.op.operands)
        if self.in0 is None and self.in1 is None and not self.flags & (SCALAR0 | SCALAR1):
            return ()
        return (self.in0,) if n == 1 else (self.in0, self.in1)

    @property
    def shape(self):
        return self.shape

    @property
    def dtype(self):
        return self.dtype

    @property
    def device(self):
        return self.device

    @property
    def requires_grad(self):
        return bool(self.flags & REQUIRES_GRAD)

    @property
    def is_leaf(self):
        return bool(self.flags & LEAF)

    @property
    def is_constant(self):
        return bool(self.flags & LEAF) and not self.flags & REQUIRES_GRAD

    @property
    def index(self):
        return self.index

    @property
    def flags(self):
        return self.flags

    @property
    def version(self):
        """The version of the tensor's memory that this node stands for."""
        return self.version

    @property
    def value_number(self):
        return self.vn

    @property
    def leader(self):
        return self.leader

    @property
    def spent(self):
        return bool(self.flags & SPENT)

    @property
    def alive(self):
        return not self.flags & DEAD

    @property
    def hooks(self):
        return self.hooks

    @hooks.setter
    def hooks(self, value):
        self.hooks = value
        if value is not None:
            self.mark(PINNED)

    @property
    def view(self):
        return self.view

    @view.setter
    def view(self, value):
        self.view = value

    @property
    def tensor(self):
        """The tensor this node belongs to, or None once it is gone."""
        if self.flags & LEAF:
            return self.value() if isinstance(self.value, weakref.ref) else self.value
        return None if self.tensor == NULL else <object>self.tensor

    @property
    def source(self):
        """`file:line` of the user's code, or None where it was not recorded."""
        if self.code is None:
            return None
        line = None
        for start, stop, number in self.code.co_lines():
            if start <= self.lasti < stop:
                line = number
        return f"{self.code.co_filename}:{line}"

    def word(self):
        """(symbol, datum): what the rules of algebra call this operation; (0, 0) for nothing."""
        cdef int64_t datum = 0
        cdef int symbol = word_of(self, &datum)
        return symbol, datum

    @property
    def by_rule(self):
        """Is `leader` an equal value by a rule of algebra?"""
        return bool(self.flags & BY_RULE)

    @property
    def bytes(self):
        """Bytes of the output."""
        cdef Py_ssize_t n = 1
        for d in self.shape or ():
            n *= d
        return n * (0 if self.dtype is None else self.dtype.itemsize)

    def saved_tensors(self):
        """The tensors that this node's rules have saved and not yet released."""
        out = [t for t in (self.x0, self.x1, self.value) if isinstance(t, PlainTensor)]
        if self.saved_more is not None:
            out.extend([t for t in self.saved_more[0] if isinstance(t, PlainTensor)])
        return out

    def register_hook(self, fn):
        """Call `fn(grad_inputs, grad_outputs)` after this node's rule."""
        from autograd_opt.hooks import add, hooks_of
        return add(hooks_of(self).post, fn)

    def register_prehook(self, fn):
        """Call `fn(grad_outputs)` before this node's rule."""
        from autograd_opt.hooks import add, hooks_of
        return add(hooks_of(self).pre, fn)

    @property
    def metadata(self):
        """A dict of the user's own, kept with the node."""
        from autograd_opt.hooks import hooks_of
        return hooks_of(self).__dict__.setdefault("metadata", {})

    def pin(self):
        """Keep this node's own cotangent: it is never merged."""
        self.mark(PINNED)

    def mark(self, uint32_t flags):
        cdef Tape tape = tape_by_id(self.tape_id)
        self.flags |= flags
        if tape is not None:
            tape.changes += 1

    def name(self):
        """The operator's name, as `grad_fn.name()` gives it in torch."""
        if self.flags & LEAF:
            return "AccumulateGrad"
        if self.op is OUTPUT_OP:
            return (<Node>self.in0).name() if self.in0 is not None else "OutputBackward"
        if self.attrs is not None and "function" in self.attrs:
            return f"{self.attrs['function']}Backward"
        return f"{self.op.name.title().replace('_', '')}Backward"

    @property
    def variable(self):
        """The tensor that a leaf's node accumulates into."""
        return getattr(self, 'tensor') if self.flags & LEAF else None

    @property
    def next_functions(self):
        """(node, 0) for each operand that requires grad, (None, 0) for the others."""
        return tuple(
            edge(n) if n is not None and (<Node>n).flags & REQUIRES_GRAD and (<Node>n).op != "view_apart" else (None, 0)
            for n in self.operands
        )

    def __repr__(self):
        return f"<{self.name()} %{self.index}>" if not self.flags & LEAF else f"<leaf %{self.index}>"


cdef tuple edge(Node node):
    """(function, number of its output), as torch shows an operand."""
    if node.op is OUTPUT_OP and node.in0 is not None:
        return (node.in0, node.attrs["i"])
    return (node, 0)


cdef int word_of(Node node, int64_t *datum) except -1:
    """The symbol of a node, and its datum; 0 where no rule may speak of it.

    Nothing is said of an operation that does not require grad though an operand does: it was
    recorded where gradients are off.
    """
    cdef Op op = node.op
    cdef Node other
    cdef double number
    datum[0] = 0
    if not (op.symbol or op.number_symbol) or node.flags & LEAF or node.more is not None:
        return 0
    if not node.flags & REQUIRES_GRAD and (node.in0 is not None and node.in0.flags & REQUIRES_GRAD
                                           or node.in1 is not None and node.in1.flags & REQUIRES_GRAD):
        return 0
    if not op.values_only and not is_float(node.dtype):
        return 0
    if node.attrs is not None and node.attrs.get("alpha", 1) != 1:
        return 0
    if node.flags & (SCALAR0 | SCALAR1):
        value = node.x0 if node.flags & SCALAR0 else node.x1
        other = node.in1 if node.flags & SCALAR0 else node.in0
        if not op.number_symbol or node.flags & SCALAR0 and not op.flags & COMMUTATIVE or other.dtype is not node.dtype \
                or type(value) is not float and (type(value) is not int or not -(1 << 53) < value < 1 << 53):
            return 0
        number = value
        memcpy(datum, &number, 8)
        return op.number_symbol
    if op.datum is not None:
        value = op.datum(node)
        if value is None:
            return 0
        datum[0] = value
    return op.symbol


cdef int64_t fresh_vn():
    global _vn
    _vn += 1
    return _vn


cdef Tape active_tape():
    return None if ao_active == NULL else <Tape>ao_active


cdef PyObject *recording():
    """The tape that records in this thread now, borrowed, or NULL."""
    return NULL if ao_paused else ao_active


cdef int set_paused(int value):
    global ao_paused
    cdef int old = ao_paused
    ao_paused = value
    return old


cdef int release_handle(Tape tape, object t) except -1:
    """The tensor `t` is about to belong to a newer node than its own."""
    cdef PyObject *p
    cdef Node old
    tape.changes += 1
    if type(t) is CustomTensor:
        t.__dict__.pop(MARK, None)
        p = ao_try_attr(t, NODE)
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None:
                old = <Node>found
                if old.tensor == <PyObject *>t:
                    old.tensor = NULL
                    old.flags |= OVERWRITTEN
                    if old.flags & (CLONE | COUNTED):
                        tape.lost(old)
                    tape.decrement(old)
        PyObject_GenericSetAttr(t, NODE, None)
    tape.leaves.pop(id(t), None)
    return 0


def set_version(Node node, t):
    """Accept the present memory of `t` as the value of its node."""
    node.version = version_of(t)


def become_leaf(t):
    """Cut `t` off from what computed it; its next use registers a leaf."""
    cdef Tape tape = active_tape()
    if tape is None:
        PyObject_GenericSetAttr(t, NODE, None)
        return
    old = getattr(t, NODE, None) if type(t) is CustomTensor else None
    if old is not None and (<Node>old).flags & NEEDS_ANS and (<Node>old).live > 1 and not (<Node>old).flags & PACKED:
        (<Node>old).value = _base.detach(t)      # the rule goes on reading the value
        release_handle(tape, t)
        (<Node>old).flags &= ~<uint32_t>OVERWRITTEN
    else:
        release_handle(tape, t)


def wrote(t):
    """The memory of `t` was written outside the record: its next use is of a new value.

    With value numbers the version tells; without them this does.
    """
    cdef Tape tape = active_tape()
    cdef Node node
    if tape is None:
        return
    tape.changes += 1
    if tape.sources and t.layout is STRIDED_LAYOUT:
        tape.note_write(t)
    entry = tape.leaves.get(id(t))
    if entry is not None:
        (<Node>entry).flags |= WROTE
    elif not tape.optimize and type(t) is CustomTensor:
        node = getattr(t, "_node", None)
        if node is not None and node.tape_id == tape.id and node.view is None:
            tape.rewritten(node, t)


def pause():
    """Stop recording in this thread; returns what `resume` needs."""
    return set_paused(1)


def resume(int old):
    """Restore what `pause` or `resume` returned; returns the state until now."""
    return set_paused(old)


def get_active():
    return active_tape()


def get_recording():
    """The Tape that records in this thread now, or None."""
    return None if ao_paused or ao_active == NULL else <Tape>ao_active


def set_active_tape(Tape tape):
    """Make `tape` (held by its graph) the one recording in this thread; None for none."""
    global ao_active
    ao_active = NULL if tape is None else <PyObject *>tape


cdef object tape_by_id(int64_t id):
    address = _tapes.get(id)
    return None if address is None else <object><PyObject *><size_t>address


cdef int is_custom(object t):
    return type(t) is CustomTensor


cdef uint32_t version_of(object t) except? 4294967295:
    try:
        return <uint32_t>ao_get(get_version, t)
    except RuntimeError:                 # an inference tensor has no version counter
        return 0


cdef object shape_of(object t):
    return ao_get(get_shape, t)


cdef Node new_node(Op op):
    cdef Node node = Node.__new__(Node)
    node.op = op
    node.index = -1
    return node


cdef int attach(Tape tape, Node node, object tensor) except -1:
    """Make `tensor` a CustomTensor whose handle is `node`, and append the node."""
    if type(tensor) is PlainTensor:
        ao_set_type(tensor, CustomTensor)
    PyObject_GenericSetAttr(tensor, NODE, node)
    node.tensor = <PyObject *>tensor
    node.live = 1
    if tape.counting:
        tape.count(node)
    return tape.append(node)


cdef struct Known:
    PyObject *code
    bint internal

cdef Known _known[2048]                  # code objects by address: is it torch's or ours?
cdef dict _codes = {}                    # keeps them alive, so that an address stays one object's
cdef tuple INTERNAL_FOLDERS = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
)


cdef object current_source(Node node):
    """Remember the position (code object, instruction) of the innermost frame of the user's."""
    cdef ao_frame_t frame = ao_frame()
    cdef PyObject *code
    cdef Known *known
    while frame != NULL:
        code = ao_frame_code(frame)
        known = &_known[(<size_t>code >> 5) & 2047]
        if known.code != code:
            name = (<object>code).co_filename
            known.internal = name.startswith(INTERNAL_FOLDERS) or name.startswith("<frozen ")
            known.code = code
            _codes[<size_t>code] = <object>code
        if not known.internal:
            node.code = <object>code
            node.lasti = ao_frame_lasti(frame)
            ao_frame_done(frame)
            return None
        frame = ao_frame_back(frame)


cdef Node handle(Tape tape, object t):
    """The node of tensor `t` on `tape`, registering a leaf where there is none yet.

    The caller has switched torch functions off.  Raises GraphMismatchError when `t` lives on another graph.
    """
    cdef PyObject *p
    cdef Node node
    if type(t) is CustomTensor:
        p = ao_try_attr(t, NODE)
        if p != NULL:
            found = <object>p
            Py_DECREF(found)
            if found is not None:
                node = <Node>found
                if node.tape_id != tape.id:
                    if not node.flags & LEAF:
                        node = tape.adopt(t, node)
                    else:
                        return tape.leaf(t)
                elif node.flags & LEAF:
                    return tape.leaf(t)
                elif node.index < 0:
                    tape.append(node)
                if node.view is not None:
                    if version_of(t) != node.version:
                        return tape.refresh_view(node, t)
                    if tape.late and not node.flags & REQUIRES_GRAD:
                        from autograd_opt.views import late
                        later = late(t)
                        if later is not None:
                            return later
                if tape.optimize:
                    if version_of(t) != node.version:
                        return tape.rewritten(node, t)
                    if tape.escaped and not node.flags & ESCAPED and tape.shares_escaped(t):
                        node.mark(ESCAPED | NO_MERGE)
                    if node.flags & ESCAPED:
                        node.vn = fresh_vn()
                return node
    return tape.leaf(t)


def handle_of(t, bint register=True):
    """The node of `t` on the active tape; None when `register` is false and it has none."""
    cdef Tape tape = active_tape()
    if tape is None:
        return None
    if not register:
        node = getattr(t, "_node", None)
        if node is None or (<Node>node).flags & LEAF:
            return tape.leaves.get(id(t))
        return node if (<Node>node).tape_id == tape.id else None
    with torch._C.DisableTorchFunction():
        return handle(tape, t)


cdef void finalize(PyObject *self) noexcept:
    """tp_finalize of CustomTensor: its node learns that nobody holds the tensor any more.

    The value survives here, without its handle, when the rule still reads it or when it
    is kept for reuse; that needs neither a second tensor object nor a weak reference.
    """
    cdef PyObject *t
    cdef PyObject *v
    cdef PyObject *tb
    cdef PyObject *p
    PyErr_Fetch(&t, &v, &tb)
    p = ao_try_attr(<object>self, NODE)
    if p != NULL:
        found = <object>p
        Py_DECREF(found)
        try:
            if found is not None and (<Node>found).tensor == self:
                tensor_died(<Node>found, <object>self)
        except BaseException as error:  # a finalizer cannot raise
            print("autograd_opt: error while releasing a tensor:", repr(error), file=sys.stderr)
    PyErr_Restore(t, v, tb)


cdef int tensor_died(Node node, object tensor) except -1:
    cdef Tape tape
    cdef bint wanted
    node.tensor = NULL
    if ao_active != NULL and (<Tape>ao_active).id == node.tape_id:
        tape = <Tape>ao_active
    else:
        tape = tape_by_id(node.tape_id)
        if tape is None:
            return 0
    if node.flags & PACKED:
        tape.decrement(node)
        return 0
    wanted = node.flags & NEEDS_ANS and not node.flags & SPENT and node.live > 1
    if node.flags & CLONE or node.flags & COUNTED and not wanted:
        tape.lost(node, wanted)
    kept = tape.optimize and not node.flags & (NO_MERGE | ESCAPED | OVERWRITTEN) and tape.keep(node)
    if wanted or kept:
        if ao_has_weakrefs(tensor):
            tensor = torch._C.TensorBase.detach(tensor)
        else:
            ao_strip(tensor)                 # the user's attributes end with the user's tensor
        if type(tensor) is CustomTensor:
            ao_set_type(tensor, PlainTensor)
        node.value = tensor
    tape.decrement(node)
    return 0


@cython.no_gc_clear
cdef class Tape:
    """The staging area of one graph: nodes in record order, leaves, value table."""

    def __cinit__(self, bint optimize=False, bint sources=True, Py_ssize_t allowance=16 << 20):
        global _tape_ids
        _tape_ids += 1
        self.id = _tape_ids
        self.optimize = optimize
        self.sources = sources
        self.allowance = allowance
        self.plain = True
        self.capacity = 256
        self.nodes = <PyObject **>PyMem_Malloc(self.capacity * sizeof(PyObject *))
        self.trash = []
        self.leaves = {}
        self.general = {}
        self.ring = deque()
        self.passed = []
        self.escaped, self.seeds, self.writes = {}, {}, {}
        self.guard = torch._C.DisableTorchFunction()
        _tapes[self.id] = <size_t><PyObject *>self
        if optimize:
            self.allocate(128)

    def __dealloc__(self):
        global ao_active
        cdef Py_ssize_t i
        _tapes.pop(self.id, None)
        if ao_active == <PyObject *>self:
            ao_active = NULL
        for i in range(self.n):
            Py_XDECREF(self.nodes[i])
        PyMem_Free(self.nodes)
        PyMem_Free(self.table)

    def allocate(self, size_t capacity):
        PyMem_Free(self.table)
        self.table = <Entry *>PyMem_Malloc(capacity * sizeof(Entry))
        if self.table == NULL:
            raise MemoryError()
        memset(self.table, 0, capacity * sizeof(Entry))
        self.mask = capacity - 1
        self.used = 0

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
        cdef PyObject **grown
        if self.n >= self.floor:
            self.compact_if_due()
        if self.n == self.capacity:
            grown = <PyObject **>PyMem_Realloc(self.nodes, 2 * self.capacity * sizeof(PyObject *))
            if grown == NULL:
                raise MemoryError()
            self.nodes = grown
            self.capacity *= 2
        node.tape_id = self.id
        node.index = self.n
        Py_INCREF(node)
        self.nodes[self.n] = <PyObject *>node
        self.n += 1
        return 0

    cdef Node leaf(self, object t):
        """The node of the leaf `t`: its own, or `written` nodes above it once its memory changed.

        A write outside the record (under no_grad) makes a new value, to which the gradient of
        the leaf still belongs; so it gets a node of its own, with the identity as its rule.
        """
        cdef Node node, now
        cdef bint mark
        cdef uint32_t version
        entry = self.leaves.get(id(t))
        if type(t) is CustomTensor:
            mark = bool(getattr(t, MARK, False))
        else:
            mark = ao_get(get_requires_grad, t) is True
        if entry is not None and mark != bool((<Node>entry).flags & REQUIRES_GRAD):
            entry = None                 # what was recorded so far keeps the flag of its time
        if (self.late if not mark else entry is None and type(t) is not CustomTensor) and t._is_view():
            from autograd_opt.views import late, own_flag
            if not mark or not own_flag(t):
                node = late(t)
                if node is not None:
                    return node
        if entry is not None:
            node = <Node>entry
        else:
            if mark and type(t) is not CustomTensor and not ao_get(get_is_leaf, t):
                from autograd_opt.errors import foreign
                raise foreign(t)
            if type(t) is not PlainTensor and type(t) is not CustomTensor:
                require_ordinary(t)
            node = new_node(LEAF_OP)
            node.flags = LEAF
            self.describe(node, t)
            if self.optimize and (borrowed(t) or self.escaped and self.shares_escaped(t)):
                node.flags |= ESCAPED | NO_MERGE
            self.append(node)
            self.leaves[id(t)] = node
            if type(t) is CustomTensor:
                PyObject_GenericSetAttr(t, NODE, node)
        if entry is None:
            if mark:
                node.flags |= REQUIRES_GRAD
                node.value = t
            else:
                node.value = weakref.ref(t, self.forgetter(id(t), node))
        node.flags |= TOUCHED
        if entry is None or not (self.optimize or node.flags & WROTE):
            return node if node.view is None else <Node>node.view
        if self.escaped and not node.flags & ESCAPED and self.shares_escaped(t):
            node.mark(ESCAPED | NO_MERGE)
        now = node if node.view is None else <Node>node.view
        version = version_of(t)
        if version != now.version or node.flags & (ESCAPED | WROTE):
            node.flags &= ~<uint32_t>WROTE
            node.view = self.above(node, t)
            if now is not node:
                self.decrement(now)          # its leaf holds the newer one
            return <Node>node.view
        if now is not node:
            now.flags = (now.flags & ~<uint32_t>REQUIRES_GRAD) | (node.flags & REQUIRES_GRAD)
        return now

    def shares_escaped(self, t):
        """Does `t` lie in memory that is visible outside torch?"""
        return t.layout is STRIDED_LAYOUT and t.untyped_storage()._cdata in self.escaped

    def escape(self, t):
        """The memory of `t` can change unseen from now on."""
        self.changes += 1
        if t.layout is STRIDED_LAYOUT:
            storage = t.untyped_storage()
            self.escaped[storage._cdata] = storage

    cdef Node above(self, Node below, object t):
        """A `written` node for the present memory of the leaf `t`."""
        cdef Node node = new_node(WRITTEN_OP)
        node.flags = below.flags & (REQUIRES_GRAD | ESCAPED)
        node.in0 = below
        below.live += 1
        node.live = 1                    # held by its leaf
        self.describe(node, t)
        if self.sources:
            self.locate_write(node, t)
        self.append(node)
        return node

    def note_write(self, t):
        """Remember which line of the user's has written the memory of `t` without a record."""
        cdef Node place = new_node(WRITTEN_OP)
        current_source(place)
        memory = StorageWeakRef(t.untyped_storage())     # held, it keeps the address from being given away
        self.writes[memory.cdata] = (memory, place.code, place.lasti)

    def locate_write(self, Node node, t):
        """Give a `written` node the line of the write; none where the write was not seen."""
        seen = self.writes.get(t.untyped_storage()._cdata) if t.layout is STRIDED_LAYOUT else None
        node.code = None
        if seen is not None:
            node.code, node.lasti = seen[1], seen[2]

    cdef int describe(self, Node node, object t) except -1:
        """Metadata and a value number of its own, from the tensor itself."""
        try:
            node.shape = ao_get(get_shape, t)
        except RuntimeError:             # a nested tensor has none
            from autograd_opt.errors import unsupported_operand
            raise unsupported_operand(t)
        node.dtype = ao_get(get_dtype, t)
        node.device = same_device(ao_get(get_device, t))
        node.vn = fresh_vn()
        node.version = version_of(t)
        return 0

    def forgetter(self, key, Node node):
        """What to do when the constant behind a leaf node dies."""
        self_id = self.id

        def forget(_):
            tape = tape_by_id(self_id)
            if tape is not None and (<Tape>tape).leaves.get(key) is node:
                del (<Tape>tape).leaves[key]
        return forget

    def leaf_items(self):
        """(node, tensor) of every leaf whose tensor is alive."""
        return [(node, node.tensor) for node in list(self.leaves.values()) if node.tensor is not None]

    def rewritten(self, Node node, t):
        from autograd_opt.views import rewritten
        return rewritten(node, t)

    def adopt(self, t, Node node):
        """A tensor whose node belongs to another tape: refuse it, unless it is a mere value."""
        from autograd_opt.errors import graph_mismatch
        if not node.flags & REQUIRES_GRAD:
            return self.leaf(t)
        raise graph_mismatch(t, node, tape_by_id(node.tape_id), self)

    def refresh_view(self, Node node, t):
        from autograd_opt.views import refresh
        return refresh(self, node, t)

    # Value table -------------------------------------------------------------------
    cdef bint degenerate(self):
        """Are all hashes forced to be equal, so that only comparisons tell values apart?"""
        return degenerate

    cdef Entry *find(self, int64_t a, int64_t b, uint64_t kind) except NULL:
        """The entry of this key, empty (`first == NULL`) where it is new."""
        cdef uint64_t h
        cdef size_t i
        cdef Entry *e
        if 2 * self.used > self.mask:
            self.grow()
        h = (<uint64_t>a * 0x9E3779B97F4A7C15ULL) ^ (<uint64_t>b * 0xC2B2AE3D27D4EB4FULL) ^ (kind * 0x165667B19E3779F9ULL)
        h ^= h >> 29
        h *= 0xBF58476D1CE4E5B9ULL
        h ^= h >> 32
        if degenerate:
            h = 0
        i = <size_t>h & self.mask
        while True:
            e = &self.table[i]
            if e.first == NULL:
                e.a, e.b, e.kind = a, b, kind
                return e
            if e.a == a and e.b == b and e.kind == kind:
                return e
            i = (i + 1) & self.mask

    cdef int grow(self) except -1:
        cdef Entry *old = self.table
        cdef size_t n = self.mask + 1, i
        cdef Entry *e
        self.table = NULL
        self.allocate(2 * n)
        for i in range(n):
            if old[i].first != NULL:
                e = self.find(old[i].a, old[i].b, old[i].kind)
                e[0] = old[i]
                self.used += 1
        PyMem_Free(old)
        return 0

    # Lifetimes -----------------------------------------------------------------------
    cdef void release(self, Node node) noexcept:
        """Move everything the node saved to the trash."""
        if node.x0 is not None and not node.flags & SCALAR0:
            self.trash.append(node.x0)
            node.x0 = None
        if node.x1 is not None and not node.flags & SCALAR1:
            self.trash.append(node.x1)
            node.x1 = None
        if node.saved_more is not None:
            self.trash.append(node.saved_more)
            node.saved_more = None
        if node.value is not None and node.flags & NEEDS_ANS and not node.flags & KEPT:
            self.trash.append(node.value)
            node.value = None
        if node.flags & COUNTED and node.tensor == NULL:
            self.uncount(node)

    cdef void decrement(self, Node node) noexcept:
        node.live -= 1
        if node.live == 0 and not node.flags & LEAF:
            self.trash.append(node)
            self.drain()

    cdef void spend(self, Node node) noexcept:
        """A freeing backward run has executed `node`: drop what it saved."""
        if node.flags & (SPENT | LEAF):
            return
        node.flags |= SPENT
        self.changes += 1                # a leader that is spent can lead no more
        self.release(node)

    cdef void spend_twin(self, Node node, int64_t task) noexcept:
        """A freeing run has gone through the leader of `node` in its place: spend it, and the
        merged nodes below it, as if the run had passed through them.

        What lies on the way to the value that a rule of algebra names is not merged itself, so
        the run may still come to it for somebody else: it is spent when the run ends.
        """
        cdef Node twin
        cdef bint by_rule
        stack = [node]
        while stack:
            twin = <Node>stack.pop()
            if twin.flags & SPENT:
                continue
            if twin.flags & MERGED:
                by_rule = twin.flags & BY_RULE != 0
                self.spend(twin)
                twin.task = task         # spent by this run, which may come here again
            else:
                by_rule = True
                self.passed.append(twin)
            for other in twin.operands:
                if other is None:
                    continue
                if (<Node>other).flags & MERGED or by_rule and other is not twin.leader and passes_on(<Node>other, None):
                    stack.append(other)
                else:
                    (<Node>other).flags |= OWN
        self.drain()

    cdef void spend_passed(self, bint finished) noexcept:
        """The outermost run has ended: spend what it passed by, unless it failed."""
        cdef Node node
        if finished:
            for node in self.passed:
                self.spend(node)
            self.drain()
        self.passed.clear()

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

    cdef void drain(self) noexcept:
        """Free what is in the trash; a node there is dead.  Never recursive."""
        cdef Node node
        if self.sweeping:
            return
        self.sweeping = True
        while self.trash:
            item = self.trash.pop()
            if type(item) is Node:
                node = <Node>item
                if node.live == 0 and not node.flags & DEAD:
                    node.flags |= DEAD
                    if node.view is not None:
                        self.trash.append(node.view)
                        node.view = None
                    if node.hooks is not None:
                        self.trash.append(node.hooks)
                        node.hooks = None
                    if not node.flags & SPENT:
                        self.release(node)
                    self.unlink(node)
            item = None
        self.sweeping = False

    cdef Py_ssize_t nbytes(self, object shape, object dtype) except -1:
        cdef Py_ssize_t n
        if shape is self.last_shape and dtype is self.last_dtype:
            return self.last_bytes
        n = dtype.itemsize
        for d in shape:
            n *= d
        self.last_shape, self.last_dtype, self.last_bytes = shape, dtype, n
        return n

    cdef int missed(self, Node node) except -1:
        """A known value has to be computed again because it was not kept: allow to keep more.

        So a program without repeats keeps nothing, and its peak of memory is torch's.
        """
        self.recomputed += 1
        self.missed_bytes += self.nbytes(node.shape, node.dtype)
        if not self.counting and not self.advance:
            self.start_counting(0)
        return 0

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

    def start_counting(self, Py_ssize_t expected):
        """From now on, know the bytes that the program would have alive without any reuse.

        Views count for nothing, cotangents of runs that are not recorded neither.
        `expected` is the most that such a program is known to have alive at once.
        """
        cdef Py_ssize_t i
        cdef Node node
        self.counting, self.expected = True, expected
        for i in range(self.n):
            node = <Node>self.nodes[i]
            if node.tensor != NULL or node.value is not None and node.flags & NEEDS_ANS and not node.flags & SPENT:
                self.count(node)

    cdef int count(self, Node node) except -1:
        """The output of `node` is alive."""
        cdef Py_ssize_t size
        if node.flags & (LEAF | COUNTED) or node.op.flags & (VIEW | MULTI):
            return 0
        size = self.nbytes(node.shape, node.dtype)
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
        self.alive_bytes -= self.nbytes(node.shape, node.dtype)

    cdef int lost(self, Node node, bint wanted=False) except -1:
        """The tensor of `node` is gone, or was written: its clone saves nothing any more."""
        if node.flags & COUNTED and not wanted:
            self.uncount(node)
        if node.flags & CLONE:
            node.flags &= ~<uint32_t>CLONE
            self.saved_bytes -= self.nbytes(node.shape, node.dtype)
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
            self.saved_bytes -= self.nbytes(heir.shape, heir.dtype)
        return 0

    cdef int keep(self, Node node) except -1:
        """Take the value of `node`, whose tensor is dying, into what is held for reuse."""
        cdef Py_ssize_t size = self.nbytes(node.shape, node.dtype), limit = self.budget()
        cdef Node first = node if node.leader is None or node.flags & BY_RULE else node.leader
        if size > limit or not node.op.flags & PURE or node.op.flags & (VIEW | MULTI) or first.holder == NULL:
            return 0
        if first is not node and (first.tensor != NULL or first.value is not None):
            return 0                     # the leader still has it
        self.evict(limit - size)
        node.flags |= KEPT
        self.ring.append(node)
        self.kept_bytes += size
        if self.kept_bytes > self.peak_kept_bytes:
            self.peak_kept_bytes = self.kept_bytes
        return 1

    cdef int evict(self, Py_ssize_t limit) except -1:
        """Let go of the oldest values held for reuse until they take at most `limit` bytes."""
        cdef Node old
        while self.kept_bytes > limit and self.ring:
            old = <Node>self.ring.popleft()
            self.kept_bytes -= self.nbytes(old.shape, old.dtype)
            old.flags &= ~<uint32_t>KEPT
            if not old.flags & NEEDS_ANS or old.flags & (SPENT | DEAD):
                old.value = None
                self.inherit(old)
        return 0

    @property
    def allowance(self):
        return self.allowance

    @allowance.setter
    def allowance(self, Py_ssize_t value):
        self.allowance = value
        self.evict(self.budget())

    def arrays(self):
        """The graph as flat arrays for `autograd_opt.passes.NodeTable`.

        Returns (key int64, offsets int64, operands int32, flags uint8, meta int64, symbol int16,
        datum int64), each an `array.array` in record order.  Two nodes have equal `key` exactly when operator,
        attributes with their types and bits, Python-number operands, dtype, device and
        differentiability are equal.
        """
        cdef Py_ssize_t i, j, m = 0, n = self.n
        cdef Node node, other
        cdef long long[::1] keys
        cdef long long[::1] offsets
        cdef long long[::1] metas, data
        cdef short[::1] symbols
        cdef int64_t datum
        cdef unsigned char[::1] flags
        cdef int flag
        key_array, offset_array = array("q", bytes(8 * n)), array("q", bytes(8 * (n + 1)))
        meta_array, flag_array = array("q", bytes(8 * n)), array("B", bytes(n))
        symbol_array, datum_array = array("h", bytes(2 * n)), array("q", bytes(8 * n))
        operands = array("i")
        if n == 0:
            return key_array, offset_array, operands, flag_array, meta_array, symbol_array, datum_array
        keys, offsets, metas, flags = key_array, offset_array, meta_array, flag_array
        symbols, data = symbol_array, datum_array
        ids, meta_ids = {}, {}
        append = operands.append
        for i in range(n):
            node = <Node>self.nodes[i]
            keys[i] = ids.setdefault(pass_key(node), len(ids))
            if node.op.flags & MULTI:
                metas[i] = -1 - i if node.flags & LEAF else meta_ids.setdefault(node.shape, len(meta_ids))
            else:
                metas[i] = meta_ids.setdefault(
                    (node.shape, node.dtype, node.device, node.flags & REQUIRES_GRAD), len(meta_ids))
                symbols[i] = word_of(node, &datum)
                data[i] = datum
            flag = 0
            if node.flags & LEAF:
                flag |= 1
            elif node.op is not OUTPUT_OP and not node.op.flags & PURE:
                flag |= 2
            if node.flags & PINNED:
                flag |= 4 | 16
            if commutes(node) and node.in0 is not None and node.in1 is not None:
                flag |= 8
            if node.flags & (NO_MERGE | ESCAPED) or node.in0 is not None and node.in0.flags & ESCAPED \
                    or node.in1 is not None and node.in1.flags & ESCAPED:
                flag |= 32
            flags[i] = flag
            if node.more is not None:
                for other in node.more:
                    if other is not None:
                        append(other.index)
                        m += 1
                        if other.flags & ESCAPED:
                            flags[i] |= 32
            else:
                if node.in0 is not None:
                    append(node.in0.index)
                    m += 1
                if node.in1 is not None:
                    append(node.in1.index)
                    m += 1
            offsets[i + 1] = m
        return key_array, offset_array, operands, flag_array, meta_array, symbol_array, datum_array

    def set_leaders(self, leader, by_rule=None, bint decided=False):
        """Merge node i into node leader[i]; where they are equal, keep node i apart.

        `by_rule[i]` is not 0 where a rule of algebra says so; `decided`: for the next run alone,
        whose captured nodes the passes have seen.

        A leader that is dead or spent can no longer be differentiated: the first member of
        its class that can takes its place.
        """
        cdef Py_ssize_t i
        cdef Node node, target
        cdef const int[::1] view = leader
        cdef const unsigned long long[::1] rules = by_rule
        cdef dict heirs = {}
        for i in range(min(self.n, view.shape[0])):
            node = <Node>self.nodes[i]
            target = None
            if view[i] != i:
                target = <Node>self.nodes[view[i]]
                if target.flags & (DEAD | SPENT):
                    target = heirs.get(view[i])
                    if target is None and not node.flags & (DEAD | SPENT):
                        heirs[view[i]] = node
            self.lead(node, target)
            node.flags &= ~<uint32_t>(BY_RULE | DECIDED)
            if rules is not None and rules[i] != 0 and node.leader is not None:
                node.flags |= BY_RULE | DECIDED if decided else BY_RULE
        self.changes += 1

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
        """Decide which nodes hand their cotangent to their leader in the next run.

        Incremental: nodes recorded since the last time, or all of them once a hook, a write,
        an escape or a request for an intermediate's own gradient may have changed the answer.
        """
        cdef Py_ssize_t i
        cdef Node node
        if captured is not None or self.changes != self.resolved_changes:
            self.resolved = 0
        for i in range(self.resolved, self.n):
            node = <Node>self.nodes[i]
            if node.leader is not None:
                if self.mergeable(node, captured):
                    node.flags |= MERGED
                else:
                    node.flags &= ~<uint32_t>MERGED
        self.resolved = 0 if captured is not None else self.n
        self.resolved_changes = self.changes
        return 0

    cdef int mergeable(self, Node node, dict captured) except -1:
        """May `node` hand its cotangent to its leader?

        Both must be whole and nobody's own business, and each pair of operands must end at
        one node: a merge below that was refused refuses those above it.
        """
        cdef Node leader = node.leader
        cdef uint32_t never = PINNED | NO_MERGE | ESCAPED | DEAD | OVERWRITTEN
        if node.flags & BY_RULE and leader.flags & LEAF:
            # the cotangent of a leaf is the same whole, whichever way its parts come
            return not (node.flags & (never | SPENT) or leader.flags & (NO_MERGE | ESCAPED) or leader.index < 0
                        or captured is not None and node.index in captured) \
                and (node.flags & DECIDED or in_words(node, leader, captured)) and intact(node)
        if (node.flags | leader.flags) & (never | SPENT) or leader.index < 0 or leader.index >= node.index:
            return 0
        if captured is not None and (node.index in captured or leader.index in captured):
            return 0
        if not intact(leader) or not intact(node) or narrows(node):
            return 0
        if node.flags & BY_RULE:
            return node.flags & DECIDED or in_words(node, leader, captured)
        if node.more is not None or leader.more is not None:
            mine, theirs = node.operands, leader.operands
            if len(mine) != len(theirs):
                return 0
            return all([end(<Node>a) is end(<Node>b) for a, b in zip(mine, theirs)])
        if end(node.in0) is end(leader.in0) and end(node.in1) is end(leader.in1):
            return 1
        return commutes(node) and end(node.in0) is end(leader.in1) and end(node.in1) is end(leader.in0)

    cdef int recognize(self, Node node, object r) except -1:
        """Is `node`, just recorded, an earlier value in other words?  Then that one leads it, and numbers it.

        The number is shared only where the strides are, too: what is reused later looks to
        the user as if it had been computed from `r`.
        """
        cdef Node at = node.in0 if node.in0 is not None else node.in1, first
        cdef int depth = 0
        if at is None or node.flags & (NO_MERGE | ESCAPED) or at.flags & LEAF and node.op.distinct \
                or node.op.flags & VIEW and not undoes(node, at):
            return 0
        while not (at.dtype is node.dtype and at.shape == node.shape):
            if depth == 8 or at.more is not None or at.in0 is None or at.in1 is not None \
                    or not (at.op.values_only or at.op.number_symbol):
                return 0
            at = at.in0
            depth += 1
        with torch._C.DisableTorchFunction():
            found = ancestor_of(node)
            if found is None or (<Node>found).flags & (NO_MERGE | ESCAPED):
                return 0
            first = <Node>found
            if not first.flags & LEAF:
                value = <object>first.tensor if first.tensor != NULL else first.value
            else:
                value = first.value() if isinstance(first.value, weakref.ref) else first.value
            if value is not None and version_of(value) == first.version and r.stride() == value.stride():
                node.vn = first.vn
        if first.leader is not None and first.leader.vn == first.vn:
            first = first.leader
        if node.leader is None:
            self.twins += 1
        self.lead(node, first)
        node.flags |= BY_RULE
        return 0

    def resolve_merges(self, dict captured=None):
        """`resolve`, for the executor's caller and for tests."""
        self.resolve(captured)

    def forget_values(self):
        """Drop every value kept for reuse."""
        self.evict(0)
        self.kept_bytes = 0

    def compact_if_due(self):
        """Called when the array reaches `floor`."""
        if self.running:                 # a run holds record numbers
            self.floor = self.n + (self.n >> 1) + 64
        elif self.consumed or self.n > (1 << 20):
            self.compact()
        else:
            self.floor = min(2 * self.n + 64, (1 << 20) + 1) if self.n < (1 << 20) else 2 * self.n

    cdef int compact(self) except -1:
        """Forget dead and spent records; nodes that something still needs keep their order."""
        cdef Py_ssize_t i, k = 0
        cdef Node node
        cdef PyObject *p
        self.forget_values()
        self.general.clear()
        if self.table != NULL and self.used:
            memset(self.table, 0, (self.mask + 1) * sizeof(Entry))
            self.used = 0
        keep = []
        for i in range(self.n):
            node = <Node>self.nodes[i]
            if node.live > 0 or node.flags & TOUCHED:
                # a leaf just looked up may have no consumer yet: that operation is being recorded now
                node.flags &= ~<uint32_t>TOUCHED
                node.holder = NULL               # no key finds it any more
                keep.append(node)
            else:
                node.index = -1
                node.in0 = node.in1 = None
                node.more = None
                node.leader = None
                node.value = None
        for key, entry in list(self.leaves.items()):
            if (<Node>entry).index < 0:
                del self.leaves[key]
        old = self.snapshot()
        for node in keep:
            node.index = k
            self.nodes[k] = <PyObject *>node
            Py_INCREF(node)
            k += 1
        self.n = k
        self.floor = 2 * k + 64
        self.consumed = False
        self.resolved = 0
        self.epoch += 1
        for node in old:
            Py_DECREF(node)
        return 0

    def clear(self):
        """Release everything but the leaves' own tensors."""
        cdef Py_ssize_t i
        cdef Node node
        old = self.snapshot()
        trash = []
        self.n = 0
        for node in old:
            node.index = -1
            trash.append((node.x0, node.x1, node.saved_more, node.value, node.view, node.hooks))
            if not node.flags & SCALAR0:
                node.x0 = None
            if not node.flags & SCALAR1:
                node.x1 = None
            node.saved_more = node.value = node.view = node.hooks = None
            node.in0 = node.in1 = node.leader = None
            node.more = None
            node.flags = (node.flags | SPENT) & ~<uint32_t>COUNTED
            node.holder = NULL
            Py_XDECREF(node.cotangent)
            node.cotangent = NULL
        self.ring.clear()
        self.escaped.clear()
        self.seeds.clear()
        self.writes.clear()
        self.kept_bytes = self.alive_bytes = 0
        self.leaves.clear()
        self.general.clear()
        if self.table != NULL:
            memset(self.table, 0, (self.mask + 1) * sizeof(Entry))
            self.used = 0
        self.consumed = False
        self.floor = 0
        self.sweeping = True
        trash.clear()
        self.sweeping = False
        self.trash.clear()
        for node in old:
            Py_DECREF(node)


cdef object _f32 = torch.float32, _f64 = torch.float64, _bf16 = torch.bfloat16, _f16 = torch.float16


cdef bint is_float(object dtype):
    return dtype is _f32 or dtype is _f64 or dtype is _bf16 or dtype is _f16


cdef object encode(object v):
    """Bytes that are equal exactly when two attribute values are the same, bit for bit.

    Type-tagged, floats by their bits, so that 1, 1.0, True, 0.0 and -0.0 all differ.
    Raises TypeError for a value of unknown meaning.
    """
    t = type(v)
    if v is None:
        return b"N"
    if t is bool:
        return b"T" if v else b"F"
    if t is int:
        return b"i%d;" % v
    if t is float:
        return b"f" + struct.pack("<d", v)
    if t is complex:
        return b"c" + struct.pack("<dd", v.real, v.imag)
    if t is str:
        s = v.encode()
        return b"s%d:" % len(s) + s
    if t is tuple or t is list or t is torch.Size:
        return b"(%d:" % len(v) + b"".join([encode(x) for x in v])
    if t is slice:
        return b"l" + encode(v.start) + encode(v.stop) + encode(v.step)
    if v is Ellipsis:
        return b"E"
    if t in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return b"d" + repr(v).encode() + b";"
    raise TypeError(t)


cdef object encode_attributes(object attrs):
    """The key bytes of an attribute dict (order of names does not matter)."""
    return b"".join([encode(k) + encode(attrs[k]) for k in sorted(attrs)]) if attrs else b""


def attribute_key(attrs):
    """The key bytes of an attribute dict; TypeError for a value without a key."""
    return encode_attributes(attrs)


cdef object pass_key(Node node):
    """What decides, with the operands, whether two nodes compute the same."""
    cdef Op op = node.op
    if node.flags & LEAF or not op.flags & PURE and op is not OUTPUT_OP:
        return (node.index,)
    try:
        attrs = encode_attributes(node.attributes)
    except TypeError:                   # an attribute without a key: equal to nothing
        return (node.index,)
    mask = [n is not None for n in (node.more if node.more is not None else (node.in0, node.in1))]
    return (op.id, node.flags & REQUIRES_GRAD, node.dtype, node.device, attrs, tuple(mask))


cdef dict _devices = {}


cdef inline Node end(Node node):
    """Where the cotangent of `node` goes."""
    return node.leader if node is not None and node.flags & MERGED else node


cdef bint commutes(Node node) except -1:
    """May the two operands change places?  Not in `torch.add(x, y, alpha=2)`, which is x + 2 y."""
    return node.op.flags & COMMUTATIVE and (node.attrs is None or node.attrs.get("alpha", 1) == 1)


cdef bint narrows(Node node) except -1:
    """Does a gradient leave `node` in a wider type than its own?

    Twins that round a float64 to float16, say, each send their cotangent on, to be summed where
    the bits are, as torch does.
    """
    cdef Node x = node.in0
    if x is None or x.dtype is None or node.dtype is None or x.dtype is node.dtype or not node.flags & x.flags & REQUIRES_GRAD:
        return False
    return torch.finfo(node.dtype).bits < torch.finfo(x.dtype).bits


cdef bint in_words(Node node, Node leader, dict captured) except -1:
    """Do `node` and `leader` come from one node by operations that the rules speak of?

    Asked before each run: a hook, or a request for the gradient of something between them,
    keeps the ways apart.
    """
    cdef Node at = node, base
    while True:
        at = at.in0 if at.in0 is not None else at.in1
        if end(at) is leader:
            return True
        if not passes_on(at, captured):
            break
    base = at
    if leader.flags & LEAF:
        return False
    at = leader
    while passes_on(at, captured):
        at = at.in0 if at.in0 is not None else at.in1
    return end(at) is end(base)


cdef bint passes_on(Node node, dict captured) except -1:
    """Does the cotangent of `node` go to its one operand, in other words, and concern nobody on the way?"""
    cdef int64_t datum
    if node.flags & (PINNED | NO_MERGE | ESCAPED | LEAF) or node.more is not None \
            or (node.in0 is None) == (node.in1 is None):
        return False
    if captured is not None and node.index in captured:
        return False
    return word_of(node, &datum) != 0


cdef object live_value(Tape tape, Node node):
    """The unchanged value of `node`, or None."""
    cdef object t
    if node.flags & (ESCAPED | OVERWRITTEN | NO_MERGE):
        return None
    if node.tensor != NULL:
        t = <object>node.tensor
    else:
        t = node.value
    if t is None or version_of(t) != node.version:
        return None
    if tape.escaped and tape.shares_escaped(t):
        node.mark(ESCAPED | NO_MERGE)        # seen from outside through another tensor over its memory
        return None
    return t


cdef object known_value(Tape tape, Node first):
    """The value of a leader's class: the newest holder's, else the leader's own."""
    cdef object value = live_value(tape, <Node>first.holder)
    if value is None and first.holder != <PyObject *>first:
        first.holder = <PyObject *>first
        value = live_value(tape, first)
    return value


cdef object value_of(Tape tape, Op op, Node operand):
    """`op(operand)`, if it was recorded and is alive: to be read in a rule, never written or handed out."""
    cdef uint64_t kind, route
    cdef Entry *e
    if not tape.optimize or operand is None or operand.tape_id != tape.id or operand.flags & ESCAPED \
            or not is_float(operand.dtype):
        return None
    kind = (<uint64_t>op.id << 8) | (<uint64_t>(operand.flags & REQUIRES_GRAD != 0) << 3) | 4      # 4: under grad mode
    for route in (0, 64):                # recorded as a hot operator, or in general
        e = tape.find(operand.vn, 0, kind | route)
        if e.first != NULL:
            return known_value(tape, <Node>e.first)
    return None


def known(Op op, Node operand):
    """The value of `op(operand)` where a numeric run may take it from the record; else None."""
    cdef Tape tape = active_tape()
    return None if tape is None else value_of(tape, op, operand)


cdef bint intact(Node node) except -1:
    """Is everything that the rules of `node` have saved unwritten, and not escaped?"""
    if node.x0 is not None and not node.flags & SCALAR0:
        if node.in0.flags & ESCAPED or version_of(node.x0) != node.v0:
            return False
    if node.x1 is not None and not node.flags & SCALAR1:
        if node.in1.flags & ESCAPED or version_of(node.x1) != node.v1:
            return False
    if node.flags & NEEDS_ANS:
        value = <object>node.tensor if node.tensor != NULL else node.value
        if value is None or version_of(value) != node.version:
            return False
    if node.saved_more is not None:
        for other, t, version in zip(node.more, node.saved_more[0], node.saved_more[1]):
            if other is not None and t is not None:
                if (<Node>other).flags & ESCAPED or version_of(t) != version:
                    return False
    return True


cdef object same_device(object device):
    """One object per device, so that nodes compare devices by identity."""
    return _devices.setdefault(device, device)


cdef object STRIDED_LAYOUT = torch.strided


cdef object plain_dispatch = PlainTensor.__torch_dispatch__


def unusual(t):
    """Is this a tensor that cannot be recorded: nested, or of a class with its own `__torch_dispatch__`?"""
    return isinstance(t, PlainTensor) and (t.is_nested or type(t).__torch_dispatch__ is not plain_dispatch)


cdef int require_ordinary(object t) except -1:
    """Refuse a tensor whose class computes in a way of its own, below the recorder."""
    if unusual(t):
        from autograd_opt.errors import unsupported_operand
        raise unsupported_operand(t)
    return 0


cdef bint borrowed(object t):
    """Can the memory of `t` be written unseen: numpy's, say, or an inference tensor's?"""
    return t.is_inference() or t.layout is STRIDED_LAYOUT and not t.is_meta and not t.untyped_storage().resizable()


cdef object ancestor_of = None           # words.ancestor, set by install_words
cdef int COPY = 0, PERMUTE = 0           # symbols


def install_words(ancestor, int copy, int permute):
    """What recognizes a value in other words, and the symbols it need not be asked about; done once at import."""
    global ancestor_of, COPY, PERMUTE
    ancestor_of, COPY, PERMUTE = ancestor, copy, permute


cdef bint undoes(Node node, Node at):
    """Could a view of `at` be an earlier value?  Views of one kind may undo each other, and some change nothing.

    Cheaper than the question itself, which most views of a network need not be asked.
    """
    cdef int symbol = node.op.symbol
    if symbol == at.op.symbol or at.op.symbol == COPY or at.flags & BY_RULE:
        return True
    if at.shape != node.shape:
        return False
    return symbol != PERMUTE or len(node.shape) < 2 or node.attrs is not None


cdef bint degenerate = bool(os.environ.get("AUTOGRAD_OPT_DEGENERATE_HASH"))


def install(custom, Op leaf_op, Op output_op, Op written_op):
    """Tell this module the tensor class and its own operators; done once at import."""
    global CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP
    CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP = custom, leaf_op, output_op, written_op
    (<PyTypeObject *><PyObject *>custom).tp_finalize = finalize
