"""What is recorded: an entry of the table of operators, and one operation or leaf.

How long saved tensors live is decided by a count in each node (alive consumers, plus one while the
node's tensor is alive), so a branch that the user drops is released at once, without
recursion and without a reference cycle, while the graph as written stays readable.
"""

from collections import namedtuple
import weakref

import torch

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_dtype, ao_frame, ao_frame_back, ao_frame_code, ao_frame_done, ao_frame_lasti, ao_frame_t, ao_get, ao_get_int,
    ao_own, ao_shape, ao_use_reads, ao_version,
)
from autograd_opt.abi.tensor_info import reads_address, use_kinds
from autograd_opt.graph.plain_values cimport same_device
cimport cython

cdef extern from "Python.h":
    bint PyErr_ExceptionMatches(PyObject *kind)
    void PyErr_Clear()

ao_use_reads(reads_address())
cdef object _base = private.TensorBase
cdef object get_version = ao_own(private.version_property)
cdef object get_device = ao_own(_base.__dict__["device"])
PlainTensor = torch.Tensor
Parameter = torch.nn.Parameter
CustomTensor = None                      # set by install(), as are the operators
NODE = "_node"
MARK = "_requires_grad"
LEAF_OP = OUTPUT_OP = WRITTEN_OP = ELSEWHERE_OP = None
tapes = {}
cdef int64_t _vn = 0

# Python code reads these flags by the same names.
globals().update(EXPOSED=EXPOSED, NO_MERGE=NO_MERGE, NOWHERE=NOWHERE, OVERWRITTEN=OVERWRITTEN, PINNED=PINNED)


cdef int64_t fresh_vn() noexcept:
    global _vn
    _vn += 1
    return _vn


cdef object tape_by_id(int64_t id):
    address = tapes.get(id)
    return None if address is None else <object><PyObject *><size_t>address


cdef bint is_custom(object t) except -1:
    return type(t) is CustomTensor


cdef uint32_t version_of(object t) except? 4294967295:
    cdef int64_t version = ao_version(t)
    if version < 0:
        version = ao_get_int(get_version, t)
    if version < 0:                      # an inference tensor has no version counter
        if not PyErr_ExceptionMatches(<PyObject *>RuntimeError):
            PyErr_Clear()
            return ao_get(get_version, t)
        PyErr_Clear()
        return 0
    return <uint32_t>version


cdef object shape_of(object t):
    return ao_shape(t)


cdef Node new_node(Op op):
    cdef Node node = Node.__new__(Node)
    node.op = op
    node.index = -1
    return node


cdef struct Known:
    PyObject *code
    bint internal

cdef Known _known[16384]                 # code objects by address: is it torch's or ours?
cdef dict _codes = {}                    # keeps them alive, so that an address stays one object's


cdef PyObject *user_code(int *lasti) except? NULL:
    """The code of the innermost frame of the user's, which is kept, and the instruction; NULL where there is none."""
    cdef ao_frame_t frame = ao_frame()
    cdef PyObject *code
    cdef Known *known
    while frame != NULL:
        code = ao_frame_code(frame)
        known = &_known[(<size_t>code >> 5) & 16383]
        if known.code != code:
            from autograd_opt._common.callsite import internal
            known.internal = internal((<object>code).co_filename)
            known.code = code
            _codes[<size_t>code] = <object>code
        if not known.internal:
            lasti[0] = ao_frame_lasti(frame)
            ao_frame_done(frame)
            return code
        frame = ao_frame_back(frame)
    return NULL


cdef int current_source(Node node) except -1:
    """Remember the position (code object, instruction) of the innermost frame of the user's."""
    cdef PyObject *code = user_code(&node.lasti)
    if code != NULL:
        node.code = <object>code
    return 0


cdef class TapeBase:
    pass


