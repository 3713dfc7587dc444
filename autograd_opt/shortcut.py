"""A shorter way from torch's Python functions to the mode, in place while a graph is open.

Functions such as `torch.nn.functional.relu` hand a call to a mode through
`torch.overrides.handle_torch_function`, at 3 to 5 microseconds each.  While at least one
graph is open, in any thread, the three modules that make most of these calls use
`recorder.handle_torch_function` instead: it does the same in compiled code when the mode
of this library is the innermost one, and calls torch's own otherwise.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch._tensor
import torch.functional
import torch.nn.functional

from autograd_opt import recorder

NAME = "handle_torch_function"
MODULES: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch._tensor)
_lock = threading.Lock()
_users = 0
_before: list[Any] = []


def begin() -> None:
    """A graph has opened."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _before[:] = [m.__dict__.get(NAME) for m in MODULES]
            for m, old in zip(MODULES, _before, strict=True):
                if old is torch.overrides.handle_torch_function:
                    setattr(m, NAME, recorder.handle_torch_function)


def end() -> None:
    """A graph has closed; the last one puts torch's own function back."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            for m, old in zip(MODULES, _before, strict=True):
                if m.__dict__.get(NAME) is recorder.handle_torch_function:
                    setattr(m, NAME, old)
