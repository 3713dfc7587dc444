"""Rules: complex numbers.  The gradient is torch's: the conjugate Wirtinger derivative."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.ops.helpers import H, nothing, view_of
from autograd_opt.ops.table import ELEMENTWISE, PURE, VIEW, define

E = ELEMENTWISE | PURE


def sgn_x(g: Any, x: Any, ans: Any) -> Any:
    if not x.is_complex():
        return nothing(g)
    size = x.abs()
    return ((g - (g * H(ans)).real * ans) / size).masked_fill(size == 0, 0)


def angle_x(g: Any, x: Any) -> Any:
    if not x.is_complex():
        return torch.zeros_like(g)
    return torch.where(x == 0, 0.0, 1j * (g * x / (x.abs() ** 2)))


def polar_abs(g: Any, ans: Any) -> Any:
    return (H(g) * ans.sgn()).real


def polar_angle(g: Any, ans: Any) -> Any:
    return (H(g) * ans * 1j).real


def real_x(g: Any, x_dtype: Any) -> Any:
    return view_of(g.to(x_dtype)) if isinstance(g, torch.Tensor) else g


define("conj", "x", E | VIEW, "torch.conj T.conj", x=lambda g: H(g))
define("conj_physical", "x", E, "torch.conj_physical T.conj_physical",
       x=lambda g: g.conj_physical() if g.is_complex() else g)
define("resolve_conj", "x", E | VIEW, "torch.resolve_conj T.resolve_conj", x=lambda g: g)
define("resolve_neg", "x", E | VIEW, "torch.resolve_neg T.resolve_neg", x=lambda g: g)
define("real", "x", E | VIEW, "torch.real T.real.__get__", x=real_x)
define("imag", "x", E | VIEW, "torch.imag T.imag.__get__", x=lambda g: view_of(torch.complex(torch.zeros_like(g), g)))
define("view_as_real", "x", VIEW | PURE, "torch.view_as_real", x=lambda g: torch.view_as_complex(g.contiguous()))
define("view_as_complex", "x", VIEW | PURE, "torch.view_as_complex",
       x=lambda g: torch.view_as_real(g.contiguous().resolve_conj()))
define("complex", "x, y", E, "torch.complex", x=lambda g, x: g.real, y=lambda g, y: g.imag)
define("polar", "x, y", E, "torch.polar", x=polar_abs, y=polar_angle)
define("sgn", "x", E, "torch.sgn T.sgn", x=sgn_x)
define("angle", "x", E, "torch.angle T.angle", x=angle_x)
