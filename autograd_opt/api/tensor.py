"""What users call on a CustomTensor."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.abi import switches
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import BACKWARD, TENSOR_BACKWARD
from autograd_opt.api.tensor_methods import assign_requires_grad, get_grad_fn, get_is_leaf, get_retains_grad
from autograd_opt.engine import backward as engine
from autograd_opt.graph import references
from autograd_opt.graph.tensor import CustomTensor, tensor
from autograd_opt.graph.thread_state import get_recording
from autograd_opt.record import dispatch, inplace
from autograd_opt.record.outside import outside
from autograd_opt.record.transforms import enclosing


# The methods of the class, which a context's mode would see at ten times the cost. --------
def torch_function(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Calls that no mode has taken: torch differentiates those inside a transform, others compute as plain torch."""
    if get_recording() is not None:
        return dispatch.call(func, args, kwargs or {})
    capture = enclosing()
    if capture is not None:
        return capture.__torch_function__(func, types, args, kwargs)
    return outside(func, args, kwargs or {})


def requires_grad(self: Any) -> bool:
    node = self.__dict__.get("_node")
    if node is not None and not node.is_leaf:
        if node.view is None or (node.requires_grad and node.op != "view_apart"):
            return bool(node.requires_grad)
        return references.requires_grad(self)
    known = self.__dict__.get("_requires_grad")
    return references.requires_grad(self) if known is None else bool(known)


def is_leaf(self: Any) -> bool:
    node = self.__dict__.get("_node")
    if node is None or node.is_leaf:
        tape = get_recording()
        if tape is None or not tape.late:
            return True
    elif node.requires_grad and node.view is None:
        return False
    return get_is_leaf(None, (self,), {})


def backward(self: Any, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Accumulate the gradients of this tensor into the leaves of its graph."""
    if torch.Tensor.backward is not TENSOR_BACKWARD:
        given = {"gradient": gradient, "retain_graph": retain_graph, "create_graph": create_graph, "inputs": inputs}
        torch.Tensor.backward(self, **{k: v for k, v in given.items() if v is not None and v is not False})
        return
    if torch.autograd.backward is not BACKWARD:
        torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
        return
    if enclosing() is not None:
        torch.Tensor.backward(self, gradient, retain_graph, create_graph, inputs)
        return
    engine.backward(self, gradient, retain_graph, create_graph, inputs)


def part(name: str) -> property:
    """Return the property `real` or `imag`, whose assignment is a write that torch shows to no mode."""
    former: Any = getattr(private.TensorBase, name)

    def write(self: Any, value: Any) -> None:
        if get_recording() is None or not isinstance(value, (torch.Tensor, int, float, complex)):
            former.__set__(self, value)
        else:
            inplace.assign_part(former.__get__, self, value)
    return property(former.__get__, write)


def formatted(self: Any, format_spec: str) -> str:
    """As of a tensor of torch's own class: `f"{loss:.3f}"` is that of its number."""
    with private.DisableTorchFunction():
        if self.dim() == 0 and not self.is_meta:
            return self.detach().item().__format__(format_spec)
    return str(self) if not format_spec else object.__format__(self, format_spec)


def reduced(self: Any, protocol: Any) -> Any:
    with private.DisableTorchFunction():
        value = self.detach().as_subclass(torch.Tensor)
        if self.__dict__.get("_made_here"):
            return tensor, (value, None, None, self.requires_grad)
        # What was computed travels as a value of torch's own type, a leaf where it arrives.
        return value.requires_grad_(self.requires_grad).__reduce_ex__(protocol)


def install() -> None:
    """Give the class its methods; done once at import."""
    custom: Any = CustomTensor
    if "getset" in switches.OFF:
        custom.real, custom.imag = part("real"), part("imag")
    custom.__torch_function__ = classmethod(torch_function)
    custom.requires_grad = property(requires_grad, lambda t, value: assign_requires_grad(t, bool(value)))
    custom.is_leaf = property(is_leaf)
    custom.grad_fn = property(lambda t: get_grad_fn(None, (t,), {}))
    custom.retains_grad = property(lambda t: get_retains_grad(None, (t,), {}))
    custom.__format__, custom.__reduce_ex__ = formatted, reduced
    custom.backward = backward
