"""Operations whose result, where it has the operand's type, is the operand, bit for bit.

Each line is a lemma, which `tests/optimizer/test_identities.py` proves by the meaning on an array of symbols.
The one product is exact in IEEE arithmetic, for NaN, infinities, signed zeros and denormals.
"""

from __future__ import annotations

from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instructions import Head, Vocabulary

SAME_TYPE = frozenset(
    "view reshape flatten ravel squeeze unflatten unsafe_view expand broadcast_to clone contiguous cast".split())
"""With any attributes."""
OF_ONE = frozenset(("sum", "mean"))
"""Where the result has the operand's type, each element is a sum of one: the operand over the reals, but for -0.0."""
ONES = frozenset(map(encode, (1, 1.0)))
UNITS = {"mul": ("x", "y"), "div": ("y",)}
"""Operator of one tensor -> the operands that may be the number 1."""


def may_be_operand(vocabulary: Vocabulary, head: Head) -> bool:
    """Is the result the one operand, provided that it has the operand's type?"""
    t = vocabulary.types[head.type]
    if head.effect or head.unread or t.shape is None:
        return False
    if head.op in SAME_TYPE:
        return True
    if head.op == "permute":
        dims = head.value("dims", ())
        return isinstance(dims, (list, tuple)) and [d % max(1, len(t.shape)) for d in dims] == list(range(len(t.shape)))
    return head.op in UNITS and t.dtype.startswith(("float", "bfloat")) and len(head.attributes) == 1 \
        and head.attributes[0][0] in UNITS[head.op] and head.attributes[0][1] in ONES


def unchanging(vocabulary: Vocabulary) -> frozenset[int]:
    """The numbers of the heads that `may_be_operand`."""
    return frozenset([k for k, h in enumerate(vocabulary.heads) if may_be_operand(vocabulary, h)])
