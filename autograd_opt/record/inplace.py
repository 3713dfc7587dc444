"""In-place writes: the tensor keeps its identity and moves to a new node.

A write runs torch's own in-place kernel, so versions and aliases change as in torch; the
node records what was computed from the tensor's node before the write.  Where a rule needs
the overwritten value, a copy is saved, as torch saves one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import init

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_flatten, tree_unflatten
from autograd_opt.graph import handles, thread_state, view_history
from autograd_opt.graph.references import has_history, requires_grad
from autograd_opt.ops.table import BINDERS, ELEMENTWISE, ONCE, OPS, REDUCES, define, rename
from autograd_opt.record import arguments, keyword_calls, nested_values, new_nodes, recorder, routes, unrecorded, views
from autograd_opt.record.dispatch import call, special
from autograd_opt.record.items import index_attributes, is_whole
from autograd_opt.record.leaves import meta, remade

Tensor = torch.Tensor

RANDOM_FILLS = frozenset(
    "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_ zero_".split()
)
"""Writes whose result does not depend on the old value."""
LOGICAL = frozenset("logical_and_ logical_or_ logical_xor_ logical_not_".split())
"""Writes that torch does not differentiate: what is written follows nothing that it did not follow before."""
VERSION = private.version_property
POWER = Tensor.__ipow__
"""The one operator in place that torch writes in Python, which says in its result that it does not know an operand."""
RESHAPING = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_ swapdims_ "
    "detach_ rename_".split()
)
"""In-place names that change the view of the data, not the data."""


def writes(func: Any, name: str) -> bool:
    """Is this callable an in-place form, by torch's naming rule?  An overload's name follows a dot."""
    name = name.partition(".")[0]
    return (name.endswith("_") and not name.endswith("__")) or \
        (name.startswith("__i") and name.endswith("__") and name not in ("__index__", "__int__", "__invert__"))


def assign_part(getter: Any, z: Tensor, value: Any) -> None:
    """Write `z.real = value` or `z.imag = value` as torch does: into the view that the property gives."""
    call(Tensor.copy_ if isinstance(value, Tensor) else Tensor.fill_, (call(getter, (z,), {}), value), {})


def protect(target: Tensor, node: Any, tracked: bool) -> None:
    """Refuse, with torch's errors, a write that the gradient cannot follow; `tracked`: is it to be recorded?"""
    node = handles.handle_of(target, False) or node
    if view_history.origin(node).is_leaf and node.requires_grad and not has_history(target):
        if private.is_view(target):
            view_history.refuse_making(target, view_history.ITSELF)
        raise errors.InplaceError(errors.at(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Use torch.no_grad() to update it, or write to a clone()"
        ))
    if tracked:
        views.refuse_values(view_history.origin(node))
    if private.is_view(target) and private.base_of(target) is not None:
        if tracked:
            views.adopt(target, node)
        base_node = handles.handle_of(private.base_of(target), False)
        if base_node is None \
                or (base_node.is_leaf and base_node.requires_grad != requires_grad(private.base_of(target))):
            base_node = handles.handle_of(private.base_of(target))         # a leaf that has been frozen since
        views.protect(target, node, base_node)
        if tracked:
            view_history.refuse_making(target, view_history.ITSELF, node)
        leaf = view_history.origin(base_node).is_leaf and not has_history(private.base_of(target))
        if leaf if base_node.requires_grad else node.requires_grad:
            raise errors.InplaceError(errors.at(
                "a view of a leaf Variable that requires grad is being used in an in-place operation. "
                "Use torch.no_grad() to update it, or write to a clone()"
            ))


