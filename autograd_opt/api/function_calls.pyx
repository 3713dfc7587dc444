"""A call of a Function inside a context: its `ctx`, its forward without recording, one node for it, its backward as the rule.

CustomFunction, and unmodified `torch.autograd.Function` classes, have the same protocol.
"""

import inspect
import types
import warnings

import torch

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_dtype, ao_get, ao_grad_on, ao_is_view, ao_needs_grad, ao_own, ao_plain,
    ao_try_attr, ao_use_reads,
)
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.api.function_context cimport place_of
from autograd_opt.api.function_context import Context
from autograd_opt.engine import batched
from autograd_opt.engine.user_code import user_code
from autograd_opt.graph import references, view_history
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.handles import handle_of, wrote
from autograd_opt.graph.node cimport (
    LEAF, MARK, NODE, REQUIRES_GRAD, CustomTensor, Node, PlainTensor, ordinary, shape_of,
)
from autograd_opt.graph.plain_values cimport is_float, same_device
from autograd_opt.graph.tape cimport Held, Tape, active_tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.ops.table import MULTI, USERS, VARIADIC, define
from autograd_opt.record import new_nodes, transforms, views
from autograd_opt.record.guard cimport set_grad_mode
from autograd_opt.record.outside import mark, recorded_before, tracked

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object grad_enabled = private.is_grad_enabled
cdef str NON_DIFFERENTIABLE_GRADS = private.NON_DIFFERENTIABLE_GRADS
cdef object get_device = ao_own(private.TensorBase.__dict__["device"])
cdef object no_setup_context = private.SingleLevelFunction.setup_context
cdef object torch_apply = private.function_apply()
cdef object Making = view_history.Making
cdef object FunctionType = types.FunctionType
cdef int VARIADIC_CODE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def apply(cls, *args, **kwargs):
    """`Function.apply`: this engine's inside a context, torch's outside."""
    if recording() != NULL and not traced(args):
        return run(cls, args, kwargs)
    result = torch_apply(cls, *transforms.swapped(args), **kwargs)
    if active_tape() is None and torch.is_grad_enabled():
        followed_tensors = tracked(args)
        if followed_tensors:
            mark(result, set(map(id, args)), recorded_before(cls, followed_tensors), cls)
    return result


cdef bint traced(tuple args) except -1:
    """True if torch's compiler is at work on stand-ins of tensors, whose Functions are its own."""
    for t in args:
        if isinstance(t, Tensor) and not ordinary(t) and private.is_compiling():
            return True
    return False


@cython.final
cdef class Call:
    """One application of a Function: its arguments and their nodes from before the forward."""
    cdef object function, ctx
    cdef tuple args
    cdef list positions, found
    cdef dict old_base
    cdef bint grad, with_setup

    cdef bint is_input(self, object t) except -1:
        for i in self.positions:
            if self.args[<Py_ssize_t>i] is t:
                return True
        return False

    cdef bint is_dirty(self, object t) except -1:
        return place_of(t, self.ctx._dirty) >= 0


cdef object run(object cls, tuple args, dict kwargs):
    """Forward without recording, then one node for the whole call."""
    cdef Call call = Call.__new__(Call)
    cdef size_t before
    cdef Tape tape
    cdef bint enabled, single = False
    cdef list outputs, held
    call.function, call.with_setup = cls, cls.setup_context is not no_setup_context
    if call.with_setup and not bound_already(cls.forward, args, kwargs):
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    call.args = args
    before = functions_off()
    try:
        call.ctx = Context(take_operands(call))
        call.ctx._clear_on_access = bool(getattr(cls, "clear_saved_tensors_on_access", False))
        held = call.found + [base[1] for base in call.old_base.values() if base is not None] if call.old_base else call.found
        enabled = ao_grad_on(grad_enabled)
        call.grad = enabled and any_follows(call.found)
    finally:
        functions_on(before)
    with Held(held):                     # the forward may detach its operands, write them, end other runs
        try:
            set_grad_mode(False)
            if call.with_setup:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(call.ctx, args, result)
            else:
                result = cls.forward(call.ctx, *args, **kwargs)
        finally:
            set_grad_mode(enabled)
        single = not isinstance(result, tuple)           # a list is as any other object
        outputs = [result] if single else list(result)
        before = functions_off()
        try:
            outputs = finish(call, outputs)
            call.ctx._dirty = call.ctx._non_differentiable = ()      # as in torch, no longer held
        finally:
            functions_on(before)
        tape = active_tape()
        if tape is not None:
            tape.let_go_unread(call.found)
    return outputs[0] if single else tuple(outputs)


