"""A call without a rule, which torch differentiates: its usual form, with one result, forward and backward.

The rest (several results, views, other layouts, recorded runs, batches) is in `torch_fallback`.
"""

import torch
from torch.autograd.graph import GradientEdge

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_call, ao_casts, ao_dtype, ao_grad_on, ao_get, ao_is_inference, ao_is_view, ao_method, ao_method0, ao_needs_grad,
    ao_own, ao_plain, ao_set_type, ao_strided, ao_use_reads,
)
from autograd_opt.graph.node cimport REQUIRES_GRAD, Node, Op, current_source, fresh_vn, shape_of
from autograd_opt.graph.handles cimport attach, handle
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape, recording, set_paused
from autograd_opt.record.arguments cimport is_tensor, lent, none_follows, plain_argument
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.new_nodes cimport fill
from autograd_opt.record.routes cimport Route
from autograd_opt.record.unrecorded cimport binding_of, unrecorded

from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.ops.binding cimport placed
from autograd_opt.graph.tensor import CustomTensor

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object PythonNode = private.FunctionBase
cdef object grad_enabled = private.is_grad_enabled
cdef object any_autocast = private.is_any_autocast_enabled
cdef object is_inference = base.__dict__["is_inference"]
cdef object detach_method = base.__dict__["detach"]
cdef object require_grad_method = base.__dict__["requires_grad_"]
cdef object data_ptr_method = base.__dict__["data_ptr"]
cdef object get_grad_fn = ao_own(base.__dict__["grad_fn"])
cdef object get_output_nr = ao_own(base.__dict__["output_nr"])
cdef object get_is_leaf = ao_own(base.__dict__["is_leaf"])
cdef object get_device = ao_own(base.__dict__["device"])
cdef tuple EMPTY = ()
cdef Op OPAQUE = None
cdef object general = None               # torch_fallback.general
cdef object conclude = None              # torch_fallback.conclude
cdef object general_pull_back = None     # torch_fallback.pull_back
cdef object autograd_included = None     # torch_fallback.included_autograd


def install(Op op, forward, conclusion, backward, included):
    """The operator of such calls, and what does the rest of them."""
    global OPAQUE, general, conclude, general_pull_back, autograd_included
    OPAQUE, general, conclude, general_pull_back, autograd_included = op, forward, conclusion, backward, included


cdef class OpaqueCall:
    """One call differentiated by torch: its detached operands and the edges of its outputs.

    Edges, not the outputs: a view's own edge would be made anew after a write to its base,
    and outputs that torch does not need are not kept alive.
    """
    cdef readonly str name
    cdef readonly list inputs
    cdef readonly bint hooked
    cdef public bint repeats             # can a run follow one that frees the graph?
    cdef public object places            # of one node of several results, by `torch_fallback.called`
    cdef list ways
    cdef object node                     # torch's only node, of the only result; None where there are more
    cdef Py_ssize_t number

    def __init__(self, str name, list inputs, list edges, bint hooked):
        self.name, self.inputs, self.ways, self.hooked = name, inputs, edges, hooked

    def __repr__(self):
        return f"torch.{self.name}"

    @property
    def edges(self):
        """Where its outputs hang on torch's graph of the call."""
        if self.ways is None:
            self.ways = [GradientEdge(self.node, self.number)]
        return self.ways

    cdef tuple cotangents(self, object g):
        """What torch's node gives for the cotangent of the only result; None where there is more than this node.

        The node is called directly: torch's engine would take ten times as long.
        """
        cdef object node = self.node, found
        cdef tuple below = <tuple>node.next_functions
        cdef list given
        cdef Py_ssize_t i, outputs
        if not below or len(below) < len(self.inputs):
            return None
        for i in range(len(below)):
            one = (<tuple>below[i])[0]
            if one is not None and self.place(one) < 0:
                return None
        metadata = getattr(node, "_input_metadata", None)
        if metadata is None:
            return None
        outputs = len(metadata)
        if outputs == 1:
            found = node(g)
        else:
            given = [None] * outputs
            given[self.number] = g
            found = node(*given)
        return self.sorted(below, <tuple>found if type(found) is tuple else (found,))

    cdef Py_ssize_t place(self, object leaf) except -2:
        """Which input a node of torch's accumulates into; -1 where it is none."""
        cdef object variable = getattr(leaf, "variable", None)
        cdef Py_ssize_t i
        for i in range(len(self.inputs)):
            if self.inputs[i] is variable:
                return i
        return -1

    cdef tuple sorted(self, tuple below, tuple found):
        """The cotangents by input; None where one is missing, or not like its input."""
        cdef list out = [None] * len(self.inputs)
        cdef Py_ssize_t i, at
        for i in range(len(below)):
            one, g = (<tuple>below[i])[0], found[i]
            if one is None or g is None:
                continue
            at = self.place(one)
            x = self.inputs[at]
            if out[at] is not None or type(g) is not Tensor or not ao_plain(g) or not ao_strided(g) \
                    or shape_of(g) != shape_of(x) or ao_dtype(g) is not ao_dtype(x) \
                    or ao_get(get_device, g) != ao_get(get_device, x):
                return None
            out[at] = g
        for g in out:
            if g is None:
                return None                  # the general way knows whether a run comes to that input
        return tuple(out)

    cdef bint can_keep_nothing(self) except -1:
        """True if torch's only node of this call is of a class that saves no tensor."""
        if saved_fields(type(self.node)):
            return False
        for below in <tuple>self.node.next_functions:
            one = (<tuple>below)[0]
            if one is not None and self.place(one) < 0:
                return False
        return True

    cdef bint keeps_nothing(self) except -1:
        """Has torch saved no tensor for this call, so that a run can follow one that frees the graph?"""
        return not saves(self.node)


