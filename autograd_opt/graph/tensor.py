"""CustomTensor: a real torch.Tensor whose operators are recorded by the active graph.

The class adds nothing to the tensor but a handle to its node; it owns no graph state.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt._common.arguments import named
from autograd_opt.abi.original_functions import (
    BACKWARD,
    REGISTER_HOOK,
    REGISTER_POST_ACCUMULATE,
    RETAIN_GRAD,
    TENSOR_BACKWARD,
)
from autograd_opt.engine.executor import backward_usual
from autograd_opt.errors import GraphError, at, unsupported_operand
from autograd_opt.graph import released_history
from autograd_opt.graph.node import get_recording, stand_in, unusual
from autograd_opt.record.recorder import collect, own_memory


class CustomTensor(torch.Tensor):
    """A torch tensor that an `AutogradGraph` can record.

    Made by `autograd_opt.tensor` (leaves) and by every recorded operation.  Outside any
    graph it computes as a plain tensor does, and nothing is recorded.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph():
    ...     y = (x * 3).sum()
    ...     print(type(y).__name__, isinstance(y, torch.Tensor), y.shape)
    CustomTensor True torch.Size([])
    """

    _node: Any
    _requires_grad: bool

    def __new__(cls, data: Any, dtype: torch.dtype | None = None, device: torch.device | str | None = None,
                requires_grad: bool = True) -> CustomTensor:
        """Make a leaf, as `autograd_opt.tensor` does."""
        return tensor(data, dtype, device, requires_grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls that no mode has taken: those outside any context compute as plain torch."""
        from autograd_opt.record import dispatch
        if get_recording() is not None:
            return dispatch.call(func, args, kwargs or {})
        return outside(func, args, kwargs or {})

    # A context's mode would see each of these reads; in the class they cost a tenth.
    @property
    def requires_grad(self) -> bool:
        node = self.__dict__.get("_node")
        if node is not None and not node.is_leaf:
            if node.view is None or (node.requires_grad and node.op != "view_apart"):
                return bool(node.requires_grad)
            from autograd_opt.graph.references import requires_grad
            return requires_grad(self)
        return bool(self.__dict__.get("_requires_grad", False))

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        from autograd_opt.api.tensor_methods import assign_requires_grad
        assign_requires_grad(self, bool(value))

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]  # torch declares attributes
        node = self.__dict__.get("_node")
        if node is None or node.is_leaf:
            tape = get_recording()
            if tape is None or not tape.late:
                return True
        elif node.requires_grad and node.view is None:
            return False
        from autograd_opt.api.tensor_methods import get_is_leaf
        return get_is_leaf(None, (self,), {})

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]
        from autograd_opt.api.tensor_methods import get_grad_fn
        return get_grad_fn(None, (self,), {})

    @property
    def retains_grad(self) -> bool:  # type: ignore[override]
        from autograd_opt.api.tensor_methods import get_retains_grad
        return get_retains_grad(None, (self,), {})

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        """Accumulate the gradients of this tensor into the leaves of its graph."""
        if torch.Tensor.backward is not TENSOR_BACKWARD:
            given = {"gradient": gradient, "retain_graph": retain_graph, "create_graph": create_graph, "inputs": inputs}
            torch.Tensor.backward(self, **{k: v for k, v in given.items() if v is not None and v is not False})
            return
        if torch.autograd.backward is not BACKWARD:
            torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
            return
        if gradient is None and inputs is None and not retain_graph and create_graph is False \
                and not (released_history.graphs and released_history.innermost()) and backward_usual(self):
            return
        from autograd_opt.engine.backward import backward
        from autograd_opt.record.transforms import enclosing
        if enclosing() is not None:
            torch.Tensor.backward(self, gradient, retain_graph, create_graph, inputs)
            return
        backward(self, None if gradient is None else (gradient,), retain_graph, create_graph, inputs)

    def register_hook(self, hook: Any) -> Any:
        """Call `hook(cotangent)` whenever a run has this tensor's cotangent; it may replace it."""
        if torch.Tensor.register_hook is not REGISTER_HOOK:
            return torch.Tensor.register_hook(self, hook)
        from autograd_opt.graph.hooks import register_tensor_hook
        return register_tensor_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call `hook(tensor)` after a run has written this leaf's `.grad`."""
        if torch.Tensor.register_post_accumulate_grad_hook is not REGISTER_POST_ACCUMULATE:
            return torch.Tensor.register_post_accumulate_grad_hook(self, hook)
        from autograd_opt.graph.hooks import register_post_accumulate
        return register_post_accumulate(self, hook)

    def retain_grad(self) -> None:
        """Let backward fill `.grad` although this is not a leaf."""
        if torch.Tensor.retain_grad is not RETAIN_GRAD:
            torch.Tensor.retain_grad(self)
            return
        from autograd_opt.graph.hooks import retain_grad
        retain_grad(self)

    def __format__(self, format_spec: str) -> str:
        """As of a tensor of torch's own class: `f"{loss:.3f}"` is that of its number."""
        with torch._C.DisableTorchFunction():
            if self.dim() == 0 and not self.is_meta:
                return self.detach().item().__format__(format_spec)
        return str(self) if not format_spec else object.__format__(self, format_spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunction():
            value = self.detach().as_subclass(torch.Tensor)
            if self.__dict__.get("_made_here"):
                return tensor, (value, None, None, self.requires_grad)
            # What was computed travels as a value of torch's own type, a leaf where it arrives.
            return value.requires_grad_(self.requires_grad).__reduce_ex__(protocol)


# Programs for several libraries (opt_einsum, autoray) ask a class's module whose tensors they are given.
CustomTensor.__module__ = "torch.autograd_opt"
sys.modules[CustomTensor.__module__] = sys.modules[__name__]
__test__ = {"CustomTensor": CustomTensor}      # doctest takes it for a class from elsewhere


def outside(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch call on CustomTensors outside any context: nothing is recorded.

    A tensor of a graph that needs no gradient is a constant to torch, whose own autograd follows the other operands.
    """
    from autograd_opt.record.dispatch import SPECIAL, original
    with torch._C.DisableTorchFunction():
        if kwargs.get("out") is not None:
            own_memory(kwargs["out"])
        known = func if func in SPECIAL or not isinstance(func, types.FunctionType) else original(func)
        if known in SPECIAL and own(args[:1] or tuple(kwargs.values())):
            return SPECIAL[known](known, args, kwargs)
        followed = tracked((args, kwargs)) if torch.is_grad_enabled() else []
        if followed and torch._C._get_tracing_state() is not None:
            raise GraphError(at(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or "
                "detaching the gradient"
            ))
        result = func(*args, **kwargs)
        if followed:
            mark(result, {id(x) for x in (*args, *kwargs.values())}, recorded_before(func, followed), func)
        return result


def own(values: Any) -> list[CustomTensor]:
    """The CustomTensors in `values`."""
    found: list[torch.Tensor] = []
    collect(values, found)
    return [t for t in found if type(t) is CustomTensor]


def tracked(values: Any) -> list[CustomTensor]:
    """The CustomTensors in `values` that a gradient would go through."""
    return [t for t in own(values) if t.requires_grad or "_outside" in t.__dict__]


def recorded_before(func: Any, followed: list[CustomTensor]) -> Any:
    """The node of a left graph that a gradient of `func` of these would go on to; None where there is none."""
    from autograd_opt.record.dispatch import METADATA
    if getattr(func, "__name__", "") in METADATA:
        return None
    left = (t.__dict__.get("_node") for t in followed)
    return next((node for node in left if node is not None and not node.is_leaf and node.requires_grad), None)


def mark(result: Any, given: set[int], origin: Any, func: Any) -> None:
    """Results that would need a gradient of a graph's are CustomTensors, whose backward says why it fails.

    One with a history that starts at `origin` is no leaf, also where another graph reads it.
    """
    if type(result) is torch.Tensor:
        if torch._C._functorch.is_functorch_wrapped_tensor(result):
            _kept.met = True                    # the transform's results are marked
        elif id(result) not in given:
            result.__class__ = CustomTensor
            result._outside = True  # type: ignore[attr-defined]
            if origin is not None and (result.is_floating_point() or result.is_complex()):
                from autograd_opt.ops.torch_names import numbered
                result._node = stand_in(  # type: ignore[attr-defined]
                    result, origin, numbered(getattr(func, "__name__", "call").strip("_"), 0))
    elif isinstance(result, (tuple, list)):
        for r in result:
            mark(r, given, origin, func)


_kept = threading.local()


def marked(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a transform outside any context returns, marked where it has closed over tensors of a graph.

    So are the results of a function that it returns, as `vjp` does.
    """
    before, _kept.met = getattr(_kept, "met", False), False
    try:
        result = call(*args, **kwargs)
        if not _kept.met:
            return result
        found: list[torch.Tensor] = []
        given: list[torch.Tensor] = []
        collect(result, found)
        collect((args, kwargs), given)
        with torch._C.DisableTorchFunction():
            mark([t for t in found if not (t.is_leaf and t.requires_grad)], set(map(id, given)), None, call)
        if isinstance(result, tuple):
            return tuple(marked_later(r) if isinstance(r, types.FunctionType) else r for r in result)
        return result
    finally:
        _kept.met = _kept.met or before


def marked_later(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, all results of which are marked."""
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        _kept.met = True
        return result

    return functools.wraps(function)(lambda *args, **kwargs: marked(noted, args, kwargs))


@named
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = True) -> CustomTensor:
    """A new leaf.

    Parameters
    ----------
    data : what `torch.tensor` takes, or a tensor (copied, never aliased).
    dtype, device : as in `torch.tensor`.
    requires_grad : whether backward accumulates into its `.grad`.

    Raises
    ------
    RuntimeError : `requires_grad` for a dtype that is neither floating nor complex.
    UnsupportedError : `data` is a nested tensor, or of a class with a `__torch_dispatch__`.

    >>> tensor([1.0, 2.0]).requires_grad
    True
    """
    with torch._C.DisableTorchFunction():
        if isinstance(data, torch.Tensor):
            if unusual(data):
                raise unsupported_operand(data, "tensor()", tracked=False)
            plain = data.detach().to(dtype=dtype, device=device, copy=True)
        else:
            plain = torch.tensor(data, dtype=dtype, device=device)
        if requires_grad and not (plain.is_floating_point() or plain.is_complex()):
            raise GraphError(at(
                "only Tensors of floating point and complex dtype can require gradients, not "
                f"{plain.dtype}: pass floats, dtype=..., or requires_grad=False"
            ))
        plain.__class__ = CustomTensor
        plain._requires_grad = bool(requires_grad)  # type: ignore[attr-defined]
        plain._made_here = True  # type: ignore[attr-defined]
        return plain  # type: ignore[return-value]


def revive(node: Any, value: torch.Tensor) -> torch.Tensor:
    """A tensor object for `node`, whose own has died, over the value kept for its rule."""
    with torch._C.DisableTorchFunction():
        alias = value.detach()
        alias.__class__ = CustomTensor
        alias._node = node  # type: ignore[attr-defined]
        return alias

