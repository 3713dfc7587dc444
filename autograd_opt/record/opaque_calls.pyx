"""A call without a rule, which torch differentiates: its usual form, forward and backward.

The rest (views, other layouts, recorded runs, batches) is in `torch_fallback`.
"""

import torch
from torch.autograd.graph import GradientEdge

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_call, ao_casts, ao_dtype, ao_grad_on, ao_get, ao_is_inference, ao_is_view, ao_memory, ao_method, ao_method0, ao_needs_grad,
    ao_own, ao_plain, ao_set, ao_set_type, ao_strided, ao_use_reads, ao_uses,
)
from autograd_opt.graph.node cimport REQUIRES_GRAD, Node, Op, current_source, fresh_vn, shape_of
from autograd_opt.graph.handles cimport attach, handle
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport included_autograd, recording, set_paused, torch_autograd
from autograd_opt.record.arguments cimport is_tensor, lent, plain_argument
from autograd_opt.record.autocast cimport with_casts
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.new_nodes cimport fill, record_outputs
from autograd_opt.record.routes cimport Route
from autograd_opt.record.torch_nodes cimport is_unknown, keeps_nothing, name_of, saved_operands, saves
from autograd_opt.record.torch_nodes import stages
from autograd_opt.record.unrecorded cimport FOLLOWED, binding_of, by_itself

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
cdef object run_engine = private.run_torch_engine
cdef object graph_task = private.current_graph_task_id
cdef object is_inference = base.__dict__["is_inference"]
cdef object detach_method = base.__dict__["detach"]
cdef object require_grad_method = base.__dict__["requires_grad_"]
cdef object data_ptr_method = base.__dict__["data_ptr"]
cdef object get_grad_fn = ao_own(base.__dict__["grad_fn"])
cdef object get_output_nr = ao_own(base.__dict__["output_nr"])
cdef object get_is_leaf = ao_own(base.__dict__["is_leaf"])
cdef object set_data = ao_own(base.__dict__["data"])
cdef object use_count = private.use_count
cdef object get_device = ao_own(base.__dict__["device"])
cdef tuple EMPTY = ()
cdef enum:
    LARGE = 1 << 14                      # bytes of an operand that it pays to free
    UNSAVED = 2                          # owners of a copy that no node has saved: Python's object and the node of its gradient
cdef Op OPAQUE = None, OPAQUE_MULTI = None
cdef object general = None               # torch_fallback.general
cdef object conclude = None              # torch_fallback.conclude
cdef object general_pull_back = None     # torch_fallback.pull_back
cdef object reached = None               # torch_fallback.reached


def install(Op op, Op multi, forward, conclusion, backward, ends):
    """The operators of such calls, of one and of several results, and what does the rest of them."""
    global OPAQUE, OPAQUE_MULTI, general, conclude, general_pull_back, reached
    reached = ends
    OPAQUE, OPAQUE_MULTI = op, multi
    general, conclude, general_pull_back = forward, conclusion, backward


