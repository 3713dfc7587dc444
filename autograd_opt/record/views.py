"""Writes through views: they reach the base, and every other view of it.

torch knows the base of every view (`_base`), its geometry and the version counter that all
share.  A write through a view moves the base to a node that combines the base's old node
with the written part; any view whose counter has moved on is then read off the base's new
node, by geometry, the next time it is used.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.graph import node as nodes
from autograd_opt.graph.hooks import hooks_of
from autograd_opt.graph.references import requires_grad
from autograd_opt.ops.helpers import view_of
from autograd_opt.ops.table import ONCE, PURE, VIEW, define
from autograd_opt.record import recorder

Tensor = torch.Tensor
MULTI_VIEWS = frozenset("unbind split split_with_sizes chunk".split())


def rewrite(op: Any, found: list[Any], operands: tuple[Any, ...], attributes: dict[str, Any], target: Tensor,
            extra: Any = None, versions: Any = None, reshapes: bool = False) -> Any:
    """Move `target`, written already, to a node of its own; `retain_grad` follows recorded writes.

    `reshapes`: only the shape has changed; torch then goes on retaining the gradient of the old one.
    """
    old = target.__dict__.get("_node")
    # a node without users drops its hooks
    hooks = None if old is None or old.is_leaf or op is WRITTEN else origin(old).hooks
    node = recorder.record_write(op, found, operands, attributes, target, extra, versions)
    if found and found[0] is not None and not found[0].requires_grad and node.requires_grad:
        nodes.base_became_late(target)
    if hooks is not None and hooks.retain and not reshapes:
        hooks.retain = False
        hooks_of(node).retain, hooks_of(node).owner = True, hooks.owner
    return node


def geometry(view: Tensor, base: Tensor) -> dict[str, Any]:
    """Where `view` lies in `base` and how it reads its memory, as attributes of the operators below."""
    return {
        "size": tuple(view.shape), "stride": tuple(view.stride()),
        "offset": view.storage_offset() - base.storage_offset() * base.element_size() // view.element_size(),
        "base_size": tuple(base.shape), "base_stride": tuple(base.stride()),
        "dtype": view.dtype, "base_dtype": base.dtype,
        "conj": view.is_conj() != base.is_conj(), "neg": view.is_neg() != base.is_neg(),
    }


def refuse_by_mode(view: Tensor, written: str = "is being") -> None:
    """Refuse, in torch's words, a recorded write to the memory of a view that was made where none is recorded."""
    if making_of(view) == Making.INFERENCE_MODE:
        made, mode, now = "inference mode", "inference_mode", "in normal mode"
    else:
        made, mode, now = "no_grad mode", "no_grad", "with grad mode enabled"
    raise errors.InplaceError(errors.at(
        f"A view was created in {made} and {written} modified inplace {now}. Given that this use case is ambiguous "
        "and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either "
        f"both inside the {mode} block (if you don't want the inplace to be tracked) or both outside (if you want "
        "the inplace to be tracked)."
    ))


def protect(view: Tensor, node: Any, base_node: Any) -> None:
    """Refuse writes through views that torch refuses."""
    if not base_node.requires_grad and not node.requires_grad:
        return
    step = node
    while step is not None and step is not base_node and (step.view is not None or step.op.name == "output"):
        refuse_origin(step, node)
        step = step.operands[0] if step.operands else None
    if base_node.requires_grad and (leads_nowhere(node) or (not node.requires_grad and (
            node.is_leaf or node.operands[0] is base_node))):
        refuse_by_mode(view)


Making: Any = torch._C._autograd.CreationMeta
making_of: Any = torch._C._autograd._get_creation_meta


def hidden(view: Tensor) -> bool:
    """Is the base of a view a tensor of torch's own, which no Python code has seen (as that of a stack)?"""
    base: Any = view._base
    if "_adopted" in base.__dict__:
        return True
    return "_node" not in base.__dict__ and sys.getrefcount(base) <= 3       # torch, `base`, the argument


