"""Differences from torch eager that are known and not yet, or never to be, removed.

The normal tests pass over them, the long sweep counts them by name.  An entry goes when its
cause does; `test_known_differences_still_differ` fails for an entry that has become obsolete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A difference: what its message says, what the program contains, and the shortest program that has it."""

    reason: str
    message: str
    program: str
    example: str


KNOWN = (
    Known(
        "indexing a number-like tensor with a mask has no gradient",
        r"too many indices for tensor of dimension 0",
        r"\[",
        "a = s[s > 0]\na.sum().backward()",
    ),
    Known(
        "diff of a number-like tensor raises another type",
        r"diff expects input to be at least one-dimensional",
        r"\.diff\(",
        "a = s.diff(dim=0)",
    ),
    Known(
        "detach_ of a result that torch builds as a view",
        r"Can't detach views in-place",
        r"detach_\(",
        "a = torch.stack([w, w])\na.detach_()",
    ),
    Known(
        "a view made outside the record: torch calls it a leaf that requires grad, but no gradient reaches it",
        r"requires_grad False, is_leaf True instead of True|does(n't| not) require grad|requires_grad=False"
        r"|\.grad is|is_leaf False instead of True, True|hooks called|no_grad mode",
        r"no_grad|set_grad_enabled\(False\)|requires_grad_\(",
        "with torch.no_grad(): a = x[1:]",
    ),
    Known(
        "a merged gradient may be an expanded tensor where torch's is dense",
        r"more than one element of the written-to|setStorage",
        r"autograd\.grad\(|backward\(",
        "a, b = torch.autograd.grad(f.sum() * 2 + f.sum() * 3, [f, f], create_graph=True)\nb.neg_()",
    ),
    Known(
        "a float32 tensor written with float64 operands",
        r"assign a gradient with dtype",
        r"",
        "a = f * 1\na *= d\na.sum().backward()",
    ),
    Known(
        "writes through views of another dtype",
        r"a view of another dtype|through a view of another dtype",
        r"view_as_real|\.real|\.imag",
        "a = torch.view_as_real(z * 1)\na.add_(1)",
    ),
    Known(
        "writes to one of several views of a constant are allowed",
        r"function that returns multiple views",
        r"split|chunk|unbind",
        "a, b = c.split(1)\nb.select(0, 0).mul_(f)",
    ),
    Known(
        "a refused in-place dropout has not drawn",
        r"another generator state",
        r"inplace=True",
        "F.dropout(f, 0.5, inplace=True)",
    ),
    Known(
        "a call that torch differentiates for us, once freed, saves nothing and could run again",
        r"reached opaque",
        r"",
        "a = d[d > 0]\na.copy_(s)\na.sum().backward()\na.sum().backward()",
    ),
    Known(
        "detach_ of a base whose view is used after another write",
        r"\.grad is",
        r"detach_\(",
        "a = f * 2\nb = a.narrow(0, 0, 1)\na.detach_()\na.mul_(d.float())\n(b.sum() + w.sum()).backward()",
    ),
    Known(
        "the gradient of a call that torch differentiates for us always requires grad under create_graph",
        r"requires_grad True, is_leaf False instead of False, True",
        r"create_graph=True",
        "a = f.as_strided((2,), (1,))\ng, = torch.autograd.grad(a.sum(), [f], create_graph=True)",
    ),
    Known(
        "torch's sum of complex infinities is NaN, a merged rule sums before it multiplies",
        r"(?s)inf[+-]infj.*instead of.*nan",
        r"z",
        "a = z.abs()\nb = z.abs()\n(a * inf + b * 5).sum().backward()",
    ),
)


def reason_of(message: str, program: str) -> str | None:
    """Why a difference is known, or None."""
    for known in KNOWN:
        if re.search(known.message, message.partition("--- program ---")[0]) and re.search(known.program, program):
            return known.reason
    return None
