"""The history of a view: which node it has, and which it gets when it is read after its base was written.

torch knows the base of every view (`_base`), its geometry and the version counter that all
share.  A write through a view moves the base to a node that combines the base's old node
with the written part (`record/views.py`); any view whose counter has moved on is then read off the base's new
node, by geometry, the next time it is used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import handles, refusals, thread_state
from autograd_opt.graph import node as nodes
from autograd_opt.graph.handles import geometry
from autograd_opt.graph.hooks import hooks_of, take_over_retention, torch_retains
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.graph.references import has_history, requires_grad
from autograd_opt.graph.thread_state import torch_autograd
from autograd_opt.graph.torch_names import output_number

Tensor = torch.Tensor
WRITTEN: Any = None
REGION: Any = None
APART: Any = None
CUT: Any = None


def install(written: Any, region: Any, apart: Any, cut: Any) -> None:
    """Take the operators of the nodes that views get (`record/views.py`); done once at import."""
    global WRITTEN, REGION, APART, CUT
    WRITTEN, REGION, APART, CUT = written, region, apart, cut


def moved(target: Tensor, below: Any, make: Callable[[], Any], retains: bool = True) -> Any:
    """Call `make`, which moves `target` to a node over `below`; if `retains`, `retain_grad` follows the write.

    Where it does not, hooks that are registered later join those that are there already, as in torch.
    """
    old = target.__dict__.get("_node")
    # a node without users drops its hooks
    hooks = None if old is None or old.is_leaf else origin(old).hooks
    theirs = retains and (old is None or old.is_leaf) and below is not None and below.requires_grad
    former = torch_retains(target) if theirs else None
    node = make()
    if hooks is not None and not retains:
        joined = hooks.tensor if hooks.joined is None else hooks.joined
        if joined and origin(node) is not origin(old):
            hooks_of(node).joined = joined
        hooks = None
    if below is not None and not below.requires_grad and node.requires_grad:
        base_became_late(target)
    if hooks is not None and hooks.retain:
        hooks.retain = False
        hooks_of(node).retain, hooks_of(node).owner = True, hooks.owner
    elif former is not None:
        take_over_retention(target, node, former)
    return node


def attach(op: Any, below: Any, attributes: dict[str, Any] | None, target: Tensor) -> Any:
    """Move `target`, written already, to a node of `op` over `below`."""
    return moved(target, below, lambda: handles.move(op, below, attributes, target), op is not WRITTEN)


Making: Any = private.CreationMeta
making_of: Any = private.get_creation_meta


def hidden(view: Tensor) -> bool:
    """Is the base of a view a tensor of torch's own, which no Python code has seen (as that of a stack)?"""
    base: Any = private.base_of(view)
    if "_adopted" in base.__dict__:
        return True
    return "_node" not in base.__dict__ and sys.getrefcount(base) <= 3       # torch, `base`, the argument


PLAIN = frozenset(["unsafe_chunk", "unsafe_split"])
"""Calls whose results lie in the memory of their operand, and are views of nothing in eager mode."""


def shown_as_view(t: Tensor) -> bool:
    """Is `t` a view in eager mode, too?"""
    if not private.is_view(t) or not hidden(t):
        return private.is_view(t)
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf:
        return "_made" in t.__dict__ or BY_FUNCTION in t.__dict__ or not t.is_contiguous()
    return (node.operands[0] if node.op.name == "output" else node).op.name not in PLAIN


def origin(node: Any) -> Any:
    """The node that computed a tensor, below those that stand for writes without a record."""
    while node is not None and node.op is WRITTEN and node.operands:
        node = node.operands[0]
    return node


REASONS = {
    Making.MULTI_OUTPUT_NODE:
        "This view is the output of a function that returns multiple views. Such functions do not allow the output "
        "views to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    Making.IN_CUSTOM_FUNCTION:
        "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
        "logic to handle view+inplace would override the custom backward associated with the custom Function, leading "
        "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
        "Function.",
    **{
        making:
            "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
            f"moving both the view and the inplace either both inside the {mode} block (if you don't want the inplace "
            "to be tracked) or both outside (if you want the inplace to be tracked)."
        for making, mode in ((Making.NO_GRAD_MODE, "no_grad"), (Making.INFERENCE_MODE, "inference_mode"))
    },
}
BY_FUNCTION = "_made_by_function"
"""The attribute of a view that a Function returned: how torch says it was made, as a number, which can be stored."""
OF_SPARSE = "of_sparse"
"""The attribute of a node whose result shows memory of a sparse tensor."""
ITSELF, ANOTHER = "is being", "its base or another view of its base has been"


