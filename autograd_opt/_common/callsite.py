"""The user's file and line: which frame of a program is the user's, and how its place is written."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

from autograd_opt.passes import errors as of_passes

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PASSES = os.path.dirname(os.path.abspath(of_passes.__file__)) + os.sep
TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_DEMO = os.path.join(HERE, "cli", "demo.py")


def internal(filename: str) -> bool:
    """True if this is a file of torch, of this library or of Python's own, and not the user's."""
    return (filename.startswith((HERE, _PASSES, TORCH, "<frozen")) and filename != _DEMO) \
        or (filename.startswith(_LIBRARY) and "-packages" not in filename)


def generated(frame: FrameType) -> bool:
    """True if this code without a file was made for this library, as the `__init__` of a dataclass is."""
    return frame.f_code.co_filename.startswith("<") and \
        str(frame.f_globals.get("__name__", "")).startswith("autograd_opt.")


def user_frame() -> FrameType | None:
    """The innermost frame that is the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (internal(frame.f_code.co_filename) or generated(frame)):
        frame = frame.f_back
    return frame


def where() -> str:
    """`file:line` of the user's innermost frame, or an empty string."""
    frame = user_frame()
    return "" if frame is None else place_text(f"{frame.f_code.co_filename}:{frame.f_lineno}")


def place_text(source: str) -> str:
    """`folder/file.py:12` as it is, a line of a notebook's cell as `In[3]:12`."""
    file, _, line = source.rpartition(":")
    cell = cell_of(file)
    return source if cell is None else f"{cell}:{line}"


def cell_of(file: str) -> str | None:
    """`In[3]` for the name under which IPython compiles its third cell, else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In[{cells[file]}]" if file in cells else None


of_passes.where = where
