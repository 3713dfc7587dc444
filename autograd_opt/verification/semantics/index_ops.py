# ruff: noqa: E501 (a formula is one line)
"""Words that meanings are written in: elements moved, added up where they land, windows of convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from autograd_opt.verification.semantics.domain import Array, Domain, Outside
from autograd_opt.verification.semantics.numeric_ops import Meaning, axes_of, packed

MOVEMENTS: set[Meaning] = set()
"""Meanings made by `movement`: linear in their elements at all sizes."""


def place(D: Domain, g: Array, shape: Any = (), index: Any = ()) -> Array:
    out = D.array(0, shape)
    out[index] = g if np.ndim(g) else np.asarray(g).item()
    return out


def accumulate(D: Domain, shape: Any, index: Any, g: Array) -> Array:
    """Zeros with `g` added at positions that may repeat."""
    size = math.prod(shape)
    where = np.arange(size).reshape(shape)[index]
    out = D.array(0, (size,))
    for k, v in zip(where.reshape(-1), np.broadcast_to(g, where.shape).reshape(-1), strict=True):
        out[k] = D.add(out[k:k + 1], np.asarray([v], dtype=out.dtype))[0]
    return out.reshape(shape)


def cells(size: Any = (), stride: Any = (), offset: int = 0, base_size: Any = (), base_stride: Any = (), *,
          dtype: Any = None, base_dtype: Any = None, conj: bool = False, neg: bool = False) -> Any:
    """Which elements of a base, in row-major order, a view with this geometry shows.

    Raises
    ------
    Outside : the view reads the memory as another dtype, conjugated or negated.
    """
    if dtype is not base_dtype or conj or neg:
        raise Outside("a view that reads the memory of its base as another dtype, conjugated or negated")
    def places(shape: Any, steps: Any) -> Any:
        return sum((i * s for i, s in zip(np.indices(shape), steps, strict=True)), np.zeros(shape, np.int64))

    memory = places(base_size, base_stride)
    element = np.full(int(memory.max(initial=0)) + 1, -1)
    element[memory.reshape(-1)] = np.arange(memory.size)
    return element[offset + places(size, stride)]


def put(D: Domain, x: Array, value: Any, geometry: dict[str, Any]) -> Array:
    """x with what a view shows replaced."""
    out = x.copy().reshape(-1)
    out[cells(**geometry)] = value
    return out.reshape(x.shape)


def overwritten(D: Domain, x: Array, value: Any, index: Any) -> Array:
    """x with the elements at `index` replaced."""
    out, value = D.lift(x).copy(), D.lift(value)
    out[index] = value if value.ndim else value.item()
    return out


def filled(index: Any, tensors: Iterable[Any]) -> Any:
    rest = iter(tensors)
    return tuple(next(rest) if isinstance(e, str) else e for e in index)


def along(x: Array, index: Any, dim: int) -> Any:
    """The index arrays that numpy needs for torch's gather along `dim`."""
    grid = list(np.indices(index.shape))
    grid[dim % max(x.ndim, 1)] = index
    return tuple(grid)


def scattered(D: Domain, x: Any, index: Any, src: Array, dim: int = 0) -> Array:
    """x with src added along `dim` at index."""
    g = np.asarray(src)[tuple(slice(0, n) for n in index.shape)]
    shape = x if isinstance(x, tuple) else x.shape
    out = accumulate(D, shape, along(np.empty(shape), index, dim), g)
    return out if isinstance(x, tuple) else D.add(x, out)


def index_added(D: Domain, x: Any, index: Any, source: Array, dim: int = 0, alpha: Any = 1) -> Array:
    shape = x if isinstance(x, tuple) else x.shape
    out = accumulate(D, shape, (slice(None),) * (dim % max(1, len(shape))) + (index,), D.scale(alpha, source))
    return out if isinstance(x, tuple) else D.add(x, out)


