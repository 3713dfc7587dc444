"""Operations that leave their operand as it is: a view of its own shape, a clone, a product with 1.

Their results get the operand's value number while they are recorded, which makes the keys of all that follows
those of the operand: `x.view(x.shape).sin()` is `x.sin()`.  That the bits are the operand's is a line here and a
lemma in `verification/rewrites/identities.py`, which does not read these lines.
"""

from __future__ import annotations

from typing import Any

from autograd_opt.ops.table import OPS

ROW_MAJOR = "view reshape flatten ravel squeeze unflatten unsafe_view".split()
"""The elements in their order, in another shape or in the same."""
BROADCAST = "expand broadcast_to".split()
COPIES = "clone contiguous cast".split()
UNIT = ("mul", "div")
"""With the number 1, for real floating dtypes; `x + 0.0` is not among them: it makes 0.0 of -0.0."""


def in_order(node: Any) -> bool:
    """Does this permutation leave every axis in its place?"""
    n = len(node.shape)
    return [d % n for d in (node.raw_attributes or {}).get("dims", (-1,))] == list(range(n))


def install() -> None:
    """Tell the operators; done once at import."""
    for name in (*ROW_MAJOR, *BROADCAST, *COPIES):
        OPS[name].keeps = True
    OPS["permute"].keeps = in_order
    for name in UNIT:
        OPS[name].unit = True
