"""Rules: views, rearrangements, joining and splitting."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.binding import Plan
from autograd_opt.ops.helpers import H, filled, parts_of, plain, primitive, view_of, zero
from autograd_opt.ops.table import BINDERS, ELEMENTWISE, MULTI, PURE, REDUCES, VARIADIC, VIEW, define

V = VIEW | PURE
FULL = slice(None)


@primitive
def place(g: Any, shape: Any, index: Any) -> Any:
    """Zeros of `shape` with `g` at a basic `index`: what the rule of a slice needs."""
    out = g.new_zeros(tuple(shape))
    out[index] = g
    return out


def at_axis(dim: int, n: int, entry: Any) -> tuple[Any, ...]:
    """A basic index that is `entry` on axis `dim` of `n` and everything on the others."""
    return (slice(None),) * (dim % n) + (entry,)


def reshaped(g: Any, x_shape: Any) -> Any:
    return g.reshape(x_shape)


def unsqueezed(g: Any, x_shape: Any) -> Any:
    """What a `squeeze` has taken away is back; where that is nothing, the gradient itself, as in torch."""
    return g if g.ndim == len(x_shape) else g.reshape(x_shape)


def expanded(g: Any, x_shape: Any, ans_shape: Any) -> Any:
    """The executor sums over stretched axes; torch sums over none, too, where the operand has no axes."""
    return g if len(x_shape) or len(ans_shape) else g.sum()


def permuted(g: Any, *, dims: Any) -> Any:
    n = len(dims)
    back = [0] * n
    for i, d in enumerate(dims):
        back[d % n] = i
    return g.permute(back)


def moved(g: Any, *, source: Any, destination: Any) -> Any:
    return g.movedim(destination, source) if g.ndim else g


def narrowed(g: Any, x_shape: Any, *, dim: int, start: Any, length: int) -> Any:
    start = int(start) % x_shape[dim] if x_shape[dim] and int(start) < 0 else int(start)
    return private.aten.slice_backward(g, x_shape, dim, start, start + length, 1)


def selected(g: Any, x_shape: Any, *, dim: int, index: Any) -> Any:
    return private.aten.select_backward(g, x_shape, dim, int(index))


def takes_all(entry: Any, length: Any) -> bool:
    """Is this a slice that torch leaves out of an index of several entries?"""
    return type(entry) is slice and (entry == FULL or (
        entry.start in (None, 0) and entry.step in (None, 1) and (entry.stop is None or entry.stop >= length)))


def sliced(g: Any, x_shape: Any, *, index: Any) -> Any:
    """Of an index with one entry that takes a part, torch's own kernel; of others the general form.

    A slice that stands alone is one, even if it takes everything; beside other entries torch passes over it.
    """
    parts: list[tuple[int, Any]] = []
    axis, alone, new_first = 0, len(index) == 1 and type(index[0]) is slice, False
    for k, entry in enumerate(index):
        if entry is Ellipsis:
            axis = len(x_shape) - sum(e is not None for e in index[k + 1:])
        elif entry is None:
            new_first = new_first or not parts
        else:
            if alone or not takes_all(entry, x_shape[axis]):
                parts.append((axis, entry))
            axis += 1
    if not parts:
        return g if None not in index else g.reshape(tuple(x_shape))        # only axes of length 1 are new: a view
    if None in index:
        whole = place(g, x_shape, index)
        return view_of(whole) if new_first else whole       # torch inserts that axis first, and removes it last
    dim, entry = parts[0]
    if len(parts) > 1:
        return place(g, x_shape, index)
    if type(entry) is int:
        return private.aten.select_backward(g, x_shape, dim, entry)
    bounds = (entry.start, entry.stop, entry.step) if type(entry) is slice else (entry,)
    if any(type(e) is not int and e is not None for e in bounds):
        return place(g, x_shape, index)
    return private.aten.slice_backward(g, x_shape, dim, *entry.indices(x_shape[dim]))


def repeated(g: Any, x_shape: Any, *, repeats: Any) -> Any:
    return fold_repeats(g, x_shape, tuple(repeats))


def fold_repeats(g: Any, x_shape: Any, repeats: tuple[int, ...]) -> Any:
    """Sum the copies that `repeat` made, one new axis at a time, then the others together."""
    repeats = (1,) * (len(x_shape) - len(repeats)) + tuple(int(r) for r in repeats)
    if 0 in repeats:
        return torch.zeros(x_shape, dtype=g.dtype, device=g.device)
    new = len(repeats) - len(x_shape)
    for _ in range(new):
        g = g.sum(0)
    pairs: list[Any] = []
    over = []
    for times, length in zip(repeats[new:], x_shape, strict=True):
        if times != 1:
            over.append(len(pairs))
            pairs.append(times)
        pairs.append(length)
    return g.reshape(pairs).sum(tuple(over)) if over else g


def joined(g: Any, needs: Any, shapes: Any, ans_shape: Any, *, dim: int) -> list[Any]:
    """One slice of the cotangent for each tensor of a `cat`; its legacy empty tensors get zeros."""
    n, start = len(ans_shape), 0
    out: list[Any] = []
    for shape, wanted in zip(shapes, needs, strict=True):
        if len(shape) != n:
            out.append(g.new_zeros(shape) if wanted else None)
            continue
        length = shape[dim]
        out.append(g.narrow(dim, start, length) if wanted else None)
        start += length
    return out


def split_again(g: Any, x_shape: Any, ans_shape: Any, *, dim: int) -> Any:
    return torch.cat(parts_of(g, ans_shape), dim)


def diagonal_back(g: Any, x_shape: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    return private.aten.diagonal_backward(g, tuple(x_shape), offset, dim1, dim2)


def rolled(g: Any, *, shifts: Any, dims: Any) -> Any:
    back = [-s for s in shifts] if isinstance(shifts, (tuple, list)) else -shifts
    return plain(g.roll(back, dims))


def unstacked(g: Any, needs: Any, *, dim: int) -> list[Any]:
    """One at a time, as torch does: a view that may be written, unlike one of all that `unbind` returns."""
    return [g.select(dim, i) if wanted else None for i, wanted in enumerate(needs)]


def bind_list(tensors: Any, dim: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(tensors), {"dim": dim}


bind_list.__dict__["plan"] = Plan([("tensors", -1, inspect.Parameter.empty), ("dim", "dim", 0)], 2)


def bind_pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if mode != "constant":
        raise TypeError("only constant padding has a rule")
    return (x,), {"pad": tuple(pad), "mode": mode, "value": value}


def bind_view(x: Any, *shape: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if shape and isinstance(shape[0], torch.dtype):
        raise TypeError("a view of the bits has no gradient")
    return (x,), {"shape": tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape}


def bind_flip(x: Any, *dims: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"dims": tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims}


# ----- views with another shape -----
def shape_of_other(x: Any, other: Any) -> Any:
    """Of the other tensor only the shape counts: it takes no part in differentiation."""
    return (x,), {"shape": tuple(other.shape)}


define("place", "g, shape=(), index=()", PURE, forward=place,
       bind=lambda g, shape, index: ((g,), {"shape": tuple(shape), "index": index}), g=lambda h, *, index: h[index])
for _name, _attributes, _calls in (
    ("reshape", "*shape", "torch.reshape T.reshape"),
    ("flatten", "start_dim=0, end_dim=-1", "torch.flatten T.flatten"), ("ravel", "", "torch.ravel T.ravel"),
    ("unsqueeze", "dim=0", "torch.unsqueeze T.unsqueeze"),
    ("unflatten", "dim=0, sizes=()", "torch.unflatten T.unflatten"),
    ("unsafe_view", "size=()", "torch._unsafe_view torch.ops.aten._unsafe_view"),
    ("reshape_alias", "size=()", "torch.ops.aten.view"),
):
    define(_name, f"x, {_attributes}", V, _calls, x=reshaped)
define("squeeze", "x, *dim", V, "torch.squeeze T.squeeze", x=unsqueezed)
define("view", "x, *shape", V, "T.view", bind=bind_view, x=reshaped)
bind_view.__dict__["plan"] = BINDERS["reshape"].__dict__["plan"]     # numbers by position mean the same
define("view_as", "x, shape=()", V, "T.view_as", bind=shape_of_other, forward=torch.Tensor.view, x=reshaped)
define("alias", "x", V, "torch.ops.aten.alias", x=lambda g: g)
define("reshape_as", "x, shape=()", V, "T.reshape_as", bind=shape_of_other, forward=torch.reshape, x=reshaped)
define("permute", "x, *dims", V, "torch.permute T.permute", x=permuted)
define("transpose", "x, dim0=0, dim1=0", V,
       "torch.transpose torch.swapaxes torch.swapdims T.transpose T.swapaxes T.swapdims",
       x=lambda g, *, dim0, dim1: g.transpose(dim0, dim1))
define("t", "x", V, "torch.t T.t", x=lambda g: g.t())
define("T", "x", V, "T.T.__get__", x=lambda g: g.permute(tuple(range(g.ndim - 1, -1, -1))))
define("mT", "x", V, "T.mT.__get__", x=lambda g: g.mT)
define("H", "x", V, "T.H.__get__", x=lambda g: H(g).mT if g.ndim else H(g))
define("mH", "x", V, "T.mH.__get__ torch.adjoint T.adjoint", x=lambda g: H(g).mT)
define("movedim", "x, source=0, destination=0", V, "torch.movedim torch.moveaxis T.movedim T.moveaxis", x=moved)
define("expand", "x, *size", V | REDUCES, "T.expand", x=expanded)
define("broadcast_to", "x, *size", V | REDUCES, "torch.broadcast_to T.broadcast_to", x=expanded)
define("expand_as", "x, shape=()", V | REDUCES, "T.expand_as", bind=shape_of_other,
       forward=lambda x, shape: x.expand(shape), x=expanded)
define("narrow", "x, dim=0, start=0, length=0", V, "torch.narrow T.narrow", x=narrowed)
define("select", "x, dim=0, index=0", V, "torch.select T.select", x=selected)
define("diagonal", "x, offset=0, dim1=0, dim2=1", V, "torch.diagonal T.diagonal", x=diagonal_back)
define("linalg_diagonal", "x, *, offset=0, dim1=-2, dim2=-1", V, "torch.linalg.diagonal", x=diagonal_back)
define("diagonal_backward", "g, shape=(), offset=0, dim1=0, dim2=1", PURE, "torch.ops.aten.diagonal_backward",
       g=lambda h, *, offset, dim1, dim2: h.diagonal(offset, dim1, dim2))
define("select_backward", "g, shape=(), dim=0, index=0", PURE, "torch.ops.aten.select_backward",
       meaning=lambda g, *, shape, dim, index: place(g, shape, at_axis(dim, len(shape), index)),
       g=lambda h, *, dim, index: h.select(dim, index))
define("slice_backward", "g, shape=(), dim=0, start=0, end=0, step=1", PURE, "torch.ops.aten.slice_backward",
       meaning=lambda g, *, shape, dim, start, end, step:
           place(g, shape, at_axis(dim, len(shape), slice(start, end, step))),
       g=lambda h, *, dim, start, end, step: h[at_axis(dim, h.ndim, slice(start, end, step))])
define("unfold", "x, dimension=0, size=1, step=1", V, "T.unfold", x=lambda g, x_shape, *, dimension, size, step:
       private.aten.unfold_backward(g, tuple(x_shape), dimension, size, step))
define("unfold_backward", "g, shape=(), dim=0, size=1, step=1", PURE, "torch.ops.aten.unfold_backward",
       g=lambda h, *, dim, size, step: h.unfold(dim, size, step))
for _name, _signature, _rule in (
    ("view_copy", "x, size=()", reshaped), ("unsqueeze_copy", "x, dim=0", reshaped),
    ("squeeze_copy", "x, *dim", unsqueezed),
    ("permute_copy", "x, dims=()", permuted), ("narrow_copy T.narrow_copy", "x, dim=0, start=0, length=0", narrowed),
    ("transpose_copy", "x, dim0=0, dim1=0", lambda g, *, dim0, dim1: g.transpose(dim0, dim1)),
    ("t_copy", "x", lambda g: g.t()), ("expand_copy", "x, size=()", expanded), ("alias_copy", "x", lambda g: g),
    ("diagonal_copy", "x, offset=0, dim1=0, dim2=1", diagonal_back), ("select_copy", "x, dim=0, index=0", selected),
    ("unfold_copy", "x, dimension=0, size=1, step=1", lambda g, x_shape, *, dimension, size, step:
        private.aten.unfold_backward(g, tuple(x_shape), dimension, size, step)),
):
    define(_name.split()[0], _signature, PURE | REDUCES, f"torch.{_name}", x=_rule)
# ----- copies in another order -----
define("diag_embed", "x, offset=0, dim1=-2, dim2=-1", PURE, "torch.diag_embed T.diag_embed",
       x=lambda g, *, offset, dim1, dim2: g.diagonal(offset, dim1, dim2))
define("tril", "x, diagonal=0", PURE, "torch.tril T.tril", inplace="T.tril_", x=lambda g, *, diagonal: g.tril(diagonal))
define("triu", "x, diagonal=0", PURE, "torch.triu T.triu", inplace="T.triu_", x=lambda g, *, diagonal: g.triu(diagonal))
define("trace", "x", PURE, "torch.trace T.trace",
       x=lambda g, x_shape: view_of(filled(g) * torch.eye(*x_shape, dtype=g.dtype, device=g.device)))
define("flip", "x, *, dims=()", PURE, "torch.flip T.flip", bind=bind_flip, x=lambda g, *, dims: g.flip(dims))
define("fliplr", "x", PURE, "torch.fliplr T.fliplr", x=lambda g: g.fliplr())
define("flipud", "x", PURE, "torch.flipud T.flipud", x=lambda g: g.flipud())
define("rot90", "x, k=1, dims=None", PURE, "torch.rot90 T.rot90",
       bind=lambda x, k=1, dims=(0, 1): ((x,), {"k": k, "dims": tuple(dims)}),
       x=lambda g, *, k, dims: g.rot90(-k, dims))
define("roll", "x, shifts=0, dims=()", PURE, "torch.roll T.roll", x=rolled)
define("repeat", "x, *repeats", PURE, "T.repeat", x=repeated)
define("tile", "x, *dims", PURE, "torch.tile T.tile",
       x=lambda g, x_shape, *, dims: fold_repeats(g, x_shape, tuple(dims)))
define("pad", "x, pad=(), mode='constant', value=None", PURE, "F.pad torch._C._nn.pad", bind=bind_pad,
       x=lambda g, *, pad: torch.nn.functional.pad(g, [-p for p in pad]))
def edge_padding(backward: Any) -> Any:
    return lambda g, x, *, padding: backward(g, x, padding)


def edge_padding_back(forward: Any) -> Any:
    return lambda h, *, padding: forward(h, padding)


for _name in (f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)):
    define(_name, "x, padding=()", PURE, f"torch._C._nn.{_name}",
           x=edge_padding(getattr(private.aten, f"{_name}_backward")))
    define(f"{_name}_backward", "g, x, padding=()", PURE, f"torch.ops.aten.{_name}_backward",
           g=edge_padding_back(getattr(private.nn, _name)), x=zero)
define("constant_pad_nd", "x, pad=(), value=0", PURE, "torch.constant_pad_nd",
       x=lambda g, *, pad: torch.nn.functional.pad(g, [-p for p in pad]))
define("pixel_shuffle", "x, upscale_factor=1", PURE, "torch.pixel_shuffle F.pixel_shuffle",
       x=lambda g, *, upscale_factor: torch.pixel_unshuffle(g, upscale_factor))
define("pixel_unshuffle", "x, downscale_factor=1", PURE, "torch.pixel_unshuffle F.pixel_unshuffle",
       x=lambda g, *, downscale_factor: torch.pixel_shuffle(g, downscale_factor))
define("channel_shuffle", "x, groups=1", PURE, "torch.channel_shuffle torch.native_channel_shuffle F.channel_shuffle",
       x=lambda g, *, groups: torch.channel_shuffle(g, g.shape[1] // groups))
# ----- joining and splitting -----
define("cat", "*tensors, dim=0", VARIADIC | PURE | REDUCES, "torch.cat torch.concat torch.concatenate",
       bind=bind_list, forward=lambda *tensors, dim: torch.cat(tensors, dim), joint=joined)
define("stack", "*tensors, dim=0", VARIADIC | PURE | REDUCES, "torch.stack", bind=bind_list,
       forward=lambda *tensors, dim: torch.stack(tensors, dim), joint=unstacked)
define("split", "x, split_size=1, dim=0", V | MULTI, "torch._VF.split", x=split_again)
define("split_with_sizes", "x, split_sizes=(), dim=0", V | MULTI, "torch._VF.split_with_sizes T.split_with_sizes",
       x=split_again)
define("chunk", "x, chunks=1, dim=0", V | MULTI, "torch.chunk T.chunk", x=split_again)
define("tensor_split", "x, indices_or_sections=1, dim=0", V | MULTI, "torch.tensor_split T.tensor_split", x=split_again)
for _name, _attributes in (
    ("hsplit", "indices=1"), ("vsplit", "indices=1"), ("dsplit", "indices=1"),
):
    define(_name, f"x, {_attributes}", V | MULTI, f"torch.{_name} T.{_name}",
           x=lambda g, x_shape, ans_shape, node: torch.cat(
               parts_of(g, ans_shape), {"vsplit": 0, "dsplit": 2}.get(node.op.name, min(1, len(x_shape) - 1))))
define("unsafe_split", "x, split_size=1, dim=0", PURE | MULTI, "torch.unsafe_split T.unsafe_split", x=split_again)
define("unsafe_chunk", "x, chunks=1, dim=0", PURE | MULTI, "torch.unsafe_chunk T.unsafe_chunk", x=split_again)
define("unsafe_split_with_sizes", "x, split_sizes=(), dim=0", PURE | MULTI,
       "torch.unsafe_split_with_sizes T.unsafe_split_with_sizes", x=split_again)
define("split_with_sizes_copy", "x, split_sizes=(), dim=0", PURE | MULTI, "torch.split_with_sizes_copy", x=split_again)
define("unbind_copy", "x, dim=0", PURE | MULTI, "torch.unbind_copy",
       x=lambda g, ans_shape, *, dim: plain(torch.stack(parts_of(g, ans_shape), dim)))
define("unbind", "x, dim=0", V | MULTI, "torch.unbind T.unbind",
       x=lambda g, ans_shape, *, dim: plain(torch.stack(parts_of(g, ans_shape), dim)))
_ = ELEMENTWISE