def index_copied(D: Domain, x: Any, index: Any, source: Array, dim: int = 0) -> Array:
    out = D.array(0, x) if isinstance(x, tuple) else x.copy()
    out[(slice(None),) * (dim % max(1, out.ndim)) + (index,)] = source
    return out


def sum_to(D: Domain, x: Array, size: Any) -> Array:
    size = packed(size)
    lead = x.ndim - len(size)
    axes = tuple(range(lead)) + tuple(a for a in range(lead, x.ndim) if size[a - lead] == 1 and x.shape[a] != 1)
    return D.sum(x, axes, True).reshape(size) if axes else x.reshape(size)


def expanded(x: Array, size: Any) -> Array:
    size = packed(size)
    lead = len(size) - x.ndim
    return np.broadcast_to(x, tuple(x.shape[k - lead] if s == -1 else s for k, s in enumerate(size)))


def squeezed(x: Array, dim: Any) -> Array:
    dims = [d for d in axes_of(packed(dim) if isinstance(dim, tuple) else dim, x.ndim) if x.shape[d] == 1]
    return x.squeeze(tuple(dims))


def nll(D: Domain, x: Array, target: Any, weight: Array | None = None, reduction: int = 0, ignore_index: int = -100) -> Array:
    rows, classes = kept(target, ignore_index)
    picked = D.neg(x.reshape(target.size, -1)[rows, classes])
    if weight is not None:
        picked = D.mul(picked, weight[classes])
    if reduction == 0:
        return accumulate(D, (target.size,), rows, picked).reshape(target.shape)
    total = D.sum(picked, (0,))
    return total if reduction == 2 else D.div(total, nll_total(D, classes, weight))


def nll_back(D: Domain, g: Array, x: Array, target: Any, weight: Array | None = None, reduction: int = 0,
             ignore_index: int = -100) -> Array:
    """aten::nll_loss_backward: -g w at each target that counts, over their total weight where the loss is a mean."""
    rows, classes = kept(target, ignore_index)
    if reduction == 1:
        g = D.div(g, nll_total(D, classes, weight))
    g = D.neg(np.broadcast_to(g, target.shape).reshape(-1)[rows])
    if weight is not None:
        g = D.mul(g, weight[classes])
    flat = x.reshape(target.size, -1)
    return accumulate(D, flat.shape, (rows, classes), g).reshape(x.shape)


def nll_kernel_back(D: Domain, g: Array, x: Array, target: Any, *more: Array, **a: Any) -> Array:
    """The same as the kernel is called, with the total weight that the forward kernel has kept."""
    weight, total = (more[0] if "#3" not in a else None), more[-1]
    back = nll_back(D, g, x, target, weight, 2 if a["#4"] == 1 else a["#4"], a["#5"])
    return D.div(back, total) if a["#4"] == 1 else back


def nll_total(D: Domain, classes: Any, weight: Array | None) -> Array:
    """What a mean of the loss is divided by."""
    if not classes.size:
        raise Outside("a mean over no targets")
    return D.number(classes.size) if weight is None else D.sum(weight[classes], (0,))