def unseen(t: Tensor) -> bool:
    """Is `t` a view of memory that only torch knows, and that no write has reached?"""
    return t._is_view() and hidden(t) and "_adopted" not in t._base.__dict__


PLAIN = frozenset(["unsafe_chunk", "unsafe_split"])
"""Calls whose results lie in the memory of their operand, and are views of nothing in eager mode."""


def shown_as_view(t: Tensor) -> bool:
    """Is `t` a view in eager mode, too?"""
    if not t._is_view() or not hidden(t):
        return t._is_view()
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf:
        return "_made" in t.__dict__ or not t.is_contiguous()
    return (node.operands[0] if node.op.name == "output" else node).op.name not in PLAIN


def origin(node: Any) -> Any:
    """The node that computed a tensor, below those that stand for writes without a record."""
    while node is not None and node.op is WRITTEN and node.operands:
        node = node.operands[0]
    return node


def maker(node: Any) -> Any:
    """The node of the tensor that a chain of views starts from."""
    while node is not None and node.operands and not node.is_leaf:
        below = node.operands[0]
        if below is None or not (node.op.flags & VIEW or (
                below.op.flags & VIEW if node.op.name == "output" else node.view is not None)):
            break
        node = below
    return node


def adopt(target: Tensor, node: Any) -> None:
    """Before the first write to the hidden memory under `target`: let it hold the value of the tensor it was made for.

    torch's kernels compute a stack, say, in memory of another shape and return a view of it.
    The write has to reach that tensor, and every view of it.
    """
    if not target._is_view() or not hidden(target):
        return
    base: Any = target._base
    if "_node" in base.__dict__:
        return
    base._adopted = True
    first = maker(node)
    if first is None or first.is_leaf:
        return
    if first.tensor is not None:
        where = geometry(first.tensor, base)
    elif math.prod(first.shape) == base.numel() and base.is_contiguous():
        where = geometry(base.detach().view(first.shape), base)
    else:
        return
    recorder.record_write(EMBED, [first], (base,), where, base)
    first.view = True


def refuse_unread(target: Tensor) -> None:
    """torch's refusal to write through a view that it takes for a leaf.

    A view made before its base required grad gets its history when an operation reads it;
    until then nothing has computed it.
    """
    if not target._is_view() or target._base is None or not torch.is_grad_enabled():
        return
    node = target.__dict__.get("_node")
    if (node is None or not node.requires_grad) and requires_grad(target._base) and not hidden(target):
        raise errors.InplaceError(errors.at(
            "a leaf Variable that requires grad is being used in an in-place operation: this view was made before "
            "its base required grad. Use torch.no_grad() to update it, or make the view anew"
        ))


def past_hooks(node: Any, base: Any) -> Any:
    """What a write through a view is differentiated by: the view's node, or one that goes around hooks on the way.

    torch goes from the written part of a base straight to that part of the old base.
    """
    tensor, below, target = base
    step = node
    while step is not None and step is not below and step.operands and (
            step.view is not None or step.op.name == "output"):
        hooks = step.hooks
        if hooks is not None and (hooks.tensor or hooks.pre or hooks.post or (hooks.retain and step is not node)):
            return recorder.record_value(REGION, [below], (tensor,), geometry(target, tensor), target)
        step = step.operands[0]
    return node


def refuse_making(view: Tensor) -> None:
    """Refuse a recorded write through a view that torch made in a way that does not allow it."""
    making = making_of(view)
    if making == Making.DEFAULT or not shown_as_view(view):
        return
    if making == Making.MULTI_OUTPUT_NODE:
        raise errors.InplaceError(errors.at(
            "This view, its base or another view of its base is being or has been modified inplace. It is the output "
            "of a function that returns multiple views. Such functions do not allow the output views to be modified "
            "inplace. You should replace the inplace operation by an out-of-place one."
        ))
    refuse_by_mode(view, "it, its base or another view of its base is being or has been")