def making(view: Tensor) -> Any:
    """How a view was made, in torch's classes."""
    by_function = view.__dict__.get(BY_FUNCTION)
    return making_of(view) if by_function is None else Making(by_function)


def refused(how: Any, written: str, node: Any = None) -> errors.InplaceError:
    """torch's refusal of a write to `written`, for a view made as `how` says; `node`: what computed it, if anything."""
    computed = node is not None and node.requires_grad and not node.is_leaf and not leads_nowhere(node)
    by = maker_text(node) if computed else ""
    if by and how not in (Making.INFERENCE_MODE, Making.NO_GRAD_MODE):
        start = f"{by} is a view and {written} modified inplace."
    else:
        mode, now = ("inference", "in normal mode") if how == Making.INFERENCE_MODE else (
            "no_grad", "with grad mode enabled")
        start = f"{by} is a view of a view which was" if by else "A view was"
        start = f"{start} created in {mode} mode and {written} modified inplace {now}."
    return errors.InplaceError(errors.at(f"{start} {REASONS[how]}"))


def maker_text(node: Any) -> str:
    """Which output of which function a node is, as torch's refusals say it."""
    number = output_number(node) if node.op.name == "output" else 0
    name = node.name()
    if private.VERSION >= (2, 13):
        name = name.rstrip("0123456789").removesuffix("Backward")
    return f"Output {number} of {name}"


def refuse_making(view: Tensor, written: str, node: Any = None) -> None:
    """Refuse a recorded write to the memory of a view that torch made in a way that does not allow it."""
    how = making(view)
    if how != Making.DEFAULT and shown_as_view(view):
        raise refused(how, written, node)


def refuse_mode(view: Tensor, written: str, node: Any) -> None:
    """Refuse a recorded write to the memory of a view that leads nowhere: it was made where nothing is recorded."""
    how = making(view)
    raise refused(Making.NO_GRAD_MODE if how == Making.DEFAULT else how, written, node)


def leads_nowhere(node: Any) -> bool:
    """Is this the node of a view that `apart` describes: a leaf to the user?"""
    return node is not None and node.op is APART


def require_unwritten(t: Tensor, node: Any) -> None:
    """torch's refusal to say what a view made under no_grad is, once its memory has been written."""
    if written_since(t, node):
        refuse_mode(t, ANOTHER, node)


def written_since(t: Tensor, node: Any) -> bool:
    """Is this a view made under no_grad, whose memory has been written by a recorded write?"""
    return leads_nowhere(node) and node.raw_attributes["unrecorded"] and private.version_of(t) != node.version \
        and requires_grad(private.base_of(t))


def own_flag(t: Tensor) -> bool:
    """Does a torch view that requires grad do so of its own, and not because its base does?"""
    if not t.is_leaf:                   # read off its base by torch, after a write: here too, unless that has a history
        return t.grad_fn is None or not t.grad_fn.name().startswith("AsStrided") or has_history(private.base_of(t))
    with torch_autograd():
        child = t.view_as(t) if t.layout is torch.strided else t.neg()
        (edge, _), = child.grad_fn.next_functions  # type: ignore[union-attr]
    return edge is not None


HISTORIES = (torch.strided, torch.sparse_coo)
"""Layouts of bases whose views have a history here."""


