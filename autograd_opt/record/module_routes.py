"""Shorter ways from torch's functions to the mode.

Built-in functions (`torch.sin`, `torch.nn.functional.linear`), methods, indexing and the operators of plain tensors
get an entry of their own at the first graph, and keep it (`record/entries.pyx`).

Functions such as `torch.nn.functional.relu` hand a call to a mode through
`torch.overrides.handle_torch_function`, at 3 to 5 microseconds each.  While at least one
graph is open, in any thread, a module whose function is about to do so gets
`context.handle_torch_function` instead: it does the same in compiled code when the mode
of this library is the innermost one, and calls torch's own otherwise.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.table import CALLS, SPELLINGS

FACTORIES = (torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.zeros_like, torch.ones_like,
             torch.is_complex, torch.is_floating_point, private.set_grad_enabled)
"""Functions whose results have no history; they are common in modules and optimizers."""


def functions() -> list[Any]:
    """The built-in functions of torch's that take tensors."""
    found = [f for table in (CALLS, SPELLINGS, FACTORIES) for f in table if type(f) is types.BuiltinFunctionType]
    every = (getattr(place, name) for place in private.FUNCTION_NAMESPACES for name in dir(place)
             if not name.startswith("__"))
    return found + [f for f in every if type(f) is types.BuiltinFunctionType]
