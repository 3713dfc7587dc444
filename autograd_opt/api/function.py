"""CustomFunction, and unmodified `torch.autograd.Function` classes met inside a context.

Both have the same protocol; inside a context the forward runs without recording and the
class's own backward is the rule of the node.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any, NamedTuple

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private
from autograd_opt.abi import torch_private as private
from autograd_opt.engine import batched
from autograd_opt.engine.hooks import user_code
from autograd_opt.graph import handles, references, refusals, view_history
from autograd_opt.graph import tape as tapes
from autograd_opt.graph.node import version_number
from autograd_opt.graph.tensor import CustomTensor, revive
from autograd_opt.ops.table import MULTI, USERS, VARIADIC, define
from autograd_opt.record import new_nodes, transforms, views
from autograd_opt.record.outside import mark, recorded_before, tracked
from autograd_opt.record.saved_tensors import Packed, pack

Tensor = torch.Tensor
Making = view_history.Making
_torch_apply = torch_private.function_apply()


@torch.autograd.graph.Node.register
class Context:
    """The `ctx` of a forward and its backward: torch's `FunctionCtx`, for this engine."""

    _to_save: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _materialize = True
    _materialize_non_diff_grads = True
    _clear_on_access = False
    _places: tuple[tuple[int, ...], int] = (), 0

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        self.needs_input_grad = needs_input_grad
        self._saved: list[tuple[Any, int]] | None = []
        self._slots: dict[int, int] = {}
        self._output_nodes: dict[int, Any] = {}
        self.metadata: dict[str, Any] = {}

    def save_for_backward(self, *tensors: Any) -> None:
        """Tensors (or None) for `saved_tensors`: inputs, outputs or intermediates."""
        self._to_save = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        """Inputs that the forward wrote in place; they must be outputs too."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Outputs that carry no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing cotangents reach backward as zeros (the default) or as None."""
        self._materialize = value

    @property
    def to_save(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given; only inside forward."""
        return self._to_save

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """torch's old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given, checked to be unwritten since."""
        if self._saved is None:
            raise errors.FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they "
                "have already been freed). Saved intermediate values of the graph are freed when you call "
                ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
                "a second time or if you need to access saved tensors after calling backward."
            )
        out = []
        for i, (t, version) in enumerate(self._saved):
            if type(t) is Packed:
                t = t.seen_by_user() if tapes.get_recording() is not None else t.value()
            elif t is not None:
                with private.DisableTorchFunction():
                    if version_number(t) != version:
                        raise errors.InplaceError(
                            "one of the variables needed for gradient computation has been modified by an inplace "
                            f"operation: saved tensor {i} is at version {t._version}; expected version {version} "
                            "instead"
                        )
                if i in self._output_nodes and tapes.get_recording() is not None:
                    t = revive(self._output_nodes[i], t)
            out.append(t)
        if self._clear_on_access:
            self._saved = None
        return tuple(out)

    def _finish(self, outputs: list[Any], grad: bool) -> None:
        """After forward: remember what was saved, outputs as aliases without their handles.

        `outputs` has None for an operand returned as it is: it is saved as an operand, its alias is the output.
        """
        saved: list[tuple[Any, int]] = []
        hooked = grad and tapes.saving_hooks() > 0
        for t in self._to_save:
            if t is None:
                saved.append((None, 0))
                continue
            if not isinstance(t, Tensor) and not grad:
                saved.append((None, 0))         # torch asks only where there is something to save for
                continue
            if not isinstance(t, Tensor):
                raise errors.ArgumentTypeError(errors.at(
                    f"save_for_backward can only save variables, but argument {len(saved)} is of type "
                    f"{type(t).__name__}"
                ))
            if grad and t.is_inference():
                raise refusals.inference_saved()
            slots = [i for i, o in enumerate(outputs) if o is t]
            if slots:
                self._slots[len(saved)] = slots[0]
                t = t.detach()
            node = handles.handle_of(t, False) if hooked and not slots else None
            version = version_number(t)
            saved.append((pack(t, node) if hooked else t, version))
        self._saved = saved
        self._to_save = ()

    def _connect(self, found: dict[int, Any]) -> None:
        """Tell the saved outputs their nodes, which keep derivatives of any order connected."""
        self._output_nodes = {k: found[i] for k, i in self._slots.items() if i in found}
        for k, node in self._output_nodes.items():
            t = self._saved[k][0] if self._saved is not None else None
            if type(t) is Packed:
                t.node = node