cdef class OpaqueCall:
    """One call differentiated by torch: its detached operands and the edges of its outputs.

    Edges, not the outputs: a view's own edge would be made anew after a write to its base,
    and outputs that torch does not need are not kept alive.
    """
    cdef readonly str name
    cdef readonly list inputs
    cdef readonly bint hooked
    cdef readonly bint usual             # differentiates ordinary tensors with strides, recorded here
    cdef bint counts                     # has an operand without strides, whose kernels count writes of their own
    cdef public bint repeats             # can a run follow one that frees the graph?
    cdef list ways
    cdef object node                     # torch's node, where all results are one node's; else None
    cdef tuple numbers                   # which of its outputs the results are

    def __init__(self, str name, list inputs, list edges, bint hooked):
        self.name, self.inputs, self.ways, self.hooked = name, inputs, edges, hooked
        if edges and self.callable():
            self.node, self.numbers = edges[0].node, tuple([edge.output_nr for edge in edges])

    cdef bint callable(self) except -1:
        """True if the edges lead to one node of torch's that can be called without torch's engine."""
        cdef object node = self.ways[0].node
        for edge in self.ways:
            if edge.node is not node:
                return False
        return callable(node) and not is_unknown(type(node)) and private.has_metadata(node)

    def __repr__(self):
        return f"torch.{self.name}"

    @property
    def edges(self):
        """Where its outputs hang on torch's graph of the call."""
        if self.ways is None:
            self.ways = [GradientEdge(self.node, number) for number in self.numbers]
        return self.ways

    cpdef list cotangents(self, list gs):
        """What torch's only node gives for the results' cotangents; None where it takes torch's engine.

        The node is called directly: torch's engine would take ten times as long.  Kernels of layouts without strides
        count writes of their own where autograd's dispatch keys are excluded: for these the keys are included.
        """
        cdef object node = self.node, found
        cdef tuple below
        cdef list given, places
        cdef Py_ssize_t i
        if node is None or self.hooked or type(node) in for_engine:
            return None
        below = <tuple>node.next_functions
        places = self.places(below)
        if places is None:
            return None
        given = [None] * len(private.input_metadata(node))
        for i in range(len(gs)):
            given[<Py_ssize_t>self.numbers[i]] = gs[i]
        if self.counts:
            with torch_autograd(False):
                found = ao_call(node, tuple(given), None)
        else:
            found = ao_call(node, tuple(given), None)
        found = self.sorted(places, <tuple>found if type(found) is tuple else (found,))
        if found is None:
            for_engine.add(type(node))
        elif lacks_some(<list>found) and graph_task() != -1:
            return None                  # inside a run of torch's engine to other targets a node computes nothing
        return found

    cdef list places(self, tuple below):
        """Which input each edge below a node leads to, None where an edge leads nowhere; None where one leads to no input.

        Also where three lead to the same one, since it is torch's to say in which order they are added; and for a leaf's
        own node.
        """
        cdef list found = []
        cdef Py_ssize_t at
        for edge in below:
            one = (<tuple>edge)[0]
            if one is None:
                found.append(None)
                continue
            at = self.place(one)
            if at < 0 or found.count(at) > 1:
                return None
            found.append(at)
        return found if found else None

    cdef Py_ssize_t place(self, object leaf) except -2:
        """Which input a node of torch's accumulates into; -1 where it is none."""
        cdef object variable = getattr(leaf, "variable", None)
        cdef Py_ssize_t i
        for i in range(len(self.inputs)):
            if self.inputs[i] is variable:
                return i
        return -1

    cdef list sorted(self, list places, tuple found):
        """The cotangents by input, NotImplemented for one that no run comes to; None where one is not like its input."""
        cdef list out = [NotImplemented] * len(self.inputs)
        cdef object g, x, before
        cdef Py_ssize_t i, at
        for i in range(len(places)):
            if places[i] is None:
                continue
            at, g = places[i], found[i]
            x, before = self.inputs[at], out[at]
            if g is not None and (type(g) is not Tensor or not ao_plain(g) or ao_strided(g) != ao_strided(x)
                                  or g.layout is not x.layout or shape_of(g) != shape_of(x) or ao_dtype(g) is not ao_dtype(x)
                                  or ao_get(get_device, g) != ao_get(get_device, x)):
                return None
            if before is NotImplemented or before is None:
                out[at] = g
            elif g is not None:
                out[at] = before + g
        return out

    cdef object by_engine(self, list gs, task, node):
        """What torch's engine gives, from all nodes of the call, for the results' cotangents."""
        cdef list outs = [], given = [], found, asked = [task.wants(n) for n in node.operands]
        cdef Py_ssize_t i
        for i in range(len(gs)):
            if gs[i] is not None:
                outs.append(self.edges[i])
                given.append(gs[i])
        with torch_autograd():
            if not task.retain:
                self.repeats = self.keeps_nothing()
            found = self.found(outs, given, asked)
            for one in found:
                if one is None:
                    return reached(self, outs, found)
        return found

    cdef list found(self, list outs, list given, list asked):
        """The cotangents of the inputs that are asked for, from torch's engine; None for each other."""
        cdef list ends = [x for x, on in zip(self.inputs, asked) if on]
        if not ends:
            return [None] * len(asked)
        each = iter(run_engine(tuple(outs), tuple(given), True, False, tuple(ends), allow_unreachable=True,
                               accumulate_grad=False))
        return [next(each) if on else None for on in asked]

    cpdef bint keeps_nothing(self) except -1:
        """Can a run follow one that frees the graph?"""
        if self.hooked:
            return False                 # to look would call the hooks
        return keeps_nothing([self.node] if self.ways is None else [edge.node for edge in self.ways])

    cpdef list held(self, list operands):
        """Those operands that torch's nodes of this call hold as saved, None for each other."""
        cdef list held = [t if x is t else None for x, t in zip(self.inputs, operands)]
        cdef set saved
        cdef object x
        cdef Py_ssize_t i
        cdef bint look = False
        if self.hooked:
            return operands              # to look would call the hooks
        for i in range(len(operands)):
            x = self.inputs[i]
            if held[i] is None and is_tensor(x):
                if not ao_strided(x) or x.nbytes >= LARGE:
                    look = True              # the memory of one that is not saved is freed
                elif ao_uses(use_count, x) > UNSAVED:
                    held[i] = operands[i]
        if not look:
            return held
        saved = saved_operands([self.node] if self.ways is None else [edge.node for edge in self.ways])
        return operands if saved is None else [t if id(x) in saved else None for x, t in zip(self.inputs, operands)]

    cdef int let_go(self, list held) except -1:
        """Free the memory of copies that nobody holds, for torch's nodes need no more than their shapes."""
        cdef Py_ssize_t i
        for i in range(len(held)):
            if held[i] is None and (x := self.inputs[i]).nbytes >= LARGE:
                ao_set(set_data, x, torch.zeros((), dtype=ao_dtype(x), device=ao_get(get_device, x)).expand(shape_of(x)))
        return 0


