"""Rules: indexing, gathering, scattering."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.helpers import broadcast_shape, primitive, view_of
from autograd_opt.ops.shape import at_axis, place, sliced
from autograd_opt.ops.table import PURE, REDUCES, VARIADIC, VIEW, choose, define, spell

SLOT = "#"
"""Stands in an index template for the next index tensor."""


PLAIN = (int, bool)
MASKS = (torch.bool, torch.uint8)
"""Types of an index by true elements, which takes an axis for each of its own."""


def is_basic(entry: Any) -> bool:
    return entry is None or entry is Ellipsis or isinstance(entry, slice) or type(entry) is int


def is_sequence(entry: Any) -> bool:
    """True for arrays and for objects that Python counts and indexes, as lists; numbers of NumPy are none."""
    return isinstance(entry, Sequence) or (hasattr(entry, "__getitem__") and hasattr(entry, "__len__") \
        and not isinstance(entry, (dict, torch.Tensor)))


def stands_for_tuple(index: Any) -> bool:
    """Is this sequence taken as a tuple of indices?  torch's rule, inherited from NumPy."""
    return isinstance(index, Sequence) and len(index) < 32 and any(
        e is None or e is Ellipsis or isinstance(e, (torch.Tensor, slice)) or is_sequence(e) for e in index
    )


def normal(index: Any) -> tuple[Any, ...]:
    """The index as a tuple: numbers of any kind as integers, sequences as tensors."""
    if not isinstance(index, tuple):
        index = tuple(index) if stands_for_tuple(index) else (index,)
    return tuple(e if type(e) in PLAIN or e is None or e is Ellipsis else normal_entry(e) for e in index)


def normal_entry(entry: Any) -> Any:
    """An entry that is no plain number or slice, as torch understands it."""
    if isinstance(entry, torch.Tensor):
        if entry.ndim or entry.dtype.is_floating_point or entry.dtype.is_complex:
            return entry
        return bool(entry) if entry.dtype in MASKS else int(entry)
    if isinstance(entry, slice):
        return slice(*(None if n is None else operator.index(n) for n in (entry.start, entry.stop, entry.step)))
    if is_sequence(entry):
        known = isinstance(entry, (list, str, bytes)) or hasattr(entry, "dtype")
        picked = torch.tensor(entry if known else list(entry))
        return normal_entry(picked if picked.dtype in MASKS else picked.to(torch.int64))
    if (hasattr(entry, "dtype") and entry.dtype == bool) or not hasattr(entry, "__index__"):
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                         f"indices (got {type(entry).__name__})")
    return operator.index(entry)


def fill(template: Any, tensors: Any) -> tuple[Any, ...]:
    """The template with its slots filled."""
    rest = iter(tensors)
    return tuple(next(rest) if e == SLOT and isinstance(e, str) else e for e in template)


def pick_index(x: Any, index: Any) -> str:
    if type(index) is int or (type(index) is tuple and all(is_basic(e) for e in index)):
        return "slice"
    if type(index) is tuple and any(type(e) is list or (isinstance(e, torch.Tensor) and e.ndim) for e in index):
        return "index"
    return "slice" if all(is_basic(e) for e in normal(index)) else "index"


def bind_gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if sparse_grad:
        raise TypeError("sparse gradients have no rule")
    return (x, index), {"dim": dim}


def bind_slice(x: Any, index: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"index": normal(index)}


def bind_aten_slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return (self,), {"index": normal(at_axis(dim, self.ndim, slice(start, end, step)))}