class CustomFunction(torch.autograd.Function):
    """A user-defined operation: subclass it with static `forward` and `backward`.

    The protocol of `torch.autograd.Function`: `forward(ctx, *args)` computes with plain
    torch calls, `backward(ctx, *cotangents)` returns one cotangent (or None) for each
    argument of forward.

    >>> import autograd_opt as ao
    >>> class Cube(CustomFunction):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = ao.tensor([2.0])
    >>> with ao.AutogradGraph():
    ...     Cube.apply(x).sum().backward()
    >>> x.grad
    tensor([12.])
    """


def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`Function.apply`: this engine's inside a context, torch's outside."""
    if tapes.get_recording() is None:
        result = _torch_apply(cls, *transforms.swapped(args), **kwargs)
        if tapes.get_active() is None and torch.is_grad_enabled() and (followed := tracked(args)):
            mark(result, set(map(id, args)), recorded_before(cls, followed), cls)
        return result
    return run(cls, args, kwargs)


def run(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward without recording, then one node for the whole call."""
    with_setup = cls.setup_context is not private.SingleLevelFunction.setup_context
    if with_setup:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    with private.DisableTorchFunction():
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        found = [handles.handle_of(args[i]) for i in positions]
        enabled = private.is_grad_enabled()
        versions = [version_number(args[i]) for i in positions]
        seen = [i for i in positions if args[i]._is_view()]
        old_base = {i: views.base_of(args[i]) for i in seen if not views.unseen(args[i])}
    needs = [False] * len(args)
    for i, node in zip(positions, found, strict=True):
        needs[i] = node.requires_grad
    ctx = Context(tuple(needs))
    ctx._clear_on_access = bool(getattr(cls, "clear_saved_tensors_on_access", False))
    bases = [None if base is None else base[1] for base in old_base.values()]
    with tapes.Held([*found, *bases]):      # the forward may detach its operands, write them, end other runs
        try:
            with private.DisableTorchFunction():
                private.set_grad_enabled(False)
            if with_setup:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        finally:
            with private.DisableTorchFunction():
                private.set_grad_enabled(enabled)
        single = not isinstance(result, (tuple, list))
        outputs = [result] if single else list(result)
        call = Call(cls, ctx, args, positions, found, versions, old_base, enabled and any(needs), with_setup)
        with private.DisableTorchFunction():
            outputs = finish(call, outputs)
            ctx._dirty = ctx._non_differentiable = ()      # as in torch, no longer held
        if (tape := tapes.get_active()) is not None:
            tape.let_go_unread(found)
    return outputs[0] if single else tuple(outputs)


class Call(NamedTuple):
    """One application of a Function: its arguments and their nodes from before the forward."""

    function: Any
    ctx: Context
    args: tuple[Any, ...]
    positions: list[int]
    found: list[Any]
    versions: list[int]
    old_base: dict[int, Any]
    grad: bool
    with_setup: bool

    def is_input(self, t: Any) -> bool:
        return any(t is self.args[i] for i in self.positions)

    def is_dirty(self, t: Any) -> bool:
        return bool(self.ctx._dirty) and any(t is d for d in self.ctx._dirty)


def is_leaf(node: Any) -> bool:
    """Is this a leaf that requires grad, perhaps one written outside the record?"""
    while node.op.name == "written":
        node = node.operands[0]
    return bool(node.is_leaf and node.requires_grad)


