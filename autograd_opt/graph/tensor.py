"""CustomTensor: a real torch.Tensor whose operators are recorded by the active graph.

The class adds nothing to the tensor but a handle to its node; it owns no graph state.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from autograd_opt._common.arguments import named
from autograd_opt.abi import torch_private as private
from autograd_opt.errors import GraphError, at, worded
from autograd_opt.graph import handles
from autograd_opt.graph.leaf_nodes import unusual
from autograd_opt.graph.refusals import unsupported_operand

made = False
"""Was a leaf made by `tensor` that requires grad?  torch's graph knows nothing of it."""


class ComputedClass(type(torch.Tensor)):  # type: ignore[misc]
    """The class of `CustomTensor`, which compares as `torch.Tensor` does, the class of what torch computes.

    Programs compare the classes of two tensors: `type(a) != type(b)`, `type(x) == torch.Tensor`,
    `isinstance(module.weight, type(computed))` in `torch.testing.assert_close`.  `is` tells the two apart, and so do
    sets and dictionaries, since the hashes differ: by a set of classes torch finds whose `__torch_function__` to call.
    """

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is CustomTensor and other is torch.Tensor)

    __hash__ = type.__hash__

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is not CustomTensor or type(instance) is torch.Tensor:
            return super().__instancecheck__(instance)
        return isinstance(instance, torch.Tensor)


class CustomTensor(torch.Tensor, metaclass=ComputedClass):
    """A torch tensor that an `AutogradGraph` can record.

    Made by `autograd_opt.tensor` (leaves) and by every recorded operation.  Outside any
    graph it computes as a plain tensor does, and nothing is recorded.  It has all methods of `torch.Tensor`.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph():
    ...     y = (x * 3).sum()
    ...     print(type(y).__name__, isinstance(y, torch.Tensor), y.shape)
    CustomTensor True torch.Size([])
    """

    _node: Any
    _requires_grad: bool

    def __new__(cls, data: object, dtype: torch.dtype | None = None, device: torch.device | str | int | None = None,
                requires_grad: bool = True) -> CustomTensor:
        """Make a leaf, as `autograd_opt.tensor` does."""
        return tensor(data, dtype, device, requires_grad)


# Programs for several libraries (opt_einsum, autoray) ask a class's module whose tensors they are given.
CustomTensor.__module__ = "torch.autograd_opt"
sys.modules[CustomTensor.__module__] = sys.modules[__name__]
__test__ = {"CustomTensor": CustomTensor}      # doctest takes it for a class from elsewhere


@named
def tensor(data: object, dtype: torch.dtype | None = None, device: torch.device | str | int | None = None,
           requires_grad: bool = True) -> CustomTensor:
    """A new leaf.

    Parameters
    ----------
    data : what `torch.tensor` takes, or a tensor (copied, never aliased).
    dtype, device : as in `torch.tensor`.
    requires_grad : whether backward accumulates into its `.grad`.

    Raises
    ------
    GraphError : `requires_grad` for a dtype that is neither floating nor complex.
    ArgumentTypeError, ArgumentError, GraphError : what `torch.tensor` refuses, in torch's words.
    UnsupportedError : `data` is a nested tensor, or of a class with a `__torch_dispatch__`.

    >>> tensor([1.0, 2.0]).requires_grad
    True
    """
    with private.DisableTorchFunction():
        if isinstance(data, torch.Tensor):
            if unusual(data):
                raise unsupported_operand(data, "tensor()", tracked=False)
            data = data.detach()
        try:
            plain = data.to(dtype=dtype, device=device, copy=True) if isinstance(data, torch.Tensor) \
                else torch.tensor(data, dtype=dtype, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise worded(error) from error
        if requires_grad and not (plain.is_floating_point() or plain.is_complex()):
            raise GraphError(at(
                "only Tensors of floating point and complex dtype can require gradients, not "
                f"{plain.dtype}: pass floats, dtype=..., or requires_grad=False"
            ))
        plain.__class__ = CustomTensor
        if requires_grad:
            global made
            made = True
        plain._requires_grad = bool(requires_grad)  # type: ignore[attr-defined]
        plain._made_here = True  # type: ignore[attr-defined]
        return plain  # type: ignore[return-value]


def revive(node: Any, value: torch.Tensor) -> torch.Tensor:
    """A tensor object for `node`, whose own has died, over the value kept for its rule."""
    with private.DisableTorchFunction():
        alias = value.detach()
        alias.__class__ = CustomTensor
        alias._node = node  # type: ignore[attr-defined]
        return alias


def connected(t: torch.Tensor, node: Any) -> torch.Tensor:
    """An alias of `t` whose gradient belongs to `node`."""
    if node.tensor is t:
        return t
    with private.DisableTorchFunction():
        return handles.continued(node, t.detach())
