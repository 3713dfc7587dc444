"""Writes through views: they reach the base, and every other view of it (`graph/view_history.py`)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import handles, thread_state, view_history
from autograd_opt.graph.handles import geometry
from autograd_opt.graph.references import has_history, requires_grad
from autograd_opt.graph.view_history import (
    HISTORIES,
    ITSELF,
    OF_SPARSE,
    Making,
    apart,
    attach_region,
    hidden,
    leads_nowhere,
    moved,
    refuse_making,
    refuse_mode,
    refused,
)
from autograd_opt.ops.helpers import view_of
from autograd_opt.ops.table import ONCE, PURE, VIEW, define
from autograd_opt.record import new_nodes, recorder, unrecorded

Tensor = torch.Tensor
MULTI_VIEWS = frozenset("unbind split split_with_sizes chunk".split())


def rewrite(op: Any, found: list[Any], operands: tuple[Any, ...], attributes: dict[str, Any], target: Tensor,
            extra: Any = None, versions: Any = None, reshapes: bool = False) -> Any:
    """Move `target`, written already, to a node of its own.

    `reshapes`: only the shape has changed; torch then goes on retaining the gradient of the old one.
    """
    return moved(target, found[0] if found else None,
                 lambda: new_nodes.record_write(op, found, operands, attributes, target, extra, versions), not reshapes)


def protect(view: Tensor, node: Any, base_node: Any) -> None:
    """Refuse writes through views that torch refuses."""
    if not base_node.requires_grad and not node.requires_grad:
        return
    step, first = node, adopted_by(base_node)
    while step is not None and step is not base_node and step is not first and (
            step.view is not None or step.op.name == "output"):
        refuse_origin(step, node)
        step = step.operands[0] if step.operands else None
    refuse_values(view_history.origin(base_node))
    if first is not None:
        refuse_origin(first, node)
    if base_node.requires_grad and (leads_nowhere(node) or (not node.requires_grad and (
            node.is_leaf or node.operands[0] is base_node))):
        refuse_mode(view, ITSELF, node)


def adopted_by(base_node: Any) -> Any:
    """The node whose value `adopt` gave to hidden memory, of which its tensor is a view by now; or None."""
    below = view_history.origin(base_node)
    return below.operands[0] if below.op is EMBED else None


def unseen(t: Tensor) -> bool:
    """Is `t` a view of memory that only torch knows, and that no write has reached?"""
    return private.is_view(t) and hidden(t) and "_adopted" not in private.base_of(t).__dict__


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
    if not private.is_view(target) or not hidden(target):
        return
    base: Any = private.base_of(target)
    if "_node" in base.__dict__:
        return
    base._adopted = True
    first = maker(node)
    if first is None or view_history.origin(first).is_leaf:
        return
    if first.tensor is not None:
        where = geometry(first.tensor, base)
    elif math.prod(first.shape) == base.numel() and base.is_contiguous():
        where = geometry(base.detach().view(first.shape), base)
    else:
        return
    new_nodes.record_write(EMBED, [first], (base,), where, base)
    first.view = True


def adopt_reshaped(target: Tensor) -> None:
    """`adopt` before a write without a record that may turn a view: torch then reads its history off the base."""
    if private.is_view(target) and not torch.is_grad_enabled():
        node = handles.handle_of(target)
        if node.requires_grad:
            adopt(target, node)


def refuse_unread(target: Tensor) -> None:
    """torch's refusal to write through a view that it takes for a leaf.

    A view made before its base required grad gets its history when an operation reads it;
    until then nothing has computed it.
    """
    if not private.is_view(target) or private.base_of(target) is None or not torch.is_grad_enabled():
        return
    node = target.__dict__.get("_node")
    if (node is None or not node.requires_grad) and requires_grad(private.base_of(target)) and not hidden(target):
        refuse_making(target, ITSELF)
        if has_history(target):                 # torch has computed it: its base is written like any other
            return
        raise errors.InplaceError(errors.at(
            "a leaf Variable that requires grad is being used in an in-place operation: this view was made before "
            "its base required grad. Use torch.no_grad() to update it, or make the view anew"
        ))


def past_hooks(node: Any, base: Any) -> Any:
    """What a write through a view is differentiated by: the view's node, or one that goes around hooks on the way.

    torch goes from the written part of a base straight to that part of the old base.
    """
    tensor, below, target = base
    if overlaps(target.shape, target.stride()):
        return new_nodes.record_value(PART, [below], (tensor,), geometry(target, tensor), target)
    step, first = node, adopted_by(below)
    while step is not None and step is not below and step.operands and (
            step.view is not None or step.op.name == "output"):
        hooks = step.hooks
        if hooks is not None and (hooks.tensor or hooks.pre or hooks.post or (hooks.retain and step is not node)):
            return new_nodes.record_value(REGION, [below], (tensor,), geometry(target, tensor), target)
        if step is first:
            break
        step = step.operands[0]
    return node


def refuse_values(node: Any) -> None:
    """Refuse a recorded write to the memory of a sparse tensor, for which torch has no gradient."""
    if OF_SPARSE in (node.raw_attributes or {}):
        raise errors.InplaceError(errors.at(
            f"{node.raw_attributes['call']} of a sparse tensor that requires grad is being modified inplace, and there "
            "is no gradient of such a write. Write to a clone(), and make a sparse tensor of it; or write under "
            "torch.no_grad()"
        ))


def refuse_origin(node: Any, written: Any) -> None:
    """Refuse a write to `written`, a view of what a multi-view or custom function returned as `node`, or that one."""
    maker, place = (node.operands[0], node.raw_attributes["i"]) if node.op.name == "output" else (node, 0)
    attributes = maker.raw_attributes or {}
    name = attributes.get("call", maker.op.name)
    if name in MULTI_VIEWS or name == "function_multi" or place in attributes.get("of_several", ()):
        raise refused(Making.MULTI_OUTPUT_NODE, ITSELF, written)
    if name == "function":
        raise refused(Making.IN_CUSTOM_FUNCTION, ITSELF, written)


def set_apart(out: Any, source: Any = None) -> bool:
    """Give views made under no_grad of a tensor that requires grad the node that torch's words describe; any such?

    `source` is what they were made of: where its memory is hidden, the base gets the node that says so first.
    """
    any_view = False
    for t in (out if isinstance(out, (tuple, list)) else (out,)):
        if type(t) is Tensor and private.is_view(t) and t.layout is torch.strided and not t.is_inference() \
                and (t.is_floating_point() or t.is_complex()) and private.base_of(t).layout in HISTORIES:
            if unrecorded.of_a_leaf(private.base_of(t)):
                any_view = True
                continue
            if source is not None and private.is_view(source):
                adopt(source, handles.handle_of(source))
            any_view = apart(t, True) is not None or any_view
    return any_view


def base_of(t: Tensor) -> Any:
    """(base, its node, `t`) when `t` is a view, else None."""
    base = private.base_of(t) if private.is_view(t) else None
    return None if base is None else (base, handles.handle_of(base), t)


def before_write(target: Tensor) -> Any:
    """(base, its node before the write, `target`) when `target` is a view, else None."""
    if not private.is_view(target) or private.base_of(target) is None:
        return None
    base = private.base_of(target)
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


# The operators: linear in every operand, each one's rule is another of them. -------------
@lru_cache(maxsize=1024)
def end_of(size: Any, stride: Any, offset: int = 0) -> int:
    """How many elements of memory a tensor of this geometry reaches over."""
    return 0 if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def restride(g: Tensor, base_size: Any, base_stride: Any, reach: int = 0) -> Tensor:
    """`g` in fresh memory with the base's strides, and zeros up to `reach`, where a view has outgrown the base."""
    if reach > end_of(base_size, base_stride):
        return g.new_zeros(reach).as_strided(base_size, base_stride).copy_(g)
    if lies_so(g, base_size, base_stride):
        out = g.clone()
        if out.stride() == base_stride:
            return out
    return torch.empty_strided(base_size, base_stride, dtype=g.dtype, device=g.device).copy_(g)