cdef bint bound_already(object forward, tuple args, dict kwargs) except -1:
    """True if these arguments are, one by one and no more, the parameters of `forward`."""
    if kwargs or type(forward) is not FunctionType or forward.__dict__:
        return False
    code = forward.__code__
    return code.co_argcount == len(args) and not code.co_kwonlyargcount and not code.co_flags & VARIADIC_CODE


cdef tuple take_operands(Call call):
    """Look up the nodes of the tensors among the arguments, and return which arguments need a gradient."""
    cdef Tape tape = active_tape()
    cdef list needs = [False] * len(call.args)
    cdef Py_ssize_t i
    cdef Node node
    call.positions, call.found, call.old_base = [], [], {}
    for i in range(len(call.args)):
        a = call.args[i]
        if isinstance(a, Tensor):
            node = handle(tape, a)
            call.positions.append(i)
            call.found.append(node)
            needs[i] = node.flags & REQUIRES_GRAD != 0
    for place in call.positions:
        a = call.args[<Py_ssize_t>place]
        if ao_is_view(a) and not views.unseen(a):
            call.old_base[place] = views.base_of(a)
    return tuple(needs)


cdef bint any_follows(list found) except -1:
    """True if one of these nodes requires grad."""
    cdef Node node
    for node in found:
        if node.flags & REQUIRES_GRAD:
            return True
    return False


cdef bint is_leaf(Node node) except -1:
    """Is this a leaf that requires grad, perhaps one written outside the record?"""
    while node.op.name == "written":
        node = node.in0
    return node.flags & (LEAF | REQUIRES_GRAD) == LEAF | REQUIRES_GRAD


