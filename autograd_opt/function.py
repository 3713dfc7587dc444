"""CustomFunction, and unmodified `torch.autograd.Function` classes met inside a context.

Both have the same protocol; inside a context the forward runs without recording and the
class's own backward is the rule of the node.
"""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt import errors, recorder
from autograd_opt import node as nodes
from autograd_opt.hooks import user_code
from autograd_opt.ops.table import MULTI, VARIADIC, define
from autograd_opt.tensor import revive

Tensor = torch.Tensor
_torch_apply = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


class Context:
    """The `ctx` of a forward and its backward: torch's `FunctionCtx`, for this engine."""

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        self.needs_input_grad = needs_input_grad
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[tuple[Any, int]] | None = []
        self._slots: dict[int, int] = {}
        self._output_nodes: dict[int, Any] = {}
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._materialize = True
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
            if t is not None:
                with torch._C.DisableTorchFunction():
                    if t._version != version:
                        raise errors.InplaceError(
                            "one of the variables needed for gradient computation has been modified by an inplace "
                            f"operation: saved tensor {i} is at version {t._version}; expected version {version} "
                            "instead"
                        )
                if i in self._output_nodes and torch.is_grad_enabled() and nodes.get_recording() is not None:
                    t = revive(self._output_nodes[i], t)
            out.append(t)
        return tuple(out)

    def _finish(self, outputs: list[Any]) -> None:
        """After forward: remember what was saved, outputs as aliases without their handles."""
        saved = []
        for t in self._to_save:
            if t is None:
                saved.append((None, 0))
                continue
            if not isinstance(t, Tensor):
                raise errors.ArgumentTypeError(errors.at(
                    f"save_for_backward can only save variables, but argument {len(saved)} is of type "
                    f"{type(t).__name__}"
                ))
            slots = [i for i, o in enumerate(outputs) if o is t]
            if slots:
                self._slots[len(saved)] = slots[0]
                t = t.detach()
            saved.append((t, t._version))
        self._saved = saved
        self._to_save = ()


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
    if nodes.get_recording() is None:
        return _torch_apply(cls, *args, **kwargs)
    return run(cls, args, kwargs)


def run(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward without recording, then one node for the whole call."""
    with torch._C.DisableTorchFunction():
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        found = [nodes.handle_of(args[i]) for i in positions]
        enabled = torch.is_grad_enabled()
    by_position = dict(zip(positions, found, strict=True))
    needs = tuple(enabled and i in by_position and by_position[i].requires_grad for i in range(len(args)))
    ctx = Context(needs)
    with torch.no_grad():
        if cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context:
            result = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, result)
        else:
            result = cls.forward(ctx, *args, **kwargs)
    single = not isinstance(result, (tuple, list))
    outputs = [result] if single else list(result)
    with torch._C.DisableTorchFunction():
        outputs = finish(cls, ctx, args, outputs, found, positions, any(needs))
    return outputs[0] if single else tuple(outputs)


def finish(cls: Any, ctx: Context, args: tuple[Any, ...], outputs: list[Any], found: list[Any],
           positions: list[int], grad: bool) -> list[Any]:
    """Attach the node to the differentiable outputs."""
    tensors = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    dirty = [t for t in ctx._dirty if isinstance(t, Tensor)]
    for k, i in enumerate(positions):
        if any(args[i] is d for d in dirty) and grad:
            if found[k].is_leaf and found[k].requires_grad:
                raise errors.InplaceError(errors.at(
                    "a leaf Variable that requires grad has been used in an in-place operation."))
            if args[i]._is_view() and nodes.handle_of(args[i]._base).is_leaf and args[i]._base.requires_grad:
                raise errors.InplaceError(errors.at(
                    "a view of a leaf Variable that requires grad is being used in an in-place operation."))
            if args[i]._is_view():
                raise errors.UnsupportedError(errors.at(
                    f"{cls.__name__} marks a view as dirty, which is not supported: write to the base, or to a clone()"
                ))
    tracked = [i for i in tensors if not any(outputs[i] is n for n in ctx._non_differentiable)
               and (outputs[i].is_floating_point() or outputs[i].is_complex())]
    before = list(outputs)
    if grad:
        for i in tracked:
            o = outputs[i]
            if any(o is args[p] for p in positions) and not any(o is d for d in dirty):
                outputs[i] = o.view_as(o).detach()
            elif type(o) is not Tensor and o.__dict__.get("_node") is not None and not any(o is d for d in dirty):
                outputs[i] = o.detach().as_subclass(Tensor)
    for i in tensors:
        if i not in tracked and grad and any(outputs[i] is args[p] for p in positions):
            outputs[i] = outputs[i].detach()
    ctx._finish(before)
    if not grad or not tracked:
        return outputs
    operands = tuple(args[i] for i in positions)
    metas = [(o.shape, o.dtype, o.device) for o in (outputs[i] for i in tracked)]
    extra = (cls, ctx, positions, len(args), len(outputs), tracked, metas)
    attributes = {"function": cls.__name__}
    old = [found[k] for k in range(len(positions))]
    if len(tracked) == 1:
        node = recorder.record_write(FUNCTION, old, operands, attributes, outputs[tracked[0]], extra)
        found_nodes = {tracked[0]: node}
    else:
        recorder.record_writes(FUNCTION_MULTI, old, operands, attributes, [outputs[i] for i in tracked], extra)
        found_nodes = {i: outputs[i]._node for i in tracked}
    # The context and the node refer to each other until the node is released, which the tape does.
    ctx._output_nodes = {k: found_nodes[i] for k, i in ctx._slots.items() if i in found_nodes}
    return outputs


def pull_back(g: Any, extra: Any, task: Any, node: Any) -> list[Any]:
    """Call the class's own backward and check what it returns."""
    cls, ctx, positions, n_args, n_outputs, tracked, metas = extra
    parts = g.parts if hasattr(g, "parts") else [g]
    cotangents: list[Any] = [None] * n_outputs
    for i, part, (shape, dtype, device) in zip(tracked, parts, metas, strict=True):
        if part is None and ctx._materialize:
            part = torch.zeros(shape, dtype=dtype, device=device)
        cotangents[i] = part
    with user_code(task):
        function = cls.backward if cls.backward is not torch.autograd.Function.backward else cls.vjp
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


FUNCTION = define("function", "*tensors, function=''", VARIADIC, joint=pull_back, bind=lambda *a: (a, {}))
FUNCTION_MULTI = define("function_multi", "*tensors, function=''", MULTI | VARIADIC, joint=pull_back,
                        bind=lambda *a: (a, {}))


def install() -> None:
    """Route `Function.apply` through this module (it asks per thread whether a graph records)."""
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