cdef dict _fields = {}


def saved_fields(kind):
    """The names of the tensors that torch's functions of this class can save."""
    found = _fields.get(kind)
    if found is None:
        prefix = "_raw_saved_"
        found = _fields[kind] = tuple(["_saved_" + name.removeprefix(prefix) for name in dir(kind) if name.startswith(prefix)])
    return found


def saves(function):
    """True if torch has saved a tensor in one of its functions; one that was written since cannot be read, and is one."""
    try:
        return any([held(getattr(function, name, True)) for name in saved_fields(type(function))])
    except RuntimeError:
        return True


cdef dict _saving = {}


def name_of(last):
    """The name of torch's last node of a call, remembered with whether such a node can save tensors."""
    name = last.name()
    if name not in _saving:
        _saving[name] = name == "CppFunction" or bool(saved_fields(type(last)))
    return name


def saves_values(name):
    """True if a node of torch's of this name, met as the last of a call, can save tensors."""
    return _saving.get(name, True)


cdef bint held(object value) except -1:
    """Is a saved field a tensor, or has it one in it?"""
    return any([held(v) for v in value]) if isinstance(value, (tuple, list)) else value is not None


def pull_back(g, extra, task, node):
    """The cotangents of an opaque call's operands."""
    cdef OpaqueCall call = <OpaqueCall>(<tuple>extra)[0]
    cdef tuple found
    if call.node is not None and is_tensor(g) and not task.create_graph and task.batch is None:
        if not task.retain:
            call.repeats = call.keeps_nothing()
        found = call.cotangents(g)
        if found is not None:
            return found
    return general_pull_back(g, extra, task, node)


cdef class Whole(Route):
    """The route of what has no line in the table and is no Python code: recorded as one node."""

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef object r
        if tp != NULL and kwargs.get("out") is None and not ao_casts(any_autocast):
            if none_follows(<Tape>tp, args, kwargs, ao_grad_on(grad_enabled)):
                return unrecorded(<Tape>tp, func, args, kwargs)
            if (<Tape>tp).plain and ao_grad_on(grad_enabled):
                lent(args, kwargs)
                r = recorded(<Tape>tp, func, args, kwargs)
                if r is not None:
                    return r
        lent(args, kwargs)
        return general(func, args, placed(func, kwargs))


cdef bint usual(object t) except -1:
    """True for a tensor of an ordinary class with strides."""
    return (type(t) is Tensor or type(t) is CustomTensor or type(t) is Parameter) and ao_plain(t) and ao_strided(t) and not ao_is_inference(is_inference, t)


