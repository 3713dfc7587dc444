"""ReferenceManager: who is held strongly, who only weakly; and what requires grad.

Strongly held: leaves that require grad and that a living record reads, what a rule saved, values kept for reuse within
a budget.  Every other intermediate is known by a borrowed pointer that its own finalizer
clears (see `node.pyx`); constants are held by weak references.
"""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt._common.arguments import whole
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import handles
from autograd_opt.graph.thread_state import torch_autograd

Tensor = torch.Tensor


HELD = "_held_inside"
"""The attribute of a tensor kept from inside a transform: what it holds, as a tensor of the graph."""
_graphs_own: Any = None


def install(graphs_own: Any) -> None:
    """Take the function that makes a tensor of the graph of one that a transform has computed; done once at import."""
    global _graphs_own
    _graphs_own = graphs_own


def kept_inside(t: Tensor, inner: Tensor | None = None) -> Any:
    """The node of `t`, kept from inside a transform: of `inner`, which it holds where the transform has ended.

    Else torch has computed `t` from what stands for tensors of the graph; None where its history leads to none.
    """
    if HELD not in t.__dict__ or (inner is not None and t.__dict__[HELD] is None):
        own = _graphs_own(t, True) if inner is None else _graphs_own(inner)
        setattr(t, HELD, None if own is t else own)
    known = t.__dict__[HELD]
    return None if known is None else handles.handle_of(known)


class ReferenceManager:
    """The references of one graph, for reading and for limits.

    Parameters
    ----------
    tape : the graph's staging area, which owns the counts.
    """

    def __init__(self, tape: Any):
        self.tape = tape

    def leaves(self) -> list[Tensor]:
        """The leaves that require grad, in order of first use."""
        pairs = [(node.index, t) for node, t in self.tape.leaf_items() if node.requires_grad]
        return [t for _, t in sorted(pairs, key=lambda p: p[0])]

    def saved_bytes(self) -> int:
        """Bytes of the distinct storages that rules have saved and not released."""
        seen: dict[int, int] = {}
        for node in self.tape.snapshot():
            for t in () if node.is_leaf else node.saved_values():
                storage = t.untyped_storage()
                seen[private.storage_id(storage)] = storage.nbytes()
        return sum(seen.values())

    @property
    def kept_bytes(self) -> int:
        """Bytes held now only for reuse."""
        return int(self.tape.retention.kept_bytes)

    @property
    def allowance(self) -> int:
        """Bytes that may be held only for reuse, before anything has been saved by it."""
        return int(self.tape.retention.allowance)

    @allowance.setter
    def allowance(self, value: int) -> None:
        self.tape.retention.allowance = whole("allowance", value)

    def release(self) -> None:
        """Drop every value held only for reuse."""
        self.tape.retention.forget_values()


def requires_grad(t: Tensor) -> bool:
    """Does `t` take part in differentiation: a node that requires grad, or a leaf?"""
    node = t.__dict__.get("_node")
    if node is not None and not node.is_leaf:
        if node.op == "view_apart":         # only because its base does
            return base_requires_grad(t)
        return bool(node.requires_grad) or (node.view is not None and base_requires_grad(t))
    if "_requires_grad" in t.__dict__:
        return bool(t.__dict__["_requires_grad"])
    with private.DisableTorchFunction():
        if bool(private.TensorBase.requires_grad.__get__(t)):
            return True
        return base_requires_grad(t)


def has_history(t: Tensor) -> bool:
    """True if torch has computed `t`, which a graph takes for a leaf."""
    with private.DisableTorchFunction():
        return not private.TensorBase.is_leaf.__get__(t)


def torch_computed(t: Tensor) -> bool:
    """True if torch has computed `t`, and no graph since."""
    node = t.__dict__.get("_node")
    return (node is None or node.is_leaf) and has_history(t)


def base_requires_grad(t: Tensor) -> bool:
    """Is `t` a view of a tensor that requires grad?"""
    with private.DisableTorchFunction():
        base = private.base_of(t) if private.is_view(t) else None
        return base is not None and requires_grad(base)


def set_grad(t: Tensor, g: Tensor) -> None:
    """`t.grad = g`; a sparse tensor may be given a dense gradient, which torch's setter alone refuses."""
    if t.layout is torch.strided or g.layout is t.layout:
        t.grad = g
        return
    needs: Any = private.TensorBase.requires_grad
    post_hooks = private.post_accumulate_grad_hooks_property
    leaf: Any = t
    t.grad = None
    with private.DisableTorchFunction():
        flag, hooks = needs.__get__(t), post_hooks.__get__(t)
        post_hooks.__set__(t, None)     # they are run later
        try:
            with torch_autograd():
                needs.__set__(t, True)
                (accumulator, _), = leaf.clone().grad_fn.next_functions
                with torch.no_grad():
                    accumulator(g.detach())
        finally:
            needs.__set__(t, flag)
            post_hooks.__set__(t, hooks)
        node = getattr(g, "_node", None)
        if node is not None and node.requires_grad:          # under create_graph: the copy has the history of `g`
            copy: Any = t.grad
            handles.continued(node, copy)
