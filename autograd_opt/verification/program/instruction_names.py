"""The names that instructions have beside those of the operator table."""

from __future__ import annotations

from autograd_opt.ops.table import OPS, signature_of

MERGED, SEED, HOOK, PULLBACK, RULE, CONSTANT, FULL = "merged", "seed", "hook", "pullback", "rule", "constant", "full"
"""PULLBACK: a derivative that torch computes; RULE: one of the user's, not traced: some function of what it reads."""


WORDS = {
    **dict.fromkeys("gt ge lt le eq ne logical_and logical_or logical_xor".split(), signature_of("x, y")),
    **dict.fromkeys("logical_not isnan isinf isfinite clone contiguous detach".split(), signature_of("x")),
    "to": signature_of("x, dtype=None"),
}
"""Torch functions that rules use and that have no line in the operator table."""
SAME = {
    "and": "logical_and",
    "bitwise_and": "logical_and",
    "or": "logical_or",
    "bitwise_or": "logical_or",
    "invert": "logical_not",
    "bitwise_not": "logical_not",
    "type_as": "to",
    "float": "to",
    "double": "to",
}
SWAPPED = {"rdiv": "div", "rtruediv": "div", "rpow": "pow", "rmatmul": "matmul"}
BY_FORWARD = {op.forward: name for name, op in OPS.items() if op.forward is not None}
CREATORS = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}
ADDS_TO = {"index_add", "scatter_add"}
"""Operators that add into operand 0: linear in the rest where that is all zeros."""
