"""Operators without a derivative that are values all the same: comparisons, tests, choices.

Numbered like any other, so that a mask computed twice is computed once.
"""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.ops.binding import Constant
from autograd_opt.ops.table import ELEMENTWISE, FILLS, MOVES, PURE, choose, define

BINARY = {
    "eq": "torch.eq T.eq T.__eq__", "ne": "torch.ne torch.not_equal T.ne T.not_equal T.__ne__",
    "lt": "torch.lt torch.less T.lt T.less T.__lt__", "le": "torch.le torch.less_equal T.le T.less_equal T.__le__",
    "gt": "torch.gt torch.greater T.gt T.greater T.__gt__",
    "ge": "torch.ge torch.greater_equal T.ge T.greater_equal T.__ge__",
    "logical_and": "torch.logical_and T.logical_and", "logical_or": "torch.logical_or T.logical_or",
    "logical_xor": "torch.logical_xor T.logical_xor", "bitwise_and": "torch.bitwise_and T.bitwise_and T.__and__",
    "bitwise_or": "torch.bitwise_or T.bitwise_or T.__or__", "bitwise_xor": "torch.bitwise_xor T.bitwise_xor T.__xor__",
}
UNARY = {
    "isnan": "torch.isnan T.isnan", "isinf": "torch.isinf T.isinf", "isfinite": "torch.isfinite T.isfinite",
    "logical_not": "torch.logical_not T.logical_not", "bitwise_not": "torch.bitwise_not T.bitwise_not T.__invert__",
    "signbit": "torch.signbit T.signbit", "isposinf": "torch.isposinf T.isposinf",
    "isneginf": "torch.isneginf T.isneginf",
}
for _name, _calls in BINARY.items():
    define(_name, "x, y", ELEMENTWISE | PURE, _calls)
for _name, _calls in UNARY.items():
    define(_name, "x", ELEMENTWISE | PURE, _calls)
for _name in ("argmax", "argmin"):
    define(_name, "x, dim=None, keepdim=False", PURE, f"torch.{_name} T.{_name}")
_LIKE = "dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None"
for _name in ("ones_like", "zeros_like"):
    define(_name, f"x, *, {_LIKE}", PURE | MOVES | FILLS, f"torch.{_name}")
define("full_like", f"x, fill_value=0, *, {_LIKE}", PURE | MOVES | FILLS, "torch.full_like")


def pick_like(name: str) -> Any:
    """A leaf asked for by `requires_grad=True` is nobody else's value."""
    def pick(*args: Any, requires_grad: bool = False, **kwargs: Any) -> str | None:
        return None if requires_grad else name
    return pick


for _name in ("ones_like", "zeros_like", "full_like"):
    choose(f"torch.{_name}", pick_like(_name))


# ----- constants from numbers alone: made anew in a function called twice, they are one value -----
def constant(function: Any) -> Any:
    """The canonical call: what is not given is left out."""
    return lambda **numbers: function(**{k: v for k, v in numbers.items() if v is not None})


for _name, _names in (("eye", "n m"), ("linspace", "start end steps"), ("logspace", "start end steps base")):
    define(_name, ", ".join(f"{n}=None" for n in _names.split()) + ", *, dtype=None, device=None", PURE | MOVES,
           f"torch.{_name}", bind=Constant(*_names.split()), forward=constant(getattr(torch, _name)))