def late(t: Tensor, own: bool = False) -> Any:
    """A node for a view that was made before its base required grad; None where `t` is none, or a leaf of its `own`.

    torch gives such a view its history when it is looked at after the base was written by
    an operation that requires grad.
    """
    if t.layout is not torch.strided:
        return None
    base: Any = private.base_of(t)
    node = None if base is None else base.__dict__.get("_node")
    if node is None or node.is_leaf:
        if base is None or base.layout not in HISTORIES or not requires_grad(base):
            return None
        leaf: Any = private.TensorBase.is_leaf
        torchs = "_made" not in t.__dict__
        try:
            unwritten = leaf.__get__(t) if torchs else t.__dict__["_made"] == private.version_of(t)
        except RuntimeError:                    # torch refuses to say what a view made under no_grad is, once written
            if torch.is_grad_enabled():
                raise
            return None
        if unwritten:
            return None if own else apart(t, torchs and making_of(t) == Making.NO_GRAD_MODE)
        if not torch.is_grad_enabled():
            return None
        if not (own and torchs):                # made by torch outside, and its base not written since
            refuse_making(t, ANOTHER)
        return attach_region(base, t, geometry(t, base))
    if not torch.is_grad_enabled():
        return None
    if not node.requires_grad:
        return None
    if t.__dict__.get("_made") == private.version_of(t):           # under no_grad, of a view that nothing had read yet
        return None if own else apart(t, True)
    first = handles.handle_of(base)
    if first.op == "elsewhere":
        refuse_making(t, ANOTHER)
        return attach_region(base, t, geometry(t, base))
    while first.operands and first.operands[0] is not None:
        below = first.operands[0]
        start = origin(below)
        if not (first.op is WRITTEN or below.flags & nodes.OVERWRITTEN or (start.is_leaf and start.tensor is base)):
            return None                         # an operation, not a write
        if not below.requires_grad:
            refuse_making(t, ANOTHER)
            return attach_region(base, t, geometry(t, base))
        first = below
    return None


def refuse_foreign(t: Tensor) -> None:
    """Refuse a tensor with a history of torch's own, unless that is the one of `late` and nothing is recorded now."""
    base = private.base_of(t)
    if torch.is_grad_enabled() or base is None or not base.is_leaf:
        raise refusals.foreign(t)


def apart(t: Tensor, unrecorded: bool) -> Any:
    """A node for a view of a tensor that requires grad, made where no gradient could be followed.

    torch says that such a view requires grad, because its base does, and that it is a leaf,
    because nothing computed it; gradients that arrive there reach nobody.  `unrecorded`:
    was it made under no_grad, rather than before its base required grad?
    """
    base: Any = private.base_of(t)
    node = handles.handle_of(base) if base is not None else None
    if node is None or not node.requires_grad:
        return None
    where = geometry(t, base)
    where["unrecorded"] = unrecorded
    fresh = attach(APART, node, where, t) if "_node" in t.__dict__ else handles.move(APART, node, where, t)
    fresh.mark(nodes.NOWHERE)
    fresh.view = True
    return fresh


def attach_region(base: Tensor, view: Tensor, where: dict[str, Any]) -> Any:
    """A node that reads `view` off the base's current node."""
    fresh = attach(REGION, handles.handle_of(base), where, view)
    fresh.view = True
    return fresh


def made_again(view: Tensor, base: Tensor) -> bool:
    """Does torch make the history of a view anew by the functions that made it, rather than from its geometry?"""
    return view.dtype is not base.dtype or view.is_conj() != base.is_conj() or view.is_neg() != base.is_neg()


def attach_shaped(base: Tensor, view: Tensor, shape: Any) -> Any:
    """`attach_region` for a view that had another shape when it was made: its gradient keeps that one."""
    part = view.detach()
    try:
        if part.numel() > math.prod(shape):             # a write with `out=` has made it larger
            part = part.view(-1)[:math.prod(shape)]
        part = part.view(tuple(shape))
    except RuntimeError:                    # turned, say
        return attach_region(base, view, geometry(view, base))
    made = handles.append_over(REGION, handles.handle_of(base), geometry(part, base), part)
    fresh = attach(WRITTEN, made, None, view)
    fresh.view = True
    return fresh