cdef set for_engine = set()              # classes of nodes one of which has made what is not like its input


cdef bint lacks_some(list found) except -1:
    for g in found:
        if g is None:
            return True
    return False


def pull_back(g, extra, task, node):
    """The cotangents of an opaque call's operands."""
    cdef OpaqueCall call = <OpaqueCall>(<tuple>extra)[0]
    cdef list found, gs
    if call.usual and not task.create_graph and task.batch is None:
        gs = [g] if is_tensor(g) else list(g.parts)
        for one in gs:
            if one is not None:
                # a node that is called directly differentiates by every operand, which torch cannot for some calls
                found = call.cotangents(gs) if all([task.wants(n) for n in node.operands]) else None
                if found is None:
                    return call.by_engine(gs, task, node)
                if not task.retain:
                    call.repeats = not saves(call.node)
                return found
    return general_pull_back(g, extra, task, node)


cdef class Whole(Route):
    """The route of what has no line in the table and is no Python code: recorded as one node."""

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef object r
        cdef bint casts = ao_casts(any_autocast)
        if tp != NULL and kwargs.get("out") is None:
            if casts:
                args, kwargs = with_casts(func, args, kwargs)
            else:
                r = by_itself(<Tape>tp, func, args, kwargs, True, False)
                if r is not FOLLOWED:
                    return r
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
    cdef bint strided                    # have all its tensors strides, also those that do not require grad?

    def __cinit__(self):
        self.originals, self.nodes, self.copies = [], [], []
        self.strided = True

    cdef bint take(self, Tape tape, object x) except -1:
        """Note the tensors in an argument; False for one that the general way has to look at."""
        cdef Node n
        if type(x) is tuple or type(x) is list:
            for y in x:
                if not (plain_argument(y) or is_tensor(y)) or not self.take(tape, y):
                    return False
            return True
        if is_tensor(x):
            if not usual(x):
                if type(x) is not Tensor or ao_strided(x) or ao_needs_grad(x) or handle(tape, x).flags & REQUIRES_GRAD:
                    return False
                self.strided = False
                return True
            n = handle(tape, x)
            if n.flags & REQUIRES_GRAD and self.place(x) < 0:
                self.originals.append(x)
                self.nodes.append(n)
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
            for y in x:
                if not plain_argument(y):
                    return type(x)([self.put(y) for y in x])
            return x
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
    cdef object out, results
    cdef size_t switch = enter(tape)
    cdef included_autograd included
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
        included = included_autograd.__new__(included_autograd)
        included.enter()
        try:
            operands.copy()
            args = tuple([operands.put(x) for x in args])
            out = ao_call(binding_of(func), args, {k: operands.put(x) for k, x in kwargs.items()} if kwargs else None)
        finally:
            included.leave()
            set_paused(paused)
        results = usual_results(operands, out)
        if results is not None and (len(<list>results) == 1 or stages(results) is None):
            return noted(tape, operands, getattr(func, "__name__", None) or str(func), out, results)
    except (NotImplementedError, RuntimeError):
        if operands.copies:
            raise
        return None                          # the general way has the words
    finally:
        leave(tape, switch)
    return conclude(func, out, operands.originals, operands.copies)