def bind_index(x: Any, index: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    entries = normal(index)
    tensors = tuple(e for e in entries if isinstance(e, torch.Tensor))
    return (x, *tensors), {"index": tuple(SLOT if isinstance(e, torch.Tensor) else e for e in entries)}


ALL, ALONE = slice(None), (SLOT,)
index_put_: Any = private.aten.index_put_
"""torch's method takes no None for an axis that is not indexed."""


@primitive
def place_add(g: Any, *tensors: Any, shape: Any, index: Any) -> Any:
    """Zeros of `shape` with `g` added at an index by tensors."""
    out = g.new_zeros(shape)
    if index == ALONE and tensors[0].ndim:
        return out.index_put_(tensors, g, accumulate=True)
    rest: list[Any] = []
    entries = fill(index, tensors)
    for e in entries:
        if isinstance(e, torch.Tensor) and e.ndim:
            rest.append(e)
        elif type(e) is slice and e == ALL:
            rest.append(None)
        else:
            return index_put(out, entries, g)
    index_put_(out, rest, g, True)
    return out


def index_put(out: Any, index: tuple[Any, ...], g: Any) -> Any:
    """out[index] += g, counting repeated positions: torch takes the view by numbers and slices, and indexes that."""
    if any(isinstance(e, bool) or (isinstance(e, torch.Tensor) and not e.ndim and e.dtype in MASKS) for e in index):
        positions = torch.arange(out.numel(), device=out.device).reshape(out.shape)[index]
        out.view(-1).index_add_(0, positions.reshape(-1), g.expand(positions.shape).reshape(-1))
        return out
    axes = [e.ndim if isinstance(e, torch.Tensor) and e.dtype in MASKS else int(e is not None and e is not Ellipsis)
            for e in index]
    basic: list[Any] = []
    rest: list[Any] = []
    for e, n in zip(index, axes, strict=True):
        tensor = isinstance(e, torch.Tensor) and e.ndim > 0
        basic += [ALL] * n if tensor else [e]
        if tensor:
            rest.append(e)
        elif e is Ellipsis:
            rest += [None] * (out.ndim - sum(axes))
        elif e is None or isinstance(e, slice):
            rest.append(None)
    index_put_(out[tuple(basic)], rest, g, True)
    return out


def index_back(g: Any, others: Any, shapes: Any, *, index: Any) -> list[Any]:
    whole = place_add(g, *others[1:], shape=shapes[0], index=index)
    return [whole if len(shapes[0]) else view_of(whole)]     # torch gives a number an axis first


def gather_back(g: Any, index: Any, x_shape: Any, *, dim: int) -> Any:
    return torch.zeros(x_shape, dtype=g.dtype, device=g.device).scatter_add(dim, index, g)


def index_select_back(g: Any, index: Any, x_shape: Any, *, dim: int) -> Any:
    zeros = torch.zeros(x_shape, dtype=g.dtype, device=g.device)
    return zeros.index_add(dim, index, g) if len(x_shape) else zeros + g.sum()


def picked_rows(g: Any, index: Any, dim: int) -> Any:
    """`g.index_select(dim, index)`; in a batch torch repeats what is picked by one number that has no axis."""
    return g.index_select(dim, index if index.ndim else index.reshape(1)) if g.ndim else g


def index_add_source(g: Any, index: Any, source_shape: Any, *, dim: int, alpha: Any) -> Any:
    picked = picked_rows(g, index, dim)
    picked = picked.reshape(source_shape) if len(source_shape) != g.ndim else picked
    return picked if alpha == 1 else picked * alpha


def index_copy_source(g: Any, index: Any, source_shape: Any, *, dim: int) -> Any:
    return picked_rows(g, index, dim).reshape(source_shape)


def take_back(g: Any, index: Any, x_shape: Any) -> Any:
    n = 1
    for d in x_shape:
        n *= d
    flat = torch.zeros(n, dtype=g.dtype, device=g.device).index_add(0, index.reshape(-1) % max(n, 1), g.reshape(-1))
    return flat if len(x_shape) == 1 else flat.reshape(x_shape).clone()        # torch's is no view


def take_along_back(g: Any, index: Any, x_shape: Any, *, dim: int | None) -> Any:
    if dim is None:
        return take_back(g, index, x_shape)
    n = len(x_shape)
    wide = tuple(x_shape[d] if d == dim % n else max(x_shape[d], g.shape[d]) for d in range(n))
    return torch.zeros(wide, dtype=g.dtype, device=g.device).scatter_add(
        dim, index.expand(g.shape) % wide[dim], g).sum_to_size(tuple(x_shape))


def scatter_x(g: Any, index: Any, *, dim: int) -> Any:
    return g.scatter(dim, index, 0)


def bind_scatter(x: Any, dim: int, index: Any, src: Any = None, value: Any = None, *, reduce: Any = None) -> Any:
    if reduce is not None:
        raise TypeError("reduce has no rule")
    return (x, index, value if src is None else src), {"dim": dim}


def pick_repeat_interleave(*args: Any, **kwargs: Any) -> str:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats")
    return "repeat_interleave_counts" if isinstance(repeats, torch.Tensor) else "repeat_interleave"


def bind_repeat_interleave(x: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None) -> Any:
    if repeats is None:
        raise TypeError("the form of one argument makes indices")
    return (x,), {"repeats": repeats, "dim": dim}


def bind_repeat_interleave_counts(x: Any, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Any:
    return (x, repeats), {"dim": dim}


def repeat_interleave_back(g: Any, x_shape: Any, *, repeats: int, dim: int | None) -> Any:
    """torch's own way: a new axis, stretched."""
    d, shape = along(x_shape, dim)
    if not shape or 0 in g.shape:
        return repeat_interleave_counts_back(g, x_shape, repeats, dim=dim)
    parts = g.unflatten(d, (shape[d], repeats))
    return (parts if repeats == 1 else parts.sum(d + 1, keepdim=True)).squeeze(d + 1).reshape(x_shape)


def repeat_interleave_counts_kernel(x: Any, counts: Any, *, dim: int | None) -> Any:
    """The counts are copied: torch keeps indices that it makes of them, and they may be written before backward."""
    return torch.repeat_interleave(x, counts, dim), counts.clone()


def repeat_interleave_counts_back(g: Any, x_shape: Any, extra: Any, *, dim: int | None) -> Any:
    d, shape = along(x_shape, dim)
    if not shape:
        return g.sum()
    index = torch.repeat_interleave(torch.arange(shape[d], device=g.device), extra)
    return torch.zeros(shape, dtype=g.dtype, device=g.device).index_add(d, index, g).reshape(x_shape)


def along(shape: Any, dim: int | None) -> tuple[int, tuple[int, ...]]:
    """The dimension and the shape that it is one of: without `dim` that of all elements in a row."""
    if dim is None:
        return 0, (math.prod(shape),)
    return dim % max(len(shape), 1), tuple(shape)


def bind_index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    entries = tuple(indices)
    tensors = tuple(e for e in entries if e is not None)
    return (x, values, *tensors), {
        "index": tuple(SLOT if e is not None else slice(None) for e in entries), "accumulate": accumulate}


def index_put_back(g: Any, needs: Any, rest: Any, shapes: Any, *, index: Any, accumulate: bool) -> list[Any]:
    entries = fill(index, rest[2:])
    gx = gv = None
    if needs[0]:
        none = tuple(None if isinstance(e, slice) else e for e in entries)
        gx = g if accumulate else g.index_put(none, torch.zeros((), dtype=g.dtype, device=g.device))
    if needs[1]:
        gv = g[entries].sum_to_size(tuple(shapes[1]))
    return [gx, gv]


def masked_scatter_source(g: Any, mask: Any, source_shape: Any) -> Any:
    picked = g.masked_select(mask)
    return torch.nn.functional.pad(picked, (0, torch.Size(source_shape).numel() - picked.numel())).reshape(source_shape)


def masked_select_back(g: Any, mask: Any, x_shape: Any) -> Any:
    shape = tuple(x_shape)
    wide = shape if mask.shape == shape else broadcast_shape([shape, mask.shape])
    zeros = g.new_zeros(wide)
    placed = zeros.masked_scatter(mask, g) if torch.is_grad_enabled() else zeros.masked_scatter_(mask, g)
    return placed if wide == shape else placed.sum_to_size(shape)


# ----- x[...] -----
define("slice", "x, index=()", VIEW | PURE, forward=torch.Tensor.__getitem__, bind=bind_slice, x=sliced)
spell("torch.ops.aten.slice", "slice", bind_aten_slice)
define("index", "*tensors, index=()", VARIADIC | PURE, bind=bind_index,
       forward=lambda x, *tensors, index: x[fill(index, tensors)], joint=index_back)
choose("T.__getitem__", pick_index)
define("place_add", "*tensors, shape=(), index=()", VARIADIC | PURE, forward=place_add,
       bind=lambda *tensors, shape, index: (tensors, {"shape": shape, "index": index}),
       joint=lambda h, others, *, index: [h[fill(index, others[1:])]])
# ----- by an index tensor along one axis -----
define("gather", "x, index, *, dim=0", PURE, "torch.gather T.gather",
       bind=bind_gather, forward=lambda x, index, *, dim: torch.gather(x, dim, index), keeps="x",
       x=gather_back)
define("take_along_dim", "x, index, dim=None", PURE, "torch.take_along_dim T.take_along_dim",
       bind=lambda x, indices, dim=None: ((x, indices), {"dim": dim}), keeps="x", x=take_along_back)
define("take", "x, index", PURE, "torch.take T.take", keeps="x", x=take_back)
define("index_select", "x, index, *, dim=0", PURE, "torch.index_select T.index_select",
       bind=lambda x, dim, index: ((x, index), {"dim": dim}),
       forward=lambda x, index, *, dim: torch.index_select(x, dim, index), x=index_select_back)
define("index_add", "x, index, source, *, dim=0, alpha=1", PURE | REDUCES, "torch.index_add T.index_add",
       inplace="T.index_add_",
       bind=lambda x, dim, index, source, *, alpha=1: ((x, index, source), {"dim": dim, "alpha": alpha}),
       forward=lambda x, index, source, *, dim, alpha: torch.index_add(x, dim, index, source, alpha=alpha),
       x=lambda g: g, source=index_add_source)
define("index_copy", "x, index, source, *, dim=0", PURE | REDUCES, "torch.index_copy T.index_copy",
       inplace="T.index_copy_",
       bind=lambda x, dim, index, source: ((x, index, source), {"dim": dim}),
       forward=lambda x, index, source, *, dim: torch.index_copy(x, dim, index, source),
       x=lambda g, index, *, dim: g.index_fill(dim, index, 0), source=index_copy_source)
define("index_fill", "x, index, value, *, dim=0", PURE | REDUCES, "torch.index_fill T.index_fill",
       inplace="T.index_fill_",
       bind=lambda x, dim, index, value: ((x, index, value), {"dim": dim}),
       forward=lambda x, index, value, *, dim: torch.index_fill(x, dim, index, value),
       x=lambda g, index, *, dim: g.index_fill(dim, index, 0),
       value=lambda g, index, *, dim: torch.where(
           torch.zeros(g.shape, dtype=torch.bool, device=g.device).index_fill(dim, index, True), g,
           0.0).sum() if g.ndim else g)
define("scatter", "x, index, src, *, dim=0", PURE, "torch.scatter T.scatter", inplace="T.scatter_", bind=bind_scatter,
       forward=lambda x, index, src, *, dim: torch.scatter(x, dim, index, src),
       x=scatter_x, src=lambda g, index, src_shape, *, dim: scatter_src(g, index, src_shape, dim))
define("scatter_add", "x, index, src, *, dim=0", PURE, "torch.scatter_add T.scatter_add", inplace="T.scatter_add_",
       bind=lambda x, dim, index, src: ((x, index, src), {"dim": dim}),
       forward=lambda x, index, src, *, dim: torch.scatter_add(x, dim, index, src),
       x=lambda g: g, src=lambda g, index, src_shape, *, dim: scatter_src(g, index, src_shape, dim))
define("repeat_interleave", "x, *, repeats=1, dim=None", PURE, bind=bind_repeat_interleave,
       x=repeat_interleave_back, forward=lambda x, *, repeats, dim: torch.repeat_interleave(x, repeats, dim))
define("repeat_interleave_counts", "x, counts, *, dim=None", PURE, bind=bind_repeat_interleave_counts,
       kernel=repeat_interleave_counts_kernel, x=repeat_interleave_counts_back,
       forward=lambda x, counts, *, dim: torch.repeat_interleave(x, counts, dim))
choose("torch.repeat_interleave T.repeat_interleave", pick_repeat_interleave)


def scatter_src(g: Any, index: Any, src_shape: Any, dim: int) -> Any:
    """What was read of `src`: the corner of the shape of `index`."""
    picked = g.gather(dim, index)
    if not src_shape:
        return picked.sum()                  # of one element, or none
    if tuple(picked.shape) == tuple(src_shape):
        return picked
    return place(picked, src_shape, tuple(slice(0, n) for n in picked.shape))


# ----- writing into a copy -----
define("index_put", "*tensors, index=(), accumulate=False", VARIADIC | PURE, "torch.index_put T.index_put",
       inplace="T.index_put_ torch.index_put_", bind=bind_index_put, joint=index_put_back,
       forward=lambda x, values, *tensors, index, accumulate: torch.index_put(
           x, tuple(None if isinstance(e, slice) else e for e in fill(index, tensors)), values, accumulate))
define("put", "x, index, source, accumulate=False", PURE, "torch.put T.put", inplace="T.put_",
       x=lambda g, index, source_dtype, *, accumulate: g if accumulate else g.put(
           index, torch.zeros(index.shape, dtype=g.dtype, device=g.device)),
       source=lambda g, index, source_shape: g.take(index).reshape(source_shape))
define("masked_scatter", "x, mask, source", PURE | REDUCES, "torch.masked_scatter T.masked_scatter",
       inplace="T.masked_scatter_",
       x=lambda g, mask: g.masked_fill(mask, 0), source=masked_scatter_source)
define("masked_select", "x, mask", PURE, "torch.masked_select T.masked_select", keeps="x",
       x=masked_select_back)
define("select_scatter", "x, source, dim=0, index=0", PURE, "torch.select_scatter T.select_scatter",
       x=lambda g, source_shape, *, dim, index: g.select_scatter(g.new_zeros(source_shape), dim, index),
       source=lambda g, *, dim, index: g.select(dim, index))
define("slice_scatter", "x, source, dim=0, start=None, end=None, step=1", PURE, "torch.slice_scatter T.slice_scatter",
       x=lambda g, source_shape, *, dim, start, end, step:
           g.slice_scatter(g.new_zeros(source_shape), dim, start, end, step),
       source=lambda g, *, dim, start, end, step: g[at_axis(dim, g.ndim, slice(start, end, step))])
define("diagonal_scatter", "x, source, offset=0, dim1=0, dim2=1", PURE, "torch.diagonal_scatter T.diagonal_scatter",
       x=lambda g, source_shape, *, offset, dim1, dim2:
           g.diagonal_scatter(g.new_zeros(source_shape), offset, dim1, dim2),
       source=lambda g, *, offset, dim1, dim2: g.diagonal(offset, dim1, dim2))
