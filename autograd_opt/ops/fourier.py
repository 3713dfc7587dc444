"""Rules: Fourier transforms.  The adjoint of a transform is the inverse one with the scaling swapped."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.ops.helpers import H
from autograd_opt.ops.table import PURE, REDUCES, decompose, define

R = PURE | REDUCES
SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
fft = torch.fft


def resize(g: Any, shape: Any, dims: Any) -> Any:
    """Trim or pad with zeros at the end of `dims`, the adjoint of what a transform does with `s`."""
    if g.shape == shape:
        return g
    pads = [0] * (2 * len(shape))
    for d in dims:
        pads[2 * (len(shape) - 1 - d % len(shape)) + 1] = shape[d] - g.shape[d]
    return torch.nn.functional.pad(g, pads) if any(pads) else g


def dims_of(x_shape: Any, s: Any, dim: Any) -> tuple[int, ...]:
    n = len(x_shape)
    if dim is None:
        return tuple(range(n)) if s is None else tuple(range(n - len(s), n))
    return tuple(d % n for d in dim)


def c2c(inverse: Any) -> Any:
    """Rule of fftn and ifftn by the `inverse` one."""
    def rule(g: Any, x_shape: Any, x_dtype: Any, *, s: Any, dim: Any, norm: Any) -> Any:
        dims = dims_of(x_shape, s, dim)
        g = resize(inverse(g, dim=dims, norm=SWAPPED[norm]), x_shape, dims)
        return g if x_dtype.is_complex else g.real
    return rule


def rfftn_back(g: Any, x_shape: Any, *, s: Any, dim: Any, norm: Any) -> Any:
    dims = dims_of(x_shape, s, dim)
    last = x_shape[dims[-1]] if s is None or s[-1] == -1 else s[-1]
    full = resize(g, [last if d == dims[-1] else k for d, k in enumerate(g.shape)], dims[-1:])
    return resize(fft.ifftn(full, dim=dims, norm=SWAPPED[norm]).real, x_shape, dims)


def irfftn_back(g: Any, x_shape: Any, x_dtype: Any, *, s: Any, dim: Any, norm: Any) -> Any:
    dims = dims_of(x_shape, s, dim)
    d = dims[-1]
    half = fft.rfftn(g, dim=dims, norm=SWAPPED[norm])
    twice = g.shape[d] - half.shape[d]
    first, middle, rest = torch.split_with_sizes(half, [1, twice, half.shape[d] - 1 - twice], d)
    g = resize(torch.cat([first, middle * 2, rest], d), x_shape, dims)
    return g if x_dtype.is_complex else g.real


def bind_one(x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return (x,), {"s": None if n is None else (n,), "dim": (dim,), "norm": norm}


def bind_two(x: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None) -> Any:
    return (x,), {"s": None if s is None else tuple(s), "dim": tuple(dim), "norm": norm}


def bind_many(x: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
    return (x,), {"s": None if s is None else tuple(s), "dim": dim if dim is None else tuple(dim), "norm": norm}


for _suffix, _bind in (("", bind_one), ("2", bind_two), ("n", bind_many)):
    for _name, _rule in (("fft", c2c(fft.ifftn)), ("ifft", c2c(fft.fftn)), ("rfft", rfftn_back),
        ("irfft", irfftn_back)):
        define(f"{_name}{_suffix or '1'}", "x, *, s=None, dim=None, norm=None", R, f"torch.fft.{_name}{_suffix}",
               bind=_bind,
               forward=getattr(fft, f"{_name}n"), x=_rule)


@decompose("torch.fft.hfft")
def hfft(input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return fft.irfft(H(input), n, dim, SWAPPED[norm])


@decompose("torch.fft.ihfft")
def ihfft(input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return fft.rfft(input, n, dim, SWAPPED[norm]).conj()


def axes_of(input: Any, s: Any, dim: Any) -> tuple[Any, Any, int, Any]:
    """Sizes and axes before the last one of a transform, then the last one's axis and size."""
    sizes = None if s is None else (s,) if isinstance(s, int) else tuple(s)
    if dim is None:
        dim = tuple(range(input.ndim))[0 if sizes is None else -len(sizes):]
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    if not axes or (sizes is not None and len(sizes) != len(axes)):
        raise IndexError("as many sizes as axes")
    if sizes is None:
        return None, axes[:-1], axes[-1], None
    return sizes[:-1], axes[:-1], axes[-1], None if sizes[-1] == -1 else sizes[-1]       # -1: as long as it is


@decompose("torch.fft.hfft2")
def hfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None) -> Any:
    return hfftn(input, s, dim, norm)


@decompose("torch.fft.ihfft2")
def ihfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None) -> Any:
    return ihfftn(input, s, dim, norm)


@decompose("torch.fft.hfftn")
def hfftn(input: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
    sizes, axes, last, n = axes_of(input, s, dim)
    return hfft(fft.fftn(input, sizes, axes, norm) if axes else input, n, last, norm)


@decompose("torch.fft.ihfftn")
def ihfftn(input: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
    sizes, axes, last, n = axes_of(input, s, dim)
    half = ihfft(input, n, last, norm)
    return fft.ifftn(half, sizes, axes, norm) if axes else half


@decompose("torch.fft.fftshift")
def fftshift(input: Any, dim: Any = None) -> Any:
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return input.roll([input.shape[d] // 2 for d in dims], tuple(dims))


@decompose("torch.fft.ifftshift")
def ifftshift(input: Any, dim: Any = None) -> Any:
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return input.roll([(input.shape[d] + 1) // 2 for d in dims], tuple(dims))