def refresh(tape: Any, node: Any, view: Tensor) -> Any:
    """The current node of a view whose memory has been written since its own was made."""
    torchs = private.is_view(view) and hidden(view)               # before this frame holds the base, too
    base: Any = private.base_of(view)
    if leads_nowhere(node) and not requires_grad(base):
        handles.become_leaf(view)                             # its base has been detached since
        return handles.handle_of(view)
    if torch.is_grad_enabled():
        require_unwritten(view, node)
    elif leads_nowhere(node) and node.raw_attributes["unrecorded"]:
        handles.renumber(node)                # its version stays: where gradients are on again, torch refuses its use
        return node
    if node.requires_grad and base is not None and "_adopted" not in base.__dict__ and torchs \
            and not (begins_at_leaf(node) and not requires_grad(base)):          # the leaf is itself a view of `base`
        return same_history(tape, node, view)                                       # nobody can have written the base
    base_node = None if base is None else handles.handle_of(base)
    if not node.requires_grad and not (tape.late and torch.is_grad_enabled()):      # no history before it is read
        if tape.optimize:
            return rewritten(node, view)
        handles.set_version(node, view)
        return node
    if base_node is not None and not base_node.requires_grad and node.requires_grad:
        if torch.is_grad_enabled():
            refuse_making(view, ANOTHER, node)
        cut = attach(CUT, node, geometry(view, base), view)     # its base has been detached since
        cut.view = True
        return cut
    if leads_nowhere(node) and not node.raw_attributes["unrecorded"]:
        return attach_region(base, view, geometry(view, base))
    if base_node is not None and base_node.requires_grad and torch.is_grad_enabled():
        refuse_making(view, ANOTHER, node)
    if base_node is None or not base_node.requires_grad or (base_node.index < node.index and torchs):
        fresh = same_history(tape, node, view)
    elif made_again(view, base) and tuple(node.shape) != view.shape:
        fresh = attach_shaped(base, view, node.shape)
    else:
        fresh = attach_region(base, view, geometry(view, base))
    if base_node is not None and base_node.requires_grad and making_of(view) != Making.DEFAULT and shown_as_view(view):
        handles.unsettle(fresh)               # gradients are off: what torch refuses is refused where they are on again
    return fresh


def begins_at_leaf(node: Any) -> bool:
    """Is this the node of a view, or of a view of one, of a leaf?"""
    while node.view is not None and node.operands and node.operands[0] is not None:
        node = node.operands[0]
    return bool(origin(node).is_leaf)


def written_inside(tape: Any, t: Tensor) -> Any:
    """A node for a view with a history of torch's, whose base a graph has written since; None for any other."""
    base: Any = private.base_of(t)
    node = None if base is None else base.__dict__.get("_node")
    if node is None or node.is_leaf or not node.requires_grad or node.tape is not tape:
        return None
    if torch.is_grad_enabled():
        refuse_making(t, ANOTHER)
    return attach_region(base, t, geometry(t, base))


def written_late(t: Tensor, known: Any) -> bool:
    """True if the next use of `t`, whose node `known` follows no gradient, finds that its base does by now."""
    if not private.is_view(t) or t.is_inference() or t.__dict__.get("_made") == private.version_of(t) \
            or (known is not None and not known.is_leaf and known.version == private.version_of(t)):
        return False
    base: Any = private.base_of(t)
    node = base.__dict__.get("_node")
    return node is not None and bool(node.requires_grad) and not node.is_leaf


def name_now(t: Tensor, node: Any) -> str:
    """The name of the history of `t`, which torch makes anew where the memory of a view has been written since."""
    name: str = node.name()
    if not private.is_view(t) or t.is_inference() or private.version_of(t) == node.version or hidden(t):
        return name
    base: Any = private.base_of(t)
    return "AsStridedBackward0" if requires_grad(base) and not made_again(t, base) else name


def same_history(tape: Any, node: Any, view: Tensor) -> Any:
    """The node of a view that a write outside the record has given a new value, and nothing else."""
    if tape.optimize:
        return rewritten(node, view)
    handles.set_version(node, view)
    return node


def rewritten(node: Any, t: Tensor) -> Any:
    """The node of a tensor whose memory was written without a record (under no_grad, say).

    The gradient still flows to what computed it, as in torch; the value is a new one.  Where none flows, each write
    stands on the value before the first: a chain of all of them would be as long as the training.
    """
    while node.op is WRITTEN and not node.requires_grad and not node.operands[0].requires_grad:
        node = node.operands[0]
    fresh = attach(WRITTEN, node, None, t)
    tape: Any = thread_state.get_active()
    if tape is not None and tape.sources:
        tape.writes.locate(fresh, t)
    return fresh
