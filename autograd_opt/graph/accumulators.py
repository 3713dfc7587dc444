"""What accumulates into a leaf, as torch's hooks of several tensors ask about it.

`register_multi_grad_hook` keeps for each leaf the node that accumulates into it, and asks in every
run which of them take part. A leaf outlives graphs: such a hook may be registered outside every
context, inside one, or by an earlier one, and be called in a run of any other, or of torch's own.
"""

from __future__ import annotations

from typing import Any

from torch.autograd.graph import GradientEdge

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import node as nodes
from autograd_opt.graph import thread_state

_function_or_accumulator: Any = private.function_or_accumulator


class Accumulator:
    """A leaf, and the node that stood for it in the graph it was asked of; None outside a context."""

    __slots__ = ("node", "variable")

    def __init__(self, variable: Any, node: Any):
        self.variable, self.node = variable, node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)


def leaf_of(node: Any) -> Any:
    """The leaf that `node`, of this library or of torch, accumulates into; None for every other node."""
    known = isinstance(node, (nodes.Node, Accumulator)) or type(node).__name__ == "AccumulateGrad"
    return getattr(node, "variable", None) if known else None


def torchs(node: Any) -> Any:
    """What accumulates in torch into the leaf of `node`, if it is this library's; None where nothing does."""
    if not isinstance(node, (nodes.Node, Accumulator)):
        return node
    leaf = leaf_of(node)
    with private.DisableTorchFunction():
        return None if leaf is None or not leaf.requires_grad else _function_or_accumulator(leaf)


def function_or_accumulator(t: Any) -> Any:
    """torch's `_get_grad_fn_or_grad_acc`; leaves of this library's class are found outside contexts too."""
    if thread_state.get_active() is None and type(t) is not GradientEdge and t.__dict__.get("_requires_grad") \
            and t.grad_fn is None:
        return Accumulator(t, None)
    node = _function_or_accumulator(t)
    leaf = getattr(node, "variable", None) if isinstance(node, nodes.Node) else None
    return node if leaf is None else Accumulator(leaf, node)
