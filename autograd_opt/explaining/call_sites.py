"""Positions in the user's code: frames of torch, of this library and of the standard library are left out."""

from __future__ import annotations

import dis
import itertools
import linecache
import os
from dataclasses import dataclass
from types import FrameType

from autograd_opt._common import callsite
from autograd_opt._common.callsite import HERE

TRUTH = frozenset(code for code, name in enumerate(dis.opname) if "_IF_" in name or name == "TO_BOOL")
"""Instructions that ask a value for its truth: Python may give them the position of another expression."""


@dataclass(eq=False, slots=True)
class Spot:
    """One expression in the user's code; two calls on one line are two spots.

    `Locator` makes one object for each, so that chains of them are compared by identity.
    """

    file: str
    line: int
    function: str
    instruction: int
    text: str = ""
    """The expression that runs, as written; empty where its truth is asked."""
    columns: tuple[int | None, int | None] = (None, None)
    backward: bool = False
    """The derivative of what stands there."""

    def __str__(self) -> str:
        text = f"{short(self.file)}:{self.line}"
        return f"derivative of {text}" if self.backward else text


def short(file: str) -> str:
    """A file name as people write it: relative where it is below the working folder, else its last two parts."""
    if file.startswith("<"):
        return file
    if (cell := callsite.cell_of(file)) is not None:
        return cell
    relative = os.path.relpath(file)
    if not relative.startswith(".."):
        return relative
    return os.sep.join(file.split(os.sep)[-2:])


def spot_of(frame: FrameType) -> Spot | None:
    """The spot of a frame, None where it is not the user's."""
    file = frame.f_code.co_filename
    if callsite.internal(file) or file.startswith(HERE) or file == "<string>":
        return None
    code, at = frame.f_code, frame.f_lasti
    first, last, *columns = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    line = frame.f_lineno or 0
    text = "" if code.co_code[at] in TRUTH else segment(file, first, last, *columns)
    return Spot(file, line, code.co_name, at, text, (columns[0], columns[1]))


def segment(file: str, first: int | None, last: int | None, begin: int | None, end: int | None) -> str:
    """A piece of source text, its lines joined."""
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [linecache.getline(file, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    if lines[0].startswith((b"for ", b"while ", b"with ", b"async ")):
        lines = [lines[0].rstrip().removesuffix(b":")]       # the head of a statement
    return " ".join(line.decode(errors="replace").strip() for line in lines)