cdef class Operands:
    """The tensors of a call that require grad, each once, and their copies that torch follows."""
    cdef list originals, nodes, copies

    def __cinit__(self):
        self.originals, self.nodes, self.copies = [], [], []

    cdef bint take(self, Tape tape, object x) except -1:
        """Note the tensors in an argument; False for one that the general way has to look at."""
        cdef Node n
        if is_tensor(x):
            if not usual(x):
                return False
            n = handle(tape, x)
            if n.flags & REQUIRES_GRAD and self.place(x) < 0:
                self.originals.append(x)
                self.nodes.append(n)
            return True
        if type(x) is tuple or type(x) is list:
            for y in x:
                if not (is_tensor(y) or plain_argument(y)) or not self.take(tape, y):
                    return False
            return True
        return plain_argument(x)

    cdef Py_ssize_t place(self, object x) except -2:
        cdef Py_ssize_t i
        for i in range(len(self.originals)):
            if self.originals[i] is x:
                return i
        return -1

    cdef object put(self, object x):
        """The argument with the copies in it."""
        cdef Py_ssize_t i
        if type(x) is tuple or type(x) is list:
            return type(x)([self.put(y) for y in x])
        i = self.place(x)
        return x if i < 0 else self.copies[i]

    cdef int copy(self) except -1:
        """Make the copies; torch's autograd is on."""
        for x in self.originals:
            d = ao_method0(detach_method, x)
            if type(d) is CustomTensor:
                ao_set_type(d, Tensor)
            self.copies.append(ao_method(require_grad_method, d, EMPTY))
        return 0


cdef object recorded(Tape tape, object func, tuple args, dict kwargs):
    """Record a call of usual tensors; None where the general way has to look at it, before anything has run."""
    cdef Operands operands = Operands.__new__(Operands)
    cdef object out, switch = enter(tape)
    cdef int paused
    try:
        for x in args:
            if not operands.take(tape, x):
                return None
        for x in kwargs.values():
            if not operands.take(tape, x):
                return None
        if not operands.originals:
            return None
        paused = set_paused(1)
        included = autograd_included()
        included.__enter__()
        try:
            operands.copy()
            args = tuple([operands.put(x) for x in args])
            out = ao_call(binding_of(func), args, {k: operands.put(x) for k, x in kwargs.items()} if kwargs else None)
        finally:
            included.__exit__(None, None, None)
            set_paused(paused)
        if one_usual_result(operands, out):
            return noted(tape, operands, getattr(func, "__name__", None) or str(func), out)
    except (NotImplementedError, RuntimeError):
        if operands.copies:
            raise
        return None                          # the general way has the words
    finally:
        leave(tape, switch)
    return conclude(func, out, operands.originals, operands.copies)


cdef bint one_usual_result(Operands operands, object out) except -1:
    """True if the call has made one tensor of its own, with a history of torch's."""
    if type(out) is not Tensor or not ao_plain(out) or not ao_strided(out) or not ao_needs_grad(out) \
            or ao_is_view(out) or not is_float(ao_dtype(out)) or ao_get(get_is_leaf, out) is True \
            or isinstance(ao_get(get_grad_fn, out), PythonNode) or name_of(ao_get(get_grad_fn, out)) == "CppFunction":
        return False
    for x in operands.copies:
        if x is out or ao_method0(data_ptr_method, x) == ao_method0(data_ptr_method, out):
            return False
    return True


cdef object noted(Tape tape, Operands operands, str name, object out):
    """Attach the node of a call that has made `out`; the result without torch's graph."""
    cdef OpaqueCall call
    cdef Node node
    cdef object r, made = ao_get(get_grad_fn, out)
    call = OpaqueCall.__new__(OpaqueCall)
    call.name, call.inputs = name, operands.copies
    call.node, call.number = made, ao_get(get_output_nr, out)
    r = ao_method0(detach_method, out)
    kept = None if call.can_keep_nothing() else operands.originals      # then nothing holds them for the user
    node = fill(tape, OPAQUE, operands.nodes, tuple(operands.originals), {"call": name, "torch": name_of(made)}, True, r,
                (call, kept))
    node.vn = fresh_vn()
    if tape.sources:
        current_source(node)
    attach(tape, node, r)
    return r