cdef dict kinds = {}                     # class of a node of torch's -> `kind_of`


cdef object kind_of(object node):
    """The name of a node of torch's own that stands for one operator; None for others, written in Python or C++."""
    cdef object name = kinds.get(type(node), False)
    if name is False:
        name = None if isinstance(node, PythonNode) or is_unknown(type(node)) else name_of(node)
        if len(kinds) < 4096:
            kinds[type(node)] = name
    return name


cdef object address_of(object t):
    """Where a tensor's elements are; a number of its own for one that has none."""
    return ao_method0(data_ptr_method, t) or -<Py_ssize_t><PyObject *>t


cdef list usual_results(Operands operands, object out):
    """The tensors that the call has made, of memory of its own and one at least with a history of torch's; else None."""
    cdef list found = [], addresses = [address_of(x) for x in operands.copies]
    cdef bint followed = False, views = False
    for t in <tuple>out if isinstance(out, tuple) else (out,):
        if type(t) is not Tensor or not ao_plain(t) or not ao_strided(t) or ao_is_view(t) and not hidden(operands, t):
            return None
        views = views or ao_is_view(t)
        if ao_needs_grad(t):
            if not is_float(ao_dtype(t)) and not ao_dtype(t).is_complex or ao_get(get_is_leaf, t) is True \
                    or kind_of(ao_get(get_grad_fn, t)) is None:
                return None
            followed = True
        address = address_of(t)
        if address in addresses:         # also of two results that are one tensor
            return None
        addresses.append(address)
        found.append(t)
    if views and len(set([<size_t>ao_memory(t) for t in found])) < len(found):
        return None                      # one shows another's memory
    return found if followed else None


cdef bint hidden(Operands operands, object t) except -1:
    """Is this a view of memory that the call has made?"""
    cdef char *memory = ao_memory(t)
    if memory == NULL or not ao_needs_grad(t):
        return False
    for x in operands.copies:
        if not ao_plain(x) or ao_memory(x) == memory:
            return False
    return True


cdef object noted(Tape tape, Operands operands, str name, object out, list results):
    """Attach the node of a call that has made `results`, all tensors of `out`; `out` without torch's graph."""
    cdef list followed = [t for t in results if ao_needs_grad(t)]
    cdef list plain = [ao_method0(detach_method, t) if ao_needs_grad(t) else t for t in results]
    cdef list tracked = [plain[i] for i in range(len(results)) if ao_needs_grad(results[i])]
    cdef OpaqueCall call = call_of(name, operands, followed)
    cdef dict attributes = {"call": name, "torch": kind_of(ao_get(get_grad_fn, followed[0]))}
    cdef list kept = call.held(operands.originals)       # nothing holds the others for the user
    cdef Node node
    call.let_go(kept)
    if len(tracked) > 1:
        if call.numbers != tuple(range(len(tracked))):          # results of several nodes of torch's
            attributes["numbers"] = call.numbers
        record_outputs(tape, OPAQUE_MULTI, operands.nodes, tuple(operands.originals), attributes, True, tracked, (call, kept))
    else:
        node = fill(tape, OPAQUE, operands.nodes, tuple(operands.originals), attributes, True, tracked[0], (call, kept))
        node.vn = fresh_vn()
        if tape.sources:
            current_source(node)
        attach(tape, node, tracked[0])
    if not isinstance(out, tuple):
        return plain[0]
    return tuple(plain) if type(out) is tuple else type(out)(*plain) if hasattr(out, "_make") else type(out)(plain)


cdef OpaqueCall call_of(str name, Operands operands, list followed):
    """A call without saved-tensor hooks, by those of its results that torch follows."""
    cdef OpaqueCall call = OpaqueCall.__new__(OpaqueCall)
    cdef object made = ao_get(get_grad_fn, followed[0])
    call.name, call.inputs, call.usual, call.counts = name, operands.copies, True, not operands.strided
    call.node = made
    call.numbers = tuple([ao_get(get_output_nr, t) for t in followed])
    for t in followed:
        if ao_get(get_grad_fn, t) is not made:
            call.node = None
            call.ways = [GradientEdge(ao_get(get_grad_fn, t), ao_get(get_output_nr, t)) for t in followed]
            break
    return call