def lies_so(g: Tensor, base_size: Any, base_stride: Any) -> bool:
    """Does `g` lie in memory as the base does, so that the geometry of a view holds in it?"""
    return g.stride() == base_stride and g.shape == base_size and not g.is_neg() and not g.is_conj()


def shown(memory: Tensor, size: Any, stride: Any, offset: int, dtype: Any, conj: bool, neg: bool) -> Tensor:
    """What a view with this geometry shows of `memory`: it may read complex numbers as pairs, or conjugated."""
    if dtype is None or dtype is memory.dtype:
        view = memory.as_strided(size, stride, offset)
    else:
        view = torch.empty(0, dtype=dtype, device=memory.device)
        view.set_(memory.untyped_storage(), offset, size, stride)
    view = view.conj() if conj else view
    return private.neg_view(view) if neg else view


def region(x: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any = None,
           base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """The part of `x` that a view with this geometry shows."""
    if dtype not in (None, x.dtype):
        memory = restride(x, base_size, base_stride)
    else:
        reach = end_of(size, stride, offset)
        if not (conj or neg) and lies_so(x, base_size, base_stride) and reach <= end_of(base_size, base_stride):
            return x.as_strided(size, stride, x.storage_offset() + offset).clone()
        memory = restride(x, base_size, base_stride, reach)
    out = shown(memory, size, stride, offset, dtype, conj, neg)
    return out.clone().resolve_conj().resolve_neg()


def erase(x: Tensor, *, size: Any, stride: Any, offset: int, base_size: Any, base_stride: Any, dtype: Any = None,
          base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Tensor:
    """`x` with that part zero."""
    out = restride(x, base_size, base_stride)
    shown(out, size, stride, offset, dtype, False, False).zero_()
    return out


@lru_cache(maxsize=1024)
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
    """Zeros with that part `x`; what of it lies beyond a base that has not grown with its view goes nowhere."""
    out = torch.empty_strided(base_size, base_stride, dtype=base_dtype or x.dtype, device=x.device).zero_()
    reach = end_of(size, stride, offset)
    if reach * x.element_size() > out.untyped_storage().nbytes():
        cells = -(-reach * x.element_size() // out.element_size())
        out = out.new_zeros(cells).as_strided(base_size, base_stride)
    place_in = shown(out, size, stride, offset, dtype, conj, neg)
    if not overlaps(size, stride):
        place_in.copy_(x)
        return out
    x = x.conj() if conj else x
    x = -x if neg else x
    extent = out.untyped_storage().nbytes() // x.element_size()
    places = torch.arange(extent, device=x.device).as_strided(size, stride, offset)
    shown(out, (extent,), (1,), 0, x.dtype, False, False).index_add_(0, places.reshape(-1), x.reshape(-1))
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
        if thread_state.get_recording() is None:
            return function(x, **where)
        return recorder.apply(OPS_BY_NAME[name], function, (x,), where, (x,), where)
    return call


def lay(x: Tensor, *, base_size: Any, base_stride: Any, base_dtype: Any, **where: Any) -> Tensor:
    """`embed`, but where elements share a place in memory, one of them is there, as torch's copy leaves it."""
    zeros = torch.empty_strided(base_size, base_stride, dtype=base_dtype or x.dtype, device=x.device).zero_()
    return place(zeros, x, base_size=base_size, base_stride=base_stride, **where)


_region, _erase, _embed = recorded("view_region", region), recorded("view_erase", erase), recorded("view_embed", embed)
_lay = recorded("view_lay", lay)
_GEO = "size=(), stride=(), offset=0, base_size=(), base_stride=(), dtype=None, base_dtype=None, conj=False, neg=False"


@lru_cache(maxsize=1024)
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
LAY = define("view_lay", f"x, *, {_GEO}", 0, forward=lay, x=rule(_region))
PART = define("view_part", f"x, *, {_GEO}", 0, forward=region, x=rule(_lay))
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
OPS_BY_NAME = {op.name: op for op in (REGION, ERASE, EMBED, LAY, PLACE)}
view_history.install(WRITTEN, REGION, APART, CUT)
unrecorded.install(APART)