cdef int mark_written(Call call, list outputs, list tracked) except -1:
    """Check what forward has marked as dirty, and refuse writes that the gradient cannot follow."""
    dirty = call.ctx._dirty
    for i, t in enumerate(dirty):
        if not isinstance(t, Tensor):
            raise errors.GraphError(errors.at(
                f"mark_dirty can only accept variables, but argument {i} is of type {type(t).__name__}"))
    for t in dirty:
        if not t.is_inference():
            torch.autograd.graph.increment_version(t)
    returned = [outputs[i] for i in tracked] if call.grad else []
    if len(tracked) > 1 and any([call.is_dirty(o) and ao_is_view(o) for o in returned]):
        raise errors.InplaceError(errors.at(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. This is not supported by the current autograd engine. You should either make sure "
            "the input is not a view (using .clone() for example) or make your Function only return one Tensor "
            "(potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a "
            "second one that does the other operations)"))
    for node, i in zip(call.found, call.positions):
        if call.is_dirty(call.args[i]) and place_of(call.args[i], returned) >= 0:
            adopt_written(call, node, i)
    for t in dirty:
        if place_of(t, outputs) < 0:
            raise errors.GraphError(errors.at(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."))
    if any([call.is_dirty(o) and not call.is_input(o) for o in returned]):
        warnings.warn(NO_INPUT, UserWarning, stacklevel=1)
    return 0


cdef int adopt_written(Call call, Node node, Py_ssize_t i) except -1:
    """Let what argument `i`, whose node this is, is a view of follow the write; refuse one that torch refuses."""
    t = call.args[i]
    if is_leaf(node) or view_history.leads_nowhere(node):
        raise errors.InplaceError(errors.at(
            "a leaf Variable that requires grad has been used in an in-place operation."))
    views.adopt(t, node)
    base = call.old_base[i] = call.old_base.get(i) or views.base_of(t)
    if base is None:
        return 0
    views.protect(t, node, base[1])
    view_history.refuse_making(t, view_history.ITSELF, node)
    if is_leaf(base[1]) or (node.flags & REQUIRES_GRAD and not base[1].requires_grad):
        raise errors.InplaceError(errors.at(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."))
    return 0


NO_INPUT = ("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
            "should be passed to ctx.mark_dirty().")


cdef list finish(Call call, list outputs):
    """Attach the node to the differentiable outputs."""
    cdef object ctx = call.ctx
    cdef list tensors = [], tracked = [], before = list(outputs)
    cdef Py_ssize_t i
    cdef set constants = {id(t) for t in ctx._non_differentiable}
    for i in range(len(outputs)):
        o = outputs[i]
        if isinstance(o, Tensor):
            tensors.append(i)
            if differentiable(ao_dtype(o)) and not (constants and id(o) in constants):
                tracked.append(i)
    if ctx._dirty:
        mark_written(call, outputs, tracked)
    if call.grad:
        replace_outputs(call, outputs, tensors, tracked, constants)
        before = [None if call.is_input(o) and not call.is_dirty(o) else o for o in before]
    if len(tracked) > 1:
        last = {id(outputs[i]): i for i in tracked}
        tracked = [i for i in tracked if last[id(outputs[i])] == i]     # a tensor returned twice: its last place
    ctx._finish(before, call.grad)
    for i in tracked:
        if ao_is_view(outputs[i]) and not call.is_input(outputs[i]):
            how = Making.MULTI_OUTPUT_NODE if call.grad and len(tracked) > 1 else Making.IN_CUSTOM_FUNCTION
            setattr(outputs[i], view_history.BY_FUNCTION, int(how))
    if call.grad and tracked:
        record(call, outputs, tensors, tracked)
        return outputs
    for i in tensors:
        if call.is_dirty(outputs[i]):
            wrote(outputs[i])
        if not call.grad and call.is_input(outputs[i]):
            outputs[i] = unrelated(outputs[i], call.is_dirty(outputs[i]))
    return outputs


cdef bint differentiable(object dtype) except -1:
    """True if values of this dtype have gradients."""
    return is_float(dtype) or dtype.is_floating_point or dtype.is_complex


cdef int replace_outputs(Call call, list outputs, list tensors, list tracked, set constants) except -1:
    """Let each output that is an operand, or that has a history of its own, be another tensor."""
    cdef dict replaced = {}
    cdef Py_ssize_t i
    for i in tensors:
        o = outputs[i]
        if call.is_dirty(o):
            if id(o) in constants and references.requires_grad(o):
                outputs[i] = o.detach()
        elif call.is_input(o):
            if call.with_setup and i in tracked and place_of(o, call.ctx._to_save) >= 0:
                raise errors.GraphError(errors.at(
                    "An input that has been returned as-is as output is being saved for backward. This is not "
                    "supported if you override setup_context. You should return and save a view of the input "
                    "instead, e.g. with x.view_as(x) or setup ctx inside the forward function itself."))
            outputs[i] = plain(o.view_as(o)) if i in tracked else o.detach()     # another tensor in each place
        elif replaced and id(o) in replaced:
            outputs[i] = replaced[id(o)]
        elif not fresh(o) and i in tracked and references.requires_grad(o) and not view_history.leads_nowhere(handle_of(o)):
            outputs[i] = replaced[id(o)] = plain(o.detach())
    return 0


cdef bint fresh(object o) except -1:
    """True if this is a tensor of torch's own as a kernel has left it: no view, no node, no gradient asked for."""
    return type(o) is PlainTensor and ao_plain(o) and not ao_is_view(o) and not ao_needs_grad(o) \
        and not has(o, NODE) and not has(o, MARK)


cdef bint has(object o, object name) except -1:
    """True if an object has this attribute."""
    cdef PyObject *found = ao_try_attr(o, name)
    if found == NULL:
        return False
    Py_DECREF(<object>found)
    return True


cdef int record(Call call, list outputs, list tensors, list tracked) except -1:
    """Append the node of the call, which the tracked outputs get."""
    cdef object ctx = call.ctx
    cdef Py_ssize_t i
    if ctx._dirty:
        for i in tracked:
            if call.is_dirty(outputs[i]) and call.is_input(outputs[i]):
                outputs[i].grad = None           # as in torch: it was that of the value before
    operands = tuple([call.args[<Py_ssize_t>p] for p in call.positions])
    metas = {i: (shape_of(outputs[i]), ao_dtype(outputs[i]), same_device(ao_get(get_device, outputs[i]))) for i in tensors}
    ctx._places = tuple(tracked), len(outputs)
    extra = (call.function, ctx, call.positions, len(call.args), len(outputs), tracked, metas)
    attributes = {"function": call.function.__name__}
    if len(tracked) > 1:
        new_nodes.record_writes(FUNCTION_MULTI, call.found, operands, attributes, [outputs[i] for i in tracked], extra)
        ctx._connect({i: outputs[i]._node for i in tracked})
        return 0
    i = tracked[0]
    ctx._connect({i: record_one(call, outputs[i], operands, attributes, extra)})
    return 0


cdef object record_one(Call call, object output, tuple operands, dict attributes, tuple extra):
    """The node of a call with one output that has gradients."""
    base = None
    for p in call.positions if call.old_base else ():
        if call.args[<Py_ssize_t>p] is output:
            base = call.old_base.get(p)
            break
    if base is not None:
        found = [views.past_hooks(n, base) if call.args[<Py_ssize_t>p] is output else n
                 for n, p in zip(call.found, call.positions)]
        node = new_nodes.record_value(FUNCTION, found, operands, attributes, output, extra)
        views.after_write(base, node, output)
        return node
    if has(output, NODE):
        return views.rewrite(FUNCTION, call.found, operands, attributes, output, extra)
    node = new_nodes.record_write(FUNCTION, call.found, operands, attributes, output, extra)
    if call.found and not (<Node>call.found[0]).flags & REQUIRES_GRAD and (<Node>node).flags & REQUIRES_GRAD:
        base_became_late(output)
    return node


cdef object unrelated(object t, bint dirty):
    """An input that a Function returns where no gradient is followed: an alias, which requires none."""
    if references.requires_grad(t):
        alias = t.detach()
        if type(t) is not PlainTensor and type(alias) is PlainTensor:
            alias.__class__ = CustomTensor
        return alias
    if dirty:
        return t
    alias = t.view_as(t)
    if type(t) is not PlainTensor and type(t) is not CustomTensor:
        alias = alias.as_subclass(type(t))
    setattr(alias, view_history.BY_FUNCTION, int(Making.IN_CUSTOM_FUNCTION))
    return alias


cdef object plain(object t):
    """`t`, fresh from a call, without a class of its own (as_subclass would make a view)."""
    if type(t) is not PlainTensor:
        t.__class__ = PlainTensor
    return t


def pull_back(g, tuple extra, task, Node node):
    """Call the class's own backward and check what it returns."""
    cls, ctx, positions, n_args, n_outputs, tracked, metas = extra
    cdef list cotangents = [None] * n_outputs
    cdef Py_ssize_t i, count = n_args
    for i, part in zip(tracked, (g,) if g is None or isinstance(g, Tensor) else g.parts):
        cotangents[i] = part
    if ctx._materialize:
        for i, (shape, dtype, device) in metas.items():
            if cotangents[i] is None and (i in tracked or getattr(ctx, NON_DIFFERENTIABLE_GRADS)):
                cotangents[i] = torch.zeros(shape, dtype=dtype, device=device)
    with user_code(task, node):
        function = rule_of(cls)
        if getattr(cls, "boxed_grads_call", False):
            results = function(ctx, cotangents)
        else:
            results = function(ctx, *cotangents)
    if not isinstance(results, tuple):
        results = (results,)
    if len(results) > count and all([r is None for r in results[count:]]):
        results = results[:count]
    if len(results) != count:
        raise errors.GraphError(
            f"function {cls.__name__}Backward returned an incorrect number of gradients (expected {count}, got "
            f"{len(results)})"
        )
    operands = node.operands
    return [check(cls, i, results[i], <Node>n) for i, n in zip(positions, operands)]


BACKWARD, VJP = torch.autograd.Function.backward, torch.autograd.Function.vjp


cdef object rule_of(object cls):
    """The class's `backward`, which may also be named `vjp`."""
    backward, vjp = cls.backward, cls.vjp
    if (backward is BACKWARD) is not (vjp is VJP):
        return vjp if backward is BACKWARD else backward
    if backward is not BACKWARD:
        raise errors.GraphError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
            "one of them."
        )
    raise errors.UnsupportedError(
        "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
        "backward mode AD."
    )


cdef object check(object cls, Py_ssize_t i, object g, Node node):
    """One cotangent that user code returned, brought to its operand's shape where torch would."""
    if g is None or node is None or not node.flags & REQUIRES_GRAD:
        return None
    if not isinstance(g, Tensor):
        raise errors.GraphError(f"expected Variable or None (got {type(g).__name__})")
    if shape_of(g) != node.shape:
        try:
            return g.sum_to_size(node.shape)
        except RuntimeError:
            raise errors.GraphError(
                f"Function {cls.__name__}Backward returned an invalid gradient at index {i} - got {list(g.shape)} but "
                f"expected shape compatible with {list(node.shape)}"
            ) from None
    return g if ao_dtype(g) is node.dtype else g.to(node.dtype)


batched.USERS.add(pull_back)
cdef object FUNCTION = define("function", "*tensors, function=''", VARIADIC, joint=pull_back, bind=lambda *a: (a, {}))
cdef object FUNCTION_MULTI = define("function_multi", "*tensors, function=''", MULTI | VARIADIC, joint=pull_back,
                                    bind=lambda *a: (a, {}))
FUNCTION.functions = FUNCTION_MULTI.functions = True
USERS.update((FUNCTION, FUNCTION_MULTI))