def refuse_origin(node: Any, written: Any) -> None:
    """Refuse a write to `written`, a view of what a multi-view or custom function returned as `node`, or that one."""
    maker = node.operands[0] if node.op.name == "output" else node
    if (maker.raw_attributes or {}).get("call", maker.op.name) in MULTI_VIEWS:
        reason = (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace. You should replace the inplace operation by an out-of-place one.")
    elif maker.op.name.startswith("function"):
        reason = (
            "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
            "logic to handle view+inplace would override the custom backward associated with the custom Function, "
            "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the "
            "custom Function.")
    else:
        return
    number = written.raw_attributes["i"] if written.op.name == "output" else 0
    name = written.name().rstrip("0123456789").removesuffix("Backward")
    raise errors.InplaceError(errors.at(f"Output {number} of {name} is a view and is being modified inplace. {reason}"))


def late(t: Tensor, own: bool = False) -> Any:
    """A node for a view that was made before its base required grad; None where `t` is none, or a leaf of its `own`.

    torch gives such a view its history when it is looked at after the base was written by
    an operation that requires grad.
    """
    if not torch.is_grad_enabled():
        return None
    base: Any = t._base
    node = None if base is None else base.__dict__.get("_node")
    if node is None or node.is_leaf:
        if base is None or not requires_grad(base):
            return None
        leaf: Any = torch._C.TensorBase.is_leaf
        torchs = "_made" not in t.__dict__
        unwritten = leaf.__get__(t) if torchs else t.__dict__["_made"] == t._version
        if unwritten:
            return None if own else apart(t, False)
        if not (own and torchs):                # made by torch outside, and its base not written since
            refuse_making(t)
        return attach_region(base, t, geometry(t, base))
    if not node.requires_grad:
        return None
    if t.__dict__.get("_made") == t._version:           # under no_grad, of a view that nothing had read yet
        return None if own else apart(t, True)
    first = nodes.handle_of(base)
    if first.op == "elsewhere":
        refuse_making(t)
        return attach_region(base, t, geometry(t, base))
    while first.operands and first.operands[0] is not None:
        below = first.operands[0]
        start = origin(below)
        if not (first.op is WRITTEN or below.flags & nodes.OVERWRITTEN or (start.is_leaf and start.tensor is base)):
            return None                         # an operation, not a write
        if not below.requires_grad:
            refuse_making(t)
            return attach_region(base, t, geometry(t, base))
        first = below
    return None


def refuse_foreign(t: Tensor) -> None:
    """Refuse a tensor with a history of torch's own, unless that is the one of `late` and nothing is recorded now."""
    base = t._base
    if torch.is_grad_enabled() or base is None or not base.is_leaf:
        raise errors.foreign(t)


def apart(t: Tensor, unrecorded: bool) -> Any:
    """A node for a view of a tensor that requires grad, made where no gradient could be followed.

    torch says that such a view requires grad, because its base does, and that it is a leaf,
    because nothing computed it; gradients that arrive there reach nobody.  `unrecorded`:
    was it made under no_grad, rather than before its base required grad?
    """
    base: Any = t._base
    node = nodes.handle_of(base) if base is not None else None
    if node is None or not node.requires_grad:
        return None
    fresh = rewrite(APART, [node], (base,), {**geometry(t, base), "unrecorded": unrecorded}, t)
    fresh.mark(nodes.NOWHERE)
    fresh.view = True
    return fresh


def set_apart(out: Any, source: Any = None) -> bool:
    """Give views made under no_grad of a tensor that requires grad the node that torch's words describe; any such?

    `source` is what they were made of: where its memory is hidden, the base gets the node that says so first.
    """
    any_view = False
    for t in (out if isinstance(out, (tuple, list)) else (out,)):
        if type(t) is Tensor and t._is_view() and not t.is_inference() and (t.is_floating_point() or t.is_complex()):
            if source is not None and source._is_view():
                adopt(source, nodes.handle_of(source))
            any_view = apart(t, True) is not None or any_view
    return any_view


def own_flag(t: Tensor) -> bool:
    """Does a torch view that requires grad do so of its own, and not because its base does?"""
    from autograd_opt.record.torch_fallback import torch_autograd
    if not t.is_leaf:                   # read off its base by torch, after a write: here too
        return t.grad_fn is None or not t.grad_fn.name().startswith("AsStrided")
    with torch_autograd():
        (edge, _), = t.view_as(t).grad_fn.next_functions  # type: ignore[union-attr]
    return edge is not None


def leads_nowhere(node: Any) -> bool:
    """Is this the node of a view that `apart` describes: a leaf to the user?"""
    return node is not None and node.op is APART


def require_unwritten(t: Tensor, node: Any) -> None:
    """torch's refusal to say what a view made under no_grad is, once its memory has been written."""
    base: Any = t._base
    if leads_nowhere(node) and node.raw_attributes["unrecorded"] and t._version != node.version \
            and requires_grad(base):
        refuse_by_mode(t, "its base or another view of its base has been")


def base_of(t: Tensor) -> Any:
    """(base, its node, `t`) when `t` is a view, else None."""
    return (t._base, nodes.handle_of(t._base), t) if t._is_view() and t._base is not None else None


def before_write(target: Tensor) -> Any:
    """(base, its node before the write, `target`) when `target` is a view, else None."""
    if not target._is_view() or target._base is None:
        return None
    base = target._base
    if not (base.is_floating_point() or base.is_complex()):
        raise errors.UnsupportedError(errors.at(
            f"an in-place write through a view of another dtype ({base.dtype} seen as {target.dtype}) is not "
            "supported: write to the base"
        ))
    return base_of(target)


def after_write(base: Any, part: Any, target: Tensor) -> None:
    """Move the base, then the written view, to their new nodes."""
    tensor, node, *_ = base
    where = geometry(target, tensor)
    rewrite(PLACE, [node, part], (tensor, target), where, tensor)
    attach_region(tensor, target, where)


def attach_region(base: Tensor, view: Tensor, where: dict[str, Any]) -> Any:
    """A node that reads `view` off the base's current node."""
    fresh = rewrite(REGION, [nodes.handle_of(base)], (base,), where, view)
    fresh.view = True
    return fresh


def made_again(view: Tensor, base: Tensor) -> bool:
    """Does torch make the history of a view anew by the functions that made it, rather than from its geometry?"""
    return view.dtype is not base.dtype or view.is_conj() != base.is_conj() or view.is_neg() != base.is_neg()


def attach_shaped(base: Tensor, view: Tensor, shape: Any) -> Any:
    """`attach_region` for a view that had another shape when it was made: its gradient keeps that one."""
    try:
        where = geometry(view.detach().view(tuple(shape)), base)
    except RuntimeError:                    # turned, say
        return attach_region(base, view, geometry(view, base))
    made = recorder.record_value(REGION, [nodes.handle_of(base)], (base,), where, view.detach().view(tuple(shape)))
    fresh = rewrite(WRITTEN, [made], (view,), {}, view)
    fresh.view = True
    return fresh


def refresh(tape: Any, node: Any, view: Tensor) -> Any:
    """The current node of a view whose memory has been written since its own was made."""
    torchs = view._is_view() and hidden(view)               # before this frame holds the base, too
    base: Any = view._base
    if leads_nowhere(node) and not requires_grad(base):
        nodes.become_leaf(view)                             # its base has been detached since
        return nodes.handle_of(view)
    if torch.is_grad_enabled():
        require_unwritten(view, node)
    if node.requires_grad and base is not None and "_adopted" not in base.__dict__ and torchs:
        return same_history(tape, node, view)                                       # nobody can have written the base
    base_node = None if base is None else nodes.handle_of(base)
    if not node.requires_grad and not (tape.late and torch.is_grad_enabled()):      # no history before it is read
        if tape.optimize:
            return rewritten(node, view)
        nodes.set_version(node, view)
        return node
    if base_node is not None and not base_node.requires_grad and node.requires_grad:
        cut = rewrite(CUT, [node], (base,), geometry(view, base), view)     # its base has been detached since
        cut.view = True
        return cut
    if leads_nowhere(node) and not node.raw_attributes["unrecorded"]:
        return attach_region(base, view, geometry(view, base))
    if base_node is not None and base_node.requires_grad and torch.is_grad_enabled():
        refuse_making(view)
    if base_node is None or not base_node.requires_grad or (base_node.index < node.index and torchs):
        fresh = same_history(tape, node, view)
    elif made_again(view, base) and tuple(node.shape) != view.shape:
        fresh = attach_shaped(base, view, node.shape)
    else:
        fresh = attach_region(base, view, geometry(view, base))
    if base_node is not None and base_node.requires_grad and making_of(view) != Making.DEFAULT and shown_as_view(view):
        nodes.unsettle(fresh)               # gradients are off: what torch refuses is refused where they are on again
    return fresh


def same_history(tape: Any, node: Any, view: Tensor) -> Any:
    """The node of a view that a write outside the record has given a new value, and nothing else."""
    if tape.optimize:
        return rewritten(node, view)
    nodes.set_version(node, view)
    return node


def rewritten(node: Any, t: Tensor) -> Any:
    """The node of a tensor whose memory was written without a record (under no_grad, say).

    The gradient still flows to what computed it, as in torch; the value is a new one.  Where none flows, each write
    stands on the value before the first: a chain of all of them would be as long as the training.
    """
    while node.op is WRITTEN and not node.requires_grad and not node.operands[0].requires_grad:
        node = node.operands[0]
    fresh = rewrite(WRITTEN, [node], (t,), {}, t)
    tape: Any = nodes.get_active()
    if tape is not None and tape.sources:
        tape.locate_write(fresh, t)
    return fresh


# The operators: linear in every operand, each one's rule is another of them. -------------
def restride(g: Tensor, base_size: Any, base_stride: Any) -> Tensor:
    """`g` in fresh memory with the base's strides."""
    out = torch.empty_strided(base_size, base_stride, dtype=g.dtype, device=g.device)
    return out.copy_(g)


def shown(memory: Tensor, size: Any, stride: Any, offset: int, dtype: Any, conj: bool, neg: bool) -> Tensor:
    """What a view with this geometry shows of `memory`: it may read complex numbers as pairs, or conjugated."""
    if dtype is None or dtype is memory.dtype:
        view = memory.as_strided(size, stride, offset)
    else:
        view = torch.empty(0, dtype=dtype, device=memory.device)
        view.set_(memory.untyped_storage(), offset, size, stride)
    view = view.conj() if conj else view
    return torch._neg_view(view) if neg else view


def region(x: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any = None,
           base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """The part of `x` that a view with this geometry shows."""
    out = shown(restride(x, base_size, base_stride), size, stride, offset, dtype, conj, neg)
    return out.clone().resolve_conj().resolve_neg()


def erase(x: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any = None,
          base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """`x` with that part zero."""
    out = restride(x, base_size, base_stride)
    shown(out, size, stride, offset, dtype, False, False).zero_()
    return out


def overlaps(size: Any, stride: Any) -> bool:
    """May two elements of a view with this geometry be one place in memory?"""
    expected = 0
    for step, n in sorted((s, n) for s, n in zip(stride, size, strict=True) if n != 1):
        if step <= expected:
            return True
        expected += step * (n - 1)
    return False


def embed(x: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any = None,
          base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """Zeros with that part `x`."""
    out = torch.empty_strided(base_size, base_stride, dtype=base_dtype or x.dtype, device=x.device).zero_()
    place_in = shown(out, size, stride, offset, dtype, conj, neg)
    if not overlaps(size, stride):
        place_in.copy_(x)
        return out
    x = x.conj() if conj else x
    x = -x if neg else x
    extent = out.untyped_storage().nbytes() // x.element_size()
    cells = torch.arange(extent, device=x.device).as_strided(size, stride, offset)
    shown(out, (extent,), (1,), 0, x.dtype, False, False).index_add_(0, cells.reshape(-1), x.reshape(-1))
    return out


def place(x: Tensor, part: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any,
          dtype: Any = None, base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """`x` with that part replaced by `part`."""
    out = restride(x, base_size, base_stride)
    shown(out, size, stride, offset, dtype, conj, neg).copy_(part)
    return out


def recorded(name: str, function: Any) -> Any:
    """The operator as a function that records itself."""
    def call(x: Tensor, **where: Any) -> Tensor:
        if nodes.get_recording() is None:
            return function(x, **where)
        return recorder.apply(OPS_BY_NAME[name], function, (x,), where, (x,), where)
    return call


_region, _erase, _embed = recorded("view_region", region), recorded("view_erase", erase), recorded("view_embed", embed)
_GEO = "size=(), stride=(), offset=0, base_size=(), base_stride=(), dtype=None, base_dtype=None, conj=False, neg=False"


def repeats(size: Any, stride: Any) -> bool:
    """Is one place in memory many elements of a view with this geometry, as after `expand`?"""
    return any(step == 0 and n > 1 for step, n in zip(stride, size, strict=True))


def erase_once(g: Tensor, **where: Any) -> Tensor:
    """The rule of a write for what was there before; torch has none for a written view that repeats its memory."""
    if repeats(where["size"], where["stride"]):
        raise errors.GraphError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    return _erase(g, **where)


def rule(function: Any) -> Any:
    """A rule that applies one of the operators with the node's own geometry."""
    def vjp(g: Any, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any,
            base_dtype: Any, conj: bool, neg: bool) -> Any:
        return function(g, size=size, stride=stride, offset=offset, base_size=base_size, base_stride=base_stride,
                        dtype=dtype, base_dtype=base_dtype, conj=conj, neg=neg)
    return vjp


REGION = define("view_region", f"x, *, {_GEO}", 0, forward=region, x=rule(_embed))
ERASE = define("view_erase", f"x, *, {_GEO}", 0, forward=erase, x=rule(_erase))
EMBED = define("view_embed", f"x, *, {_GEO}", 0, forward=embed, x=rule(_region))
PLACE = define("view_place", f"x, part, *, {_GEO}", ONCE, forward=place, x=rule(erase_once),
               part=rule(_region))
WRITTEN = define("written", "x", 0,
                 x=lambda g, x_shape, ans_shape: g if x_shape == ans_shape else g.sum_to_size(tuple(x_shape)))
APART = define("view_apart", f"x, *, {_GEO}, unrecorded=True", 0, x=lambda g: None,
               forward=lambda x, *, unrecorded, **where: region(x, **where))
CUT = define("view_cut", f"x, *, {_GEO}", 0, x=lambda g: None, forward=region)


def bind_as_strided(x: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Where the result lies in `x`; TypeError where it reaches beyond, or `x` overlaps itself."""
    offset = 0 if storage_offset is None else storage_offset - x.storage_offset()
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if offset < 0 or 0 in size or reach >= x.numel() or not x.is_contiguous() or x.is_conj() or x.is_neg():
        raise TypeError("a part of memory that is not simply a part of the operand")
    return (x,), {"size": tuple(size), "stride": tuple(stride), "offset": offset, "base_size": tuple(x.shape),
                  "base_stride": tuple(x.stride()), "dtype": x.dtype, "base_dtype": x.dtype}


define("as_strided", f"x, *, {_GEO}", VIEW | PURE, "torch.as_strided T.as_strided", bind=bind_as_strided,
       x=rule(lambda g, **where: view_of(_embed(g, **where))), forward=region)
OPS_BY_NAME = {op.name: op for op in (REGION, ERASE, EMBED, PLACE)}
