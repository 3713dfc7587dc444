"""Rules: what `F.interpolate` calls.  All of it is linear: the derivative of a derivative is the function itself."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from torch import Tensor

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.table import PURE, define

A = private.aten
ROUNDING = {f"{kind}{n}d": n for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)}
SMOOTH = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_bicubic2d": 2, "upsample_trilinear3d": 3,
          "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2}
"""Functions that take `align_corners`, by their number of axes; those above do not."""
NAMES = ("align_corners", "scale_factors", "scales", "scales_d", "scales_h", "scales_w")
"""What may follow the size by its name, in the order of places."""


def bind_of(n: int, smooth: bool) -> Callable[..., Any]:
    """Both spellings: a size or factors, and a size with a factor for each axis."""
    def bind(x: Any, output_size: Any, *more: Any, **named: Any) -> Any:
        more = (*more, *[named.pop(name) for name in NAMES if name in named])
        aligned, given = (more[:1], more[1:]) if smooth else ((), more)
        scales = given[0] if len(given) == 1 and (given[0] is None or isinstance(given[0], (list, tuple))) else given
        scales = tuple(scales) if scales else (None,) * n
        if any(isinstance(scale, Tensor) for scale in scales):
            raise TypeError("torch says whether these are numbers")
        if output_size is None:
            output_size = [int(size * scale) for size, scale in zip(x.shape[2:], scales, strict=True)]
        if named or len(scales) != n or len(output_size) != n or (smooth and not aligned):
            raise TypeError("torch says what is wrong")
        return (x,), {"output_size": tuple(map(index, output_size)), "more": (*aligned, *scales)}
    return bind


def rules(name: str, n: int, smooth: bool) -> None:
    """Define the function and its derivative; `more` is `align_corners`, where there is one, and the factors.

    The kernel is given a size in any case: what takes factors, torch computes otherwise under a dispatch mode.
    """
    function, backward = getattr(private.nn, name), getattr(A, f"{name}_backward")
    define(name, "x, output_size=(), more=()", PURE, f"torch._C._nn.{name}", bind=bind_of(n, smooth),
           kernel=lambda x, *, output_size, more: (function(x, output_size, *more), None),
           forward=lambda x, *, output_size, more: function(x, output_size, *more),
           x=lambda g, x_shape, *, output_size, more: backward(g, output_size, tuple(x_shape), *more))
    define(f"{name}_backward", "g, output_size=(), input_size=(), more=()", PURE, f"torch.ops.aten.{name}_backward",
           bind=lambda g, output_size, input_size, *more: (
               (g,), {"output_size": output_size, "input_size": input_size, "more": more}),
           forward=lambda g, *, output_size, input_size, more: backward(g, output_size, input_size, *more),
           g=lambda h, *, output_size, more: function(h, output_size, *more))


for _name, _n in {**ROUNDING, **SMOOTH}.items():
    rules(_name, _n, _name in SMOOTH)
