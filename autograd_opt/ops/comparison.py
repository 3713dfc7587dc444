"""Operators without a derivative that are values all the same: comparisons, tests, choices.

Numbered like any other, so that a mask computed twice is computed once.
"""

from __future__ import annotations

from autograd_opt.ops.table import ELEMENTWISE, OPS, PURE, define

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
    "signbit": "torch.signbit T.signbit", "isposinf": "torch.isposinf T.isposinf", "isneginf": "torch.isneginf T.isneginf",
}
for _name, _calls in BINARY.items():
    if _name not in OPS:
        define(_name, "x, y", ELEMENTWISE | PURE, _calls)
for _name, _calls in UNARY.items():
    if _name not in OPS:
        define(_name, "x", ELEMENTWISE | PURE, _calls)
for _name in ("argmax", "argmin"):
    if _name not in OPS:
        define(_name, "x, dim=None, keepdim=False", PURE, f"torch.{_name} T.{_name}")
