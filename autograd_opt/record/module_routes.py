"""Shorter ways from torch's functions to the mode.

Built-in functions with a line in the operator table (`torch.sin`, `torch.nn.functional.linear`)
and the operators of plain tensors get an entry of their own at the first graph, and keep it
(`core/direct.pxi`).

Functions such as `torch.nn.functional.relu` hand a call to a mode through
`torch.overrides.handle_torch_function`, at 3 to 5 microseconds each.  While at least one
graph is open, in any thread, the four modules that make most of these calls use
`recorder.handle_torch_function` instead: it does the same in compiled code when the mode
of this library is the innermost one, and calls torch's own otherwise.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch._tensor
import torch.functional
import torch.nn.functional

from autograd_opt.ops.table import CALLS, SPELLINGS

MODULES: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch._tensor, torch.autograd)

FACTORIES = (torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.zeros_like, torch.ones_like,
             torch.is_complex, torch.is_floating_point)
"""Functions whose results have no history; they are common in modules and optimizers."""


def functions() -> list[Any]:
    """The built-in functions of the operator table, and those that make constants."""
    return [f for table in (CALLS, SPELLINGS, FACTORIES) for f in table if type(f) is types.BuiltinFunctionType]
