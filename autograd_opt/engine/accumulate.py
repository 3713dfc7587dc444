"""How the cotangent of a leaf becomes its `.grad`, by torch's rules of identity, layout and sharing."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt import errors
from autograd_opt._common.locks import lasting_lock
from autograd_opt.abi import torch_private as private
from autograd_opt.engine.hooks import after, prepare, run_leaf_hooks, run_post_accumulate
from autograd_opt.engine.torch_histories import goes_on, hand_on
from autograd_opt.graph import runs, thread_state
from autograd_opt.graph.references import requires_grad, set_grad
from autograd_opt.graph.view_history import late

Tensor = torch.Tensor
ACCUMULATING = lasting_lock()
"""Held while a `.grad` is written: kernels let other threads run, which may share the leaf."""


def accumulate(task: Any, node: Any, g: Tensor | None, sole: bool = False) -> None:
    """What the executor does with the complete cotangent of a leaf (or of a tensor in `inputs=`).

    The order is torch's: hooks of the tensor, pre-hooks of the leaf's node, `.grad`,
    post-accumulate hooks, post-hooks of the node.  `sole` says that the run alone holds the
    tensor object `g`.
    """
    t = node.tensor
    if t is None:
        return
    if node.is_leaf and goes_on(runs.current(), node):
        hand_on(runs.current(), t, g)
        return
    hooks = node.hooks if node.is_leaf else None
    replaced = run_leaf_hooks(t, g, task) if node.is_leaf else g
    if hooks is not None:
        replaced = prepare(hooks, node, replaced, task)
    if node.is_leaf and replaced is not None:
        refuse_interior(t)
    if node.is_leaf and not requires_grad(t):                       # switched off since it was used
        return
    # A hook may have kept the cotangent.
    seen = hooks is not None or private.backward_hooks(t) or t.__dict__.get("_leaf_hooks")
    if replaced is not None:
        add_to_grad(t, replaced, task.create_graph, sole and not seen)
    if node.is_leaf:
        run_post_accumulate(t, task)
        if hooks is not None and hooks.post:
            after(hooks, node, (), replaced, task)


def refuse_interior(t: Tensor) -> None:
    """torch's refusal to write the gradient of a leaf that has a history by now: a view, whose base was written."""
    with private.DisableTorchFunction():
        if not private.is_view(t):
            return
        recording = thread_state.resume(0)          # the history is recorded as it is found
        try:
            with torch.enable_grad():
                moved = late(t, True) is not None
        finally:
            thread_state.resume(recording)
    if moved:
        raise errors.GraphError("leaf variable has been moved into the graph interior: the memory of this view was "
                                "written since it was made, and what it is a view of requires grad")


def add_to_grad(t: Tensor, g: Tensor, create_graph: bool, sole: bool = False) -> None:
    """t.grad += g by torch's rules of identity, layout and sharing.

    Without `create_graph` an existing `.grad` is written in place; a first one takes the
    cotangent itself only when nobody else can see its memory and its strides are those that
    torch gives, else a copy.
    """
    with ACCUMULATING:
        write_grad(t, g, create_graph, sole)


def write_grad(t: Tensor, g: Tensor, create_graph: bool, sole: bool) -> None:
    """`add_to_grad` for a thread that is alone at it."""
    old = t.grad
    wanted = t.grad_dtype                # None: whatever comes
    if wanted is not None and g.dtype is not wanted:
        g, sole = g.to(wanted), False
    if create_graph:
        set_grad(t, own_copy(g, t, sole) if old is None else
                 g + old if old.is_sparse and not g.is_sparse else old + g)
        return
    with private.DisableTorchFunction():
        if old is None:
            first = own_copy(g, t, sole)
            if first.shape == t.shape:
                set_grad(t, first)
            else:                        # the shape that the leaf had once: only the setter would object
                t.grad = torch.empty_like(t)
                t.grad.data = first
        elif old.is_sparse and not g.is_sparse:
            set_grad(t, g + old)
        else:
            old.add_(g)


def own_copy(g: Tensor, t: Tensor, sole: bool = False) -> Tensor:
    """`g` in memory of its own with the layout that torch gives to `t.grad`."""
    if g.layout is not torch.strided or t.layout is not torch.strided:
        return g.clone()
    with private.DisableTorchFunction():
        if sole and getattr(g, "_node", None) is None and unshared(g) and same_layout(g, t):
            return g.as_subclass(Tensor) if type(g) is not Tensor else g
        dense = is_dense(t)
    if getattr(g, "_node", None) is not None and g.requires_grad:
        return g.clone(memory_format=torch.preserve_format if dense else torch.contiguous_format)
    with private.DisableTorchFunction():
        out = torch.empty_strided(t.shape, t.stride(), dtype=g.dtype, device=g.device) if dense \
            else torch.empty(t.shape, dtype=g.dtype, device=g.device)
        return out.copy_(g)


def unshared(g: Tensor) -> bool:
    """Is `g` the only tensor over its memory, and its memory what it seems?"""
    storage: Any = g.untyped_storage()
    return bool(private.storage_use_count(private.storage_id(storage)) == 2      # `g` and `storage`
                and not (g.is_conj() or g.is_neg() or private.is_zerotensor(g)))


def is_dense(t: Tensor) -> bool:
    """Non-overlapping and dense: torch then gives `.grad` the strides of `t`."""
    if t.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def same_layout(g: Tensor, t: Tensor) -> bool:
    """Are the strides of `g` those that torch would give to the gradient of `t`?"""
    if not is_dense(t):
        return g.is_contiguous()
    if g.ndim > t.ndim:
        return False
    # the shape of a leaf may have changed since: torch looks at the axes of the gradient alone
    return all(have == wanted if n != 1 else have != 0
               for n, have, wanted in zip(g.shape, g.stride(), t.stride(), strict=False))
