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
        "torch's sum of infinities is NaN where a merged rule sums before it multiplies",
        r"(?s)optimize=True.*\.grad is.*inf.*instead of.*nan",
        r"",
        "a = z.abs()\nb = z.abs()\n(a * inf + b * 5).sum().backward()",
    ),
    Known(
        "torch refuses to differentiate after a write to a result that no rule here reads",
        r"(?s)modified by an inplace operation.*output 0 of (Pow|Copysign|Reciprocal).*this library None",
        r"",
        "a = torch.copysign(c, f)\na.neg_()\na.sum().backward()",
    ),
    Known(
        "torch's zero gradients of sgn stay zero when they are multiplied by infinity",
        r"(?s)\.grad is.*nan.*instead of",
        r"sgn\(\)",
        "((x * inf).sgn().sum() + x.sum()).backward()",
    ),
)


def reason_of(message: str, program: str) -> str | None:
    """Why a difference is known, or None."""
    for known in KNOWN:
        if re.search(known.message, message.partition("--- program ---")[0]) and re.search(known.program, program):
            return known.reason
    return None