def mark_written(call: Call, outputs: list[Any], tracked: list[int]) -> None:
    """Check what forward has marked as dirty, and refuse writes that the gradient cannot follow."""
    dirty = call.ctx._dirty
    if not dirty:
        return
    for i, t in enumerate(dirty):
        if not isinstance(t, Tensor):
            raise errors.GraphError(errors.at(
                f"mark_dirty can only accept variables, but argument {i} is of type {type(t).__name__}"))
    for t in dirty:
        if not t.is_inference():
            torch.autograd.graph.increment_version(t)
    returned = [outputs[i] for i in tracked] if call.grad else []
    if len(tracked) > 1 and any(call.is_dirty(o) and o._is_view() for o in returned):
        raise errors.InplaceError(errors.at(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. This is not supported by the current autograd engine. You should either make sure "
            "the input is not a view (using .clone() for example) or make your Function only return one Tensor "
            "(potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a "
            "second one that does the other operations)"))
    for node, i in zip(call.found, call.positions, strict=True):
        t = call.args[i]
        if not call.is_dirty(t) or not any(t is o for o in returned):
            continue
        if is_leaf(node) or view_history.leads_nowhere(node):
            raise errors.InplaceError(errors.at(
                "a leaf Variable that requires grad has been used in an in-place operation."))
        views.adopt(t, node)
        base = call.old_base[i] = call.old_base.get(i) or views.base_of(t)
        if base is None:
            continue
        views.protect(t, node, base[1])
        view_history.refuse_making(t, view_history.ITSELF, node)
        if is_leaf(base[1]):
            raise errors.InplaceError(errors.at(
                "a view of a leaf Variable that requires grad is being used in an in-place operation."))
    if not all(any(t is o for o in outputs) for t in dirty):
        raise errors.GraphError(errors.at(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function."))
    if any(call.is_dirty(o) and not call.is_input(o) for o in returned):
        warnings.warn(NO_INPUT, UserWarning, stacklevel=5)


NO_INPUT = ("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
            "should be passed to ctx.mark_dirty().")


def finish(call: Call, outputs: list[Any]) -> list[Any]:
    """Attach the node to the differentiable outputs."""
    ctx, args, positions = call.ctx, call.args, call.positions
    tensors = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    constants = set(map(id, ctx._non_differentiable))
    tracked = [i for i in tensors if id(outputs[i]) not in constants
               and (outputs[i].is_floating_point() or outputs[i].is_complex())]
    mark_written(call, outputs, tracked)
    before = list(outputs)
    replaced: dict[int, Tensor] = {}
    for i in tensors if call.grad else ():
        o = outputs[i]
        if call.is_dirty(o):
            if id(o) in constants and references.requires_grad(o):
                outputs[i] = o.detach()
            continue
        if call.is_input(o):
            if call.with_setup and i in tracked and any(o is t for t in ctx._to_save):
                raise errors.GraphError(errors.at(
                    "An input that has been returned as-is as output is being saved for backward. This is not "
                    "supported if you override setup_context. You should return and save a view of the input "
                    "instead, e.g. with x.view_as(x) or setup ctx inside the forward function itself."))
            outputs[i] = plain(o.view_as(o)) if i in tracked else o.detach()     # another tensor in each place
        elif id(o) in replaced:
            outputs[i] = replaced[id(o)]
        elif i in tracked and references.requires_grad(o) and not view_history.leads_nowhere(handles.handle_of(o)):
            outputs[i] = replaced[id(o)] = plain(o.detach())
    last = {id(outputs[i]): i for i in tracked}
    tracked = [i for i in tracked if last[id(outputs[i])] == i]     # a tensor returned twice: its last place
    ctx._finish([None if call.grad and call.is_input(o) and not call.is_dirty(o) else o for o in before], call.grad)
    several = call.grad and len(tracked) > 1
    for i in tracked:
        if outputs[i]._is_view() and not call.is_input(outputs[i]):
            how = Making.MULTI_OUTPUT_NODE if several else Making.IN_CUSTOM_FUNCTION
            setattr(outputs[i], view_history.BY_FUNCTION, int(how))
    if not call.grad or not tracked:
        for i in tensors:
            if call.is_dirty(outputs[i]):
                handles.wrote(outputs[i])
            if not call.grad and call.is_input(outputs[i]):
                outputs[i] = unrelated(outputs[i], call.is_dirty(outputs[i]))
        return outputs
    for i in tracked if ctx._dirty else ():
        if call.is_dirty(outputs[i]) and call.is_input(outputs[i]):
            outputs[i].grad = None               # as in torch: it was that of the value before
    operands = tuple(args[i] for i in positions)
    metas = {i: (outputs[i].shape, outputs[i].dtype, outputs[i].device) for i in tensors}
    ctx._places = tuple(tracked), len(outputs)
    extra = (call.function, ctx, positions, len(args), len(outputs), tracked, metas)
    attributes = {"function": call.function.__name__}
    if len(tracked) == 1:
        (i,) = tracked
        base = next((call.old_base.get(p) for p in positions if args[p] is outputs[i]), None)
        found = call.found if base is None else [
            views.past_hooks(n, base) if args[p] is outputs[i] else n
            for n, p in zip(call.found, positions, strict=True)]
        if base is None:
            node = views.rewrite(FUNCTION, found, operands, attributes, outputs[i], extra)
        else:
            node = new_nodes.record_value(FUNCTION, found, operands, attributes, outputs[i], extra)
            views.after_write(base, node, outputs[i])
        ctx._connect({i: node})
        return outputs
    new_nodes.record_writes(FUNCTION_MULTI, call.found, operands, attributes, [outputs[i] for i in tracked], extra)
    ctx._connect({i: outputs[i]._node for i in tracked})
    return outputs


def unrelated(t: Tensor, dirty: bool) -> Tensor:
    """An input that a Function returns where no gradient is followed: an alias, which requires none."""
    if references.requires_grad(t):
        alias = t.detach()
        if type(t) is not Tensor and type(alias) is Tensor:
            alias.__class__ = CustomTensor
        return alias
    if dirty:
        return t
    alias = t.view_as(t)
    return alias if type(t) in (Tensor, CustomTensor) else alias.as_subclass(type(t))


def plain(t: Tensor) -> Tensor:
    """`t`, fresh from a call, without a class of its own (as_subclass would make a view)."""
    if type(t) is not Tensor:
        t.__class__ = Tensor
    return t


def pull_back(g: Any, extra: Any, task: Any, node: Any) -> list[Any]:
    """Call the class's own backward and check what it returns."""
    cls, ctx, positions, n_args, n_outputs, tracked, metas = extra
    parts = g.parts if hasattr(g, "parts") else [g]
    cotangents: list[Any] = [None] * n_outputs
    for i, part in zip(tracked, parts, strict=True):
        cotangents[i] = part
    if ctx._materialize:
        for i, (shape, dtype, device) in metas.items():
            if cotangents[i] is None and (i in tracked or ctx._materialize_non_diff_grads):
                cotangents[i] = torch.zeros(shape, dtype=dtype, device=device)
    with user_code(task, node):
        function = rule_of(cls)
        if getattr(cls, "boxed_grads_call", False):
            results = function(ctx, cotangents)
        else:
            results = function(ctx, *cotangents)
    name = f"{cls.__name__}Backward"
    if not isinstance(results, tuple):
        results = (results,)
    if len(results) > n_args and all(r is None for r in results[n_args:]):
        results = results[:n_args]
    if len(results) != n_args:
        raise errors.GraphError(
            f"function {name} returned an incorrect number of gradients (expected {n_args}, got {len(results)})"
        )
    return [check(name, i, results[i], n) for i, n in zip(positions, node.operands, strict=True)]


BACKWARD, VJP = torch.autograd.Function.backward, torch.autograd.Function.vjp


def rule_of(cls: Any) -> Any:
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


def check(name: str, i: int, g: Any, node: Any) -> Any:
    """One cotangent that user code returned, brought to its operand's shape where torch would."""
    if g is None or node is None or not node.requires_grad:
        return None
    if not isinstance(g, Tensor):
        raise errors.GraphError(f"expected Variable or None (got {type(g).__name__})")
    if g.shape != node.shape:
        try:
            return g.sum_to_size(node.shape)
        except RuntimeError:
            raise errors.GraphError(
                f"Function {name} returned an invalid gradient at index {i} - got {list(g.shape)} but expected shape "
                f"compatible with {list(node.shape)}"
            ) from None
    return g if g.dtype == node.dtype else g.to(node.dtype)


batched.USERS.add(pull_back)
FUNCTION = define("function", "*tensors, function=''", VARIADIC, joint=pull_back, bind=lambda *a: (a, {}))
FUNCTION_MULTI = define("function_multi", "*tensors, function=''", MULTI | VARIADIC, joint=pull_back,
                        bind=lambda *a: (a, {}))
FUNCTION.functions = FUNCTION_MULTI.functions = True
USERS |= {FUNCTION, FUNCTION_MULTI}


def install() -> None:
    """Route `Function.apply` through this module (it asks per thread whether a graph records)."""
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
