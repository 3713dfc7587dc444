"""Whether what a call returns is made up by elements of tensors: the call is made on tensors that have none, too.

No kernel shows it where the C++ code of an operator looks into memory, and no tag of torch's says it of every operator
whose result has as many elements as an operand tells. Both fail on tensors without memory, or give another shape.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.plans.objects import of_library
from autograd_opt.plans.operators import mapped, parts

Tensor = torch.Tensor
MOVING = frozenset("to cpu cuda type new_tensor".split())
"""Functions that only copy, and cannot copy elements that there are not."""


def of_torch(operator: Any) -> bool:
    """True if an operator is one of torch's own."""
    return str(getattr(operator, "_qualified_op_name", None) or operator.name()).startswith("aten::")


def counts(function: Any, args: Any, kwargs: Any) -> bool:
    """True if a function is given integers, by which it may count, or is not torch's."""
    if isinstance(function, (private.OpOverload, private.OpOverloadPacket)) and not of_torch(function):
        return True
    return getattr(function, "__name__", "") not in MOVING and any(
        isinstance(x, Tensor) and not (x.is_floating_point() or x.is_complex()) for x in parts((args, kwargs))
    )


def placeholder(x: Any) -> Any:
    """A tensor of the same kind without memory; anything else as it is."""
    if not isinstance(x, Tensor) or x.layout != torch.strided:
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def outline(result: Any) -> list[Any]:
    """What stands in a result, with shapes and dtypes in the places of tensors."""
    return [(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else x for x in parts(result)]


def expected(function: Any, args: Any, kwargs: Any) -> list[Any] | None:
    """The outline of what a call gives whatever its operands hold; None where nobody can tell it."""
    if isinstance(function, types.FunctionType) and not of_library(function.__module__):
        return None
    try:
        with private.disable_current_modes(), private.DisableTorchFunction(), torch.no_grad():
            return outline(function(*mapped(placeholder, tuple(args)), **mapped(placeholder, dict(kwargs))))
    except Exception:
        return None


def depends_on_elements(result: Any, told: list[Any] | None) -> bool:
    """True if a result is not as it was expected to be; one of numbers alone is what kernels say, or none."""
    return any(isinstance(x, Tensor) for x in parts(result)) and outline(result) != told