def handler(name: str) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]:
    """In-place form of operator `name`."""
    op, bind = OPS[name], BINDERS[name]

    def handle(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            operands, attributes = bind(*args, **rename(kwargs, op.operands))
        except TypeError:
            placed = keyword_calls.by_position(func, args, kwargs) if kwargs else None
            return opaque_handler(func, args, kwargs) if placed is None else handle(func, *placed)
        return write(op, func, args, kwargs, operands, arguments.plain_attributes(attributes))

    return handle


def wants_grad(found: list[Any]) -> bool:
    return torch.is_grad_enabled() and any(n is not None and n.requires_grad for n in found)


def nodes_of(operands: Sequence[Any], name: str) -> list[Any]:
    """The node of each tensor among the operands of the write `name`."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    try:
        found = recorder.nodes_or_refuse(tensors, name)
    except errors.InplaceError:                 # torch says it of the written view first
        view_history.refuse_making(tensors[0], view_history.ITSELF, tensors[0].__dict__.get("_node"))
        raise
    each = iter([None] * len(tensors) if found is None else found)
    return [next(each) if isinstance(t, Tensor) else None for t in operands]


def write(op: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
          operands: tuple[Any, ...], attributes: dict[str, Any]) -> Tensor:
    """Run the in-place kernel and move operand 0 to a node that computes its new value."""
    target: Tensor = operands[0]
    with private.DisableTorchFunction():
        strided = all(t.layout is torch.strided for t in operands if isinstance(t, Tensor))
        if func is POWER and not isinstance(operands[1], (Tensor, int, float)) \
                and func(target.new_empty(0), operands[1]) is NotImplemented:
            return NotImplemented               # the other class may know what to do
    if not strided:
        return opaque_handler(func, args, kwargs)
    with private.DisableTorchFunction():
        if op is not SETITEM or not makes_view(target, attributes["index"]):
            views.refuse_unread(target)
        found = nodes_of(operands, op.name)
        if not wants_grad(found):
            if torch.is_grad_enabled() and found[0] is not None and private.is_view(target):
                protect(target, found[0], False)
            func(*args, **kwargs)
            handles.wrote(target)
            return target
        protect(target, found[0], True)
        mask = 0
        for i, n in enumerate(found):
            if n is not None and n.requires_grad and not (op.several and view_history.leads_nowhere(n)):
                mask |= op.saved_by(i)
        base = views.before_write(target)
        old = copy_before(target, found[0]) if mask & 1 else target
        if base is not None:
            found[0] = views.past_hooks(found[0], base)
        versions = tuple(0 if not isinstance(t, Tensor) or t.is_inference() else private.version_of(t)
                         for t in operands)
        func(*args, **kwargs)
        move(op, found, (old, *operands[1:]), attributes, target, base, versions=versions)
        return target


def copied(t: Tensor) -> Tensor:
    """A copy with the strides of `t`, where it has any."""
    return t.clone(memory_format=torch.preserve_format) if t.layout is torch.strided else t.clone()


def copy_before(target: Tensor, node: Any) -> Tensor:
    """The value before a write, for the rule; in a recorded run its gradient belongs to `node`."""
    old = copied(target.detach())
    if node.requires_grad:
        old._copy_of = node  # type: ignore[attr-defined]
    return old


def move(op: Any, found: list[Any], operands: tuple[Any, ...], attributes: dict[str, Any], target: Tensor,
         base: Any, extra: Any = None, versions: Any = None, reshapes: bool = False) -> None:
    """Give `target`, written already, its new node; a view carries the write to its base."""
    if base is None:
        views.rewrite(op, found, operands, attributes, target, extra, versions, reshapes)
    else:
        part = new_nodes.record_value(op, found, operands, attributes, target, extra, versions)
        views.after_write(base, part, target)


def opaque_handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An in-place form without a rule: torch differentiates the write on a copy."""
    from autograd_opt.record.torch_fallback import OPAQUE, described
    name = getattr(func, "__name__", "").partition(".")[0]
    with private.DisableTorchFunction():
        tensors = nested_values.collect((args, kwargs))
        if tensors and name in RESHAPING:
            views.adopt_reshaped(tensors[0])
        if not tensors or not torch.is_grad_enabled():
            return unrecorded.written(func, args, kwargs)
        target = tensors[0]
        if name.startswith("_foreach_") and wants_grad(nodes_of(tensors, name)) and hasattr(Tensor, name[9:]):
            for t in args[0]:               # none is written where one is refused
                protect(t, handles.handle_of(t), True)
            with private.EnableTorchFunction():
                return one_by_one(name[9:], *args, **kwargs)
        views.refuse_unread(target)
        found = nodes_of(tensors, name)
        if not wants_grad(found) or not (target.is_floating_point() or target.is_complex()) or (name in LOGICAL and (
                not found[0].requires_grad or (found[0].is_leaf and not private.is_view(target)))):
            if private.is_view(target):
                protect(target, found[0], False)
            return unrecorded.written(func, args, kwargs)
        try:
            protect(target, found[0], True)
        except errors.InplaceError:
            draw_anyway(name, target, args[1:])
            raise
        base, read = None if name in RESHAPING else views.before_write(target), found[0]    # a new shape writes no base
        if base is not None:
            found[0] = views.past_hooks(found[0], base)
        if name in RANDOM_FILLS and len(tensors) == 1:
            result = func(*args, **kwargs)
            move(OVERWRITE, [found[0]], (target,), {"call": name}, target, base)
            return result
        differentiable = [t for t, n in zip(tensors, found, strict=True) if n.requires_grad or t is target]
        unique = {id(t): t for t in differentiable}
    inputs, out, call = through_torch(func, name, target, unique, *tree_flatten((args, kwargs)))
    with private.DisableTorchFunction():
        if name in RESHAPING or target.layout is not torch.strided:
            func(*args, **kwargs)
        else:
            target.copy_(out.detach())
        operands = tuple(t for k, t in unique.items() if inputs[k].requires_grad)
        before = {id(target): inputs[id(target)]}
        if read.requires_grad:
            before[id(target)]._copy_of = read  # type: ignore[attr-defined]
        move(OPAQUE, [handles.handle_of(t) if t is not target else found[0] for t in operands], operands,
             described(call), target, base, (call, [before.get(id(t), t) for t in operands]),
             reshapes=name in RESHAPING)
    return target


def through_torch(func: Any, name: str, target: Tensor, unique: dict[int, Tensor], leaves: list[Any],
                  spec: Any) -> tuple[dict[int, Tensor], Tensor, Any]:
    """The call on copies that torch follows: these by the originals' ids, what it has made, and its record."""
    from autograd_opt.graph.thread_state import torch_autograd
    from autograd_opt.record.torch_fallback import differentiated
    with torch_autograd():
        inputs = {k: (copied(unrecorded.detached(t)) if t is target else unrecorded.detached(t))
                  .requires_grad_(t.is_floating_point() or t.is_complex())
                  for k, t in unique.items()}       # the target's memory is about to be written
        copy = copied(inputs[id(target)])
        new = [copy if x is target else inputs.get(id(x), x) if isinstance(x, Tensor) else x for x in leaves]
        new_args, new_kwargs = tree_unflatten(new, spec)
        out = func(*new_args, **new_kwargs)
        out = out if isinstance(out, Tensor) else copy
        wrt = [x for x in inputs.values() if x.requires_grad]
        return inputs, out, differentiated(name, wrt, [out])


def one_by_one(name: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """`torch._foreach_add_(tensors, ...)` where a gradient is followed: as in torch, the same write of each tensor."""
    if name in ("addcmul_", "addcdiv_") and len(args) > 3:
        args, kwargs["value"] = args[:3], args[3]

    def at(value: Any, i: int) -> Any:
        return value[i] if isinstance(value, (list, tuple)) else value

    for i in range(len(args[0])):
        call(getattr(Tensor, name), tuple(at(a, i) for a in args), {k: at(v, i) for k, v in kwargs.items()})
    return list(args[0])


def read_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """torch's `TypeError`, if any, of arguments that it reads before it looks at what is to be written."""
    if not args or not isinstance(args[0], Tensor):
        return
    with private.DisableTorchFunction(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            func(args[0].detach().clone(), *args[1:], **kwargs)
        except TypeError:
            raise
        except Exception:  # what a kernel refuses comes later
            return


def draw_anyway(name: str, target: Tensor, options: tuple[Any, ...]) -> None:
    """torch draws the noise of an in-place dropout before it refuses the write."""
    if name == "dropout_" and len(options) == 2 and options[1] and 0 < options[0] < 1:
        torch.empty_like(target).bernoulli_(1 - options[0])


def out_handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`out=`: refused, as in torch, where an argument requires grad."""
    with private.DisableTorchFunction():
        found = [handles.handle_of(t) for t in nested_values.collect((args, kwargs))]
        if wants_grad(found):
            ask_torch(func, args, kwargs)
        given = kwargs.get("out")
        outs = [t for t in (given if isinstance(given, (tuple, list)) else (given,)) if isinstance(t, Tensor)]
        for t in outs:
            views.adopt_reshaped(t)
            if t.layout is torch.strided:
                t.data_ptr()                # memory that a clone shares cannot be given another size
        kinds = [meta(t) for t in outs]
        result = func(*args, **kwargs)
        for t, kind in zip(outs, kinds, strict=True):
            remade(t, kind)
        return result


def ask_torch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """torch's refusal of a call with `out=` and these arguments, if any: a comparison has no derivative to lose."""
    from autograd_opt.graph.thread_state import torch_autograd
    stand_ins = {id(t): unrecorded.detached(t).clone().requires_grad_(requires_grad(t))
                 for t in nested_values.collect((args, kwargs))}
    try:
        with torch_autograd():
            func(*nested_values.substitute(args, stand_ins), **nested_values.substitute(kwargs, stand_ins))
    except RuntimeError as refusal:
        raise errors.GraphError(errors.at(str(refusal))) from None


def setitem(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`x[index] = value`, the value a tensor or a number."""
    try:
        assign(func, args, kwargs)
    except errors.InplaceError:
        unrecorded.run_raw(Tensor.__getitem__, (args[0], viewing(args[1])), {})     # a view that is none is said first
        raise


def viewing(index: Any) -> Any:
    """The part of an index that makes a view: what gathers elements is looked at later, and here takes all of them."""
    entries: list[Any] = []
    for e in index if isinstance(index, tuple) else (index,):
        gathers = isinstance(e, (Tensor, list))
        axes = e.dim() if isinstance(e, Tensor) and e.dtype in (torch.bool, torch.uint8) else 1
        entries += [slice(None)] * axes if gathers else [e]
    return tuple(entries)


def assign(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`setitem`, for an index that fits."""
    x, index, value = args
    if x.is_inference() and not torch.is_inference_mode_enabled():
        unrecorded.run_raw(func, args, kwargs)    # raises
    if not x.dim() and (type(index) in (int, slice) or (isinstance(index, Tensor) and not index.is_floating_point()
                                                        and index.dtype not in (torch.bool, torch.uint8))):
        unrecorded.run_raw(func, args, kwargs)    # raises
    if not makes_view(x, index):
        views.refuse_unread(x)
    node = handles.handle_of(x) if torch.is_grad_enabled() else None
    own_leaf = node is not None and node.op == "opaque" and not node.operands       # that the call has made itself
    if node is not None and node.requires_grad and (
            (node.is_leaf and not has_history(x)) or view_history.leads_nowhere(node) or own_leaf):
        raise errors.InplaceError(errors.at(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            "Use torch.no_grad() to update it, or write to a clone()"
        ))
    if is_whole(index, x.shape):
        if not isinstance(value, Tensor):
            write(OVERWRITE, func, args, kwargs, (x,), {})
            return
        if (source := fitted(value, x)).dim() <= x.dim():
            write(OPS["fill"] if x.dim() and not source.dim() else COPY, func, args, kwargs, (x, source), {})
            return
    if torch.is_grad_enabled() and private.is_view(x) and only_views(x, index) and views.overlaps(x.shape, x.stride()):
        part = call(Tensor.__getitem__, (x, index), {})     # which need not repeat its memory
        if views.repeats(part.shape, part.stride()):
            unrecorded.run_raw(func, args, kwargs)            # raises
        call(Tensor.copy_ if isinstance(value, Tensor) else Tensor.fill_, (part, fitted(value, part)), {})
        return
    write(SETITEM, func, args, kwargs, (x, value), index_attributes(index))


def makes_view(x: Tensor, index: Any) -> bool:
    """True if `x[index] = ...` writes through a view of `x`, rather than to `x` itself."""
    entries = index if isinstance(index, tuple) else (index,)
    return not is_whole(index, x.shape) and any(
        e is None or (isinstance(e, (int, slice)) and e != slice(None)) for e in entries)


def only_views(x: Tensor, index: Any) -> bool:
    """True if `x[index]` is a view of `x`, and neither `x` itself nor a gathered copy."""
    entries = index if isinstance(index, tuple) else (index,)
    return makes_view(x, index) and all(e is None or e is Ellipsis or type(e) in (int, slice) for e in entries)


def fitted(value: Any, part: Tensor) -> Any:
    """An assigned value without the leading axes of size one that its place does not have."""
    while isinstance(value, Tensor) and value.dim() > part.dim() and value.shape[0] == 1:
        value = call(Tensor.squeeze, (value, 0), {})
    return value


def unwritten(index: Any, versions: tuple[int, ...]) -> Any:
    """The index of an assignment, whose tensors must have these versions: torch saves them for its backward run."""
    if not versions:
        return index
    with private.DisableTorchFunction():
        found = tuple([VERSION.__get__(e) for e in index if isinstance(e, Tensor)])
    if found != versions:
        raise errors.InplaceError(errors.at(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "the index of an assignment; write to a clone() of it"
        ))
    return index


def erase_index(g: Tensor, index: Any) -> Tensor:
    """`g` with `g[index]` zero, recorded where a graph records."""
    if thread_state.get_recording() is None:
        return erased(g, index=index)
    return recorder.apply(ERASE_INDEX, erased, (g,), {"index": index}, (g,), {"index": index})


def erased(g: Tensor, *, index: Any) -> Tensor:
    out = g.clone(memory_format=torch.contiguous_format)
    out[index] = 0
    return out


def bind_copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if x.layout is not torch.strided or (isinstance(source, Tensor) and source.layout is not torch.strided):
        raise TypeError("a copy between layouts has no rule")
    return (x, source), {}


COPY = define("copy", "x, source", ELEMENTWISE, inplace="T.copy_", bind=bind_copy,
              x=lambda g: torch.zeros_like(g), source=lambda g: g)
OVERWRITE = define("overwrite", "x", 0, x=lambda g: torch.zeros_like(g))
ERASE_INDEX = define("erase_index", "x, *, index=None", 0, forward=erased,
                     x=lambda g, *, index: erase_index(g, index))
SETITEM = define("setitem", "x, value, *, index=None, versions=()", REDUCES | ONCE,
                 x=lambda g, *, index, versions: erase_index(g, unwritten(index, versions)),
                 value=lambda g, value_shape, *, index, versions: to_shape(g[unwritten(index, versions)], value_shape))


def to_shape(g: Tensor, shape: Any) -> Tensor:
    """Sum the cotangent of a broadcast value; leading axes of size one may be missing."""
    while g.dim() < len(shape):
        g = g.unsqueeze(0)
    return g.sum_to_size(shape) if g.shape != shape else g


special(Tensor.__setitem__)(setitem)
special(init.uniform_, init.normal_, init.constant_, init.kaiming_uniform_)(routes.Fill())