def kept(target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Rows and classes of the targets that count."""
    flat = np.asarray(target).reshape(-1)
    rows = np.flatnonzero(flat != ignore_index)
    return rows, flat[rows].astype(np.int64)


def triangle(x: Array, k: int) -> Any:
    return np.tri(x.shape[-2], x.shape[-1], k, dtype=bool)


def integer(x: Any) -> Any:
    """A number or an integer array; numpy computes with indices itself."""
    x = np.asarray(x)
    if x.dtype != object:
        return x
    if x.ndim == 0 and int(x.item()) == x.item():
        return int(x.item())
    raise Outside("a remainder of real numbers")


def windows(x_shape: Any, w_shape: Any, stride: Any, dilation: Any) -> Any:
    """Output size, and for each kernel offset the slice of the padded input that meets it."""
    n = len(w_shape) - 2
    out = [(x_shape[2 + d] - dilation[d] * (w_shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(n)]
    return out, [(o, (slice(None), slice(None), *[slice(o[d] * dilation[d], o[d] * dilation[d] + stride[d] * out[d], stride[d])
                                                 for d in range(n)])) for o in np.ndindex(*w_shape[2:])]


def convolution(D: Domain, x: Array, w: Array, b: Array | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                groups: int = 1) -> Array:
    n = w.ndim - 2
    stride, padding, dilation = ([v] * n if isinstance(v, int) else v for v in (stride, padding, dilation))
    if groups != 1 or x.ndim != n + 2:
        raise Outside("a grouped or unbatched convolution")
    x = padded(D, x, [p for d in reversed(padding) for p in (d, d)])
    size, offsets = windows(x.shape, w.shape, stride, dilation)
    out = D.array(0, (x.shape[0], w.shape[0], math.prod(size)))
    for o, at in offsets:
        out = D.add(out, D.matmul(w[(slice(None), slice(None), *o)], x[at].reshape(*x.shape[:2], -1)))
    out = out if b is None else D.add(out, b[:, None])
    return out.reshape(*out.shape[:2], *size)


def convolution_back(D: Domain, g: Array, x: Array, w: Array, **a: Any) -> tuple[Array, Array, Array]:
    """aten::convolution_backward: the cotangents of input, weight and bias."""
    stride, padding, dilation, transposed, _, groups = (a[f"#{k}"] for k in range(4, 10))
    if transposed or groups != 1:
        raise Outside("a grouped or transposed convolution")
    wide = padded(D, x, [p for d in reversed(padding) for p in (d, d)])
    _, offsets = windows(wide.shape, w.shape, stride, dilation)
    gx, gw = D.array(0, wide.shape), D.array(0, w.shape)
    flat = g.reshape(*g.shape[:2], -1)
    for o, at in offsets:
        kernel = w[(slice(None), slice(None), *o)]
        gx[at] = D.add(gx[at], D.matmul(kernel.T, flat).reshape(gx[at].shape))
        piece = D.matmul(flat, np.swapaxes(wide[at].reshape(*wide.shape[:2], -1), -1, -2))
        gw[(slice(None), slice(None), *o)] = D.sum(piece, (0,))
    inner = tuple(slice(p, s - p) for p, s in zip(padding, wide.shape[2:], strict=True))
    return gx[(slice(None), slice(None), *inner)], gw, D.sum(flat, (0, 2))


def diagonal_back(D: Domain, g: Array, shape: Any = (), offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    out = D.array(0, shape)
    where = np.diagonal(np.arange(math.prod(shape)).reshape(shape), offset, dim1, dim2)
    out.reshape(-1)[where] = g
    return out


def movement(op: Callable[..., Any]) -> Meaning:
    """A meaning that only moves elements about: it is given no domain, so it cannot compute with them."""

    def move(D: Domain, *xs: Any, **attributes: Any) -> Any:
        return op(*xs, **attributes)

    MOVEMENTS.add(move)
    return move


def wrapped(pad: Any, n: int) -> list[tuple[int, int]]:
    pairs = [(pad[2 * k], pad[2 * k + 1]) for k in range(len(pad) // 2)]
    return [(0, 0)] * (n - len(pairs)) + pairs[::-1]


def padded(D: Domain, x: Array, pad: Any = (), mode: str = "constant", value: Any = None) -> Array:
    pairs = wrapped(pad, x.ndim)
    if mode != "constant":
        raise Outside(f"padding mode {mode}")
    crop = tuple(slice(max(0, -a), s - max(0, -b)) for (a, b), s in zip(pairs, x.shape, strict=True))
    x = x[crop]
    out = D.array(value or 0, [max(0, a) + s + max(0, b) for (a, b), s in zip(pairs, x.shape, strict=True)])
    out[tuple(slice(max(0, a), max(0, a) + s) for (a, b), s in zip(pairs, x.shape, strict=True))] = x
    return out


def embedded(D: Domain, x: Array) -> Array:
    out = D.array(0, (*x.shape, x.shape[-1]))
    n = np.arange(x.shape[-1])
    out[..., n, n] = x
    return out
