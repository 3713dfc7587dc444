"""Differences from torch eager that are known and not yet, or never to be, removed.

The normal tests pass over them, the long sweep counts them by name.  An entry goes when its
cause does; `test_known_differences_still_differ` fails for an entry that has become obsolete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.oracle import MODES, differs
from tests.programs import Program


@dataclass(frozen=True)
class Known:
    """A difference: what its message says, what the program has, and the shortest program that has it.

    `besides` is a second question to the program; all three must hold.
    """

    reason: str
    message: str
    program: str
    example: str
    besides: Callable[[Program], bool] = field(default=lambda program: True)


def merging(program: Program) -> bool:
    """Does the program do as torch does where nothing merges: as written, and with `optimize="exact"`?"""
    modes = [m for m in MODES if not m["optimize"]] + [{**m, "optimize": "exact"} for m in MODES if m["optimize"]]
    return differs(program, modes) is None


KNOWN = (
    Known(
        "torch's sum of infinities is NaN where a merged rule sums before it multiplies",
        r"(?s)optimize=True.*(\.grad is|v\d+ is|saw).*inf.*instead of.*nan",
        r"",
        "a = z.abs()\nb = z.abs()\n(a * inf + b * 5).sum().backward()",
        merging,
    ),
    Known(
        "torch saves the result of a power of two tensors also where only the base requires grad",
        r"modified by an inplace operation.*output 0 of Pow1.*this library None",
        r"\*\* \w",
        "a = x.abs() ** d\na.neg_()\na.sum().backward()",
    ),
)


def reason_of(message: str, program: Program) -> str | None:
    """Why a difference is known, or None."""
    for known in KNOWN:
        if re.search(known.message, message.partition("--- program ---")[0]) and \
                re.search(known.program, str(program)) and known.besides(program):
            return known.reason
    return None
