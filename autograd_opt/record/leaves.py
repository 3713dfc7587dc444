"""Leaves: which tensors torch calls so, and leaves that are made anew."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import handles, references, thread_state, view_history
from autograd_opt.graph.tensor import CustomTensor

Tensor = torch.Tensor
Base = private.TensorBase


def history(t: Tensor) -> Any:
    """The node that computed `t`, as far as gradients go; None for what torch calls a leaf."""
    node = t.__dict__.get("_node")
    tape: Any = thread_state.get_recording()
    with private.DisableTorchFunction():
        if tape is not None and private.is_view(t) and (
                tape.late or references.base_requires_grad(t) if node is None or node.is_leaf or not node.requires_grad
                else node.view is not None):
            if type(t) is not CustomTensor and not torch.is_grad_enabled():
                vars(Base)["grad_fn"].__get__(t)              # torch may refuse to say, after a write of its base
            view_history.require_unwritten(t, node)
            node = view_history.origin(handles.handle_of(t))  # its base may have been written since
            tape.let_go_unread((node,))                       # to ask is not to read
    return None if node is None or node.is_leaf or not node.requires_grad or view_history.leads_nowhere(node) else node


def meta(t: Any) -> tuple[Any, ...]:
    """What torch stores, also of a lazy parameter, whose class refuses to tell."""
    return tuple(vars(Base)[name].__get__(t) for name in ("shape", "dtype", "device"))


def remade(t: Tensor, kind: tuple[Any, ...]) -> bool:
    """After a call that may have given `t` another shape, type or device than `kind`: has it made a leaf anew?

    What was recorded so far keeps the leaf of its time.
    """
    handles.wrote(t)
    if meta(t) == kind or history(t) is not None:
        return False
    needs = references.requires_grad(t)
    handles.become_leaf(t)
    if type(t) is CustomTensor:
        t._requires_grad = needs
    return True