Metadata = namedtuple("Metadata", "shape dtype device is_nested_tensor is_cpp_nested_tensor", defaults=(False, False))
"""What torch's Python code asks of one output of a node."""


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
        self.several = sum([v is not None for v in vjps]) > 1 or joint is not None and (
            flags & VARIADIC != 0 or len(operands) > 1)
        self.need0 = self.needs(0)
        self.need1 = self.needs(1)

    cdef uint32_t needs(self, int i) except? 4294967295:
        if self.joint is not None:
            return (<Vjp>self.joint).needs
        if i >= len(self.vjps) or self.vjps[i] is None:
            return 0
        return (<Vjp>self.vjps[i]).needs

    cdef bint commutes(self, dict attrs) except -1:
        """May the two operands of a call with these attributes change places?"""
        return self.flags & COMMUTATIVE and (attrs is None or attrs.get("alpha", 1) == 1)

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
        return bool(self.flags & FREED)

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

    @property
    def place(self):
        """Where in the user's code: a code object and an offset, or None and 0."""
        return self.code, 0 if self.code is None else self.lasti

    @property
    def same(self):
        """Is the value the operand's own, bit for bit?"""
        return bool(self.flags & SAME)

    @property
    def bytes(self):
        """Bytes of the output; of several, nothing, since each has a node of its own."""
        cdef Py_ssize_t n = 1
        if self.dtype is None:
            return 0
        for d in self.shape:
            n *= d
        return n * self.dtype.itemsize

    def saved_values(self):
        """The tensors that this node's rules have saved and not yet released."""
        out = [t for t in (self.x0, self.x1, self.value) if isinstance(t, PlainTensor)]
        if self.saved_more is not None:
            out.extend([t for t in self.saved_more[0] if isinstance(t, PlainTensor)])
        return out

    def register_hook(self, fn):
        """Call `fn(grad_inputs, grad_outputs)` after this node's rule."""
        from autograd_opt.graph.hooks import add, hooks_of
        return add(hooks_of(self).post, fn)

    def register_prehook(self, fn):
        """Call `fn(grad_outputs)` before this node's rule."""
        from autograd_opt.graph.hooks import add, hooks_of
        return add(hooks_of(self).pre, fn)

    @property
    def metadata(self):
        """A dict of the user's own, kept with the node."""
        from autograd_opt.graph.hooks import hooks_of
        return hooks_of(self).__dict__.setdefault("metadata", {})

    def mark(self, uint32_t flags):
        cdef TapeBase tape = tape_by_id(self.tape_id)
        self.flags |= flags
        if tape is not None:
            tape.changes += 1

    def name(self):
        """The operator's name, as `grad_fn.name()` gives it in torch."""
        if type(self) is not Node:
            return type(self).shown_name
        if self.flags & LEAF:
            return "torch::autograd::AccumulateGrad"
        if self.op is ELSEWHERE_OP and self.attrs is not None:
            return self.attrs["name"]
        if self.op is ELSEWHERE_OP and self.saved_more is not None:
            return origin_of(self).name()
        if self.op is WRITTEN_OP and self.in0 is not None:
            return self.in0.name()
        if self.op is OUTPUT_OP:
            return (<Node>self.in0).name() if self.in0 is not None else "OutputBackward"
        if self.attrs is not None and "function" in self.attrs:
            return f"{self.attrs['function']}Backward"
        from autograd_opt.graph.torch_names import torch_name
        return torch_name(self)

    @property
    def tape(self):
        """The Tape that recorded this node; None once it is gone."""
        return tape_by_id(self.tape_id)

    @property
    def _input_metadata(self):
        """Shape, dtype and device of each output, as torch's Python code asks for them."""
        if self.op.flags & MULTI:
            return tuple([Metadata(*each) for each in self.shape])
        return (Metadata(self.shape, self.dtype, self.device),)

    @property
    def variable(self):
        """The tensor that a leaf's node accumulates into; no other node has this attribute, as in torch."""
        if not self.flags & LEAF:
            raise AttributeError(f"a node of {self.op.name!r} has no attribute 'variable'")
        return getattr(self, 'tensor')

    @property
    def next_functions(self):
        """(node, output) for each operand that requires grad, (None, 0) for the others that torch shows."""
        from autograd_opt.graph.node_classes import functions_below
        return functions_below(self)

    def __getattr__(self, name):
        """What a Function's forward has left on its `ctx`, which in torch is the node itself."""
        if self.saved_more is not None and self.attrs is not None and "function" in self.attrs \
                and not name.startswith("__"):
            return getattr(self.saved_more[2][1], name)
        if name == "saved_tensors" and self.op.functions and self.flags & FREED:
            from autograd_opt.graph.refusals import freed
            raise freed(self)
        raise AttributeError(f"a node of {self.op.name!r} has no attribute {name!r}")

    def __repr__(self):
        return f"<{self.name()} %{self.index}>" if not self.flags & LEAF else f"<leaf %{self.index}>"


cdef Node origin_of(Node node):
    """The node in another graph that this one, of operator `elsewhere`, stands for."""
    while node.op is ELSEWHERE_OP and node.saved_more is not None:
        node = <Node>node.saved_more[2]
    return node


def stand_in(t, Node origin, name):
    """A node for `t`, which an operation outside any context has computed from the tensor of `origin`, a left graph's."""
    cdef Node node = new_node(ELSEWHERE_OP)
    node.shape, node.dtype, node.device = ao_shape(t), ao_dtype(t), same_device(ao_get(get_device, t))
    node.version = version_of(t)
    node.flags = REQUIRES_GRAD
    node.saved_more = ([], [], origin, None)
    node.attrs = {"name": name}
    return node


def origin(Node node):
    """The node of another graph that `node` stands for; any other node itself."""
    return origin_of(node)


@cython.final
cdef class Leads:
    """The targets of a run, and the nodes on a way to one; asked by `leads_on`."""

    def __cinit__(self, int64_t low, int64_t high):
        self.low, self.high = low, max(low, high)
        self.marks = <unsigned char *>PyMem_Calloc(self.high - low + 1, 1)
        if self.marks == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.marks)


def install(custom, Op leaf_op, Op output_op, Op written_op, Op elsewhere_op):
    """Tell the compiled modules the tensor class and the operators of their own nodes; done once at import."""
    global CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP, ELSEWHERE_OP
    CustomTensor, LEAF_OP, OUTPUT_OP, WRITTEN_OP, ELSEWHERE_OP = custom, leaf_op, output_op, written_op, elsewhere_op
    use_kinds(custom, PlainTensor, Parameter)
