"""Rules: exponentials, logarithms, trigonometric, hyperbolic and special functions."""

from __future__ import annotations

import math
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.helpers import NUMBER, H, masked
from autograd_opt.ops.table import ELEMENTWISE, PURE, define

E = ELEMENTWISE | PURE
TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
HALF_SQRT_PI = math.sqrt(math.pi) / 2
LN2, LN10 = math.log(2), math.log(10)


def at_most(y: Any, bound: float) -> Any:
    """Tell where `y` is not above a bound: also at a number that is NaN, as torch."""
    number: Any = y if isinstance(y, NUMBER) else None
    return y <= bound if number is None else not number > bound


def xlogy_x(g: Any, x: Any, y: Any) -> Any:
    return torch.xlogy(g, y).masked_fill((x == 0.0) & at_most(y, 0.0), 0.0)


def xlog1py_x(g: Any, x: Any, y: Any) -> Any:
    return torch.special.xlog1py(g, y).masked_fill((x == 0.0) & at_most(y, -1.0), 0.0)


def sinc_x(g: Any, x: Any) -> Any:
    pi_x = x * math.pi
    below = pi_x * x
    return torch.where(below == 0.0, 0.0, g * H((pi_x * pi_x.cos() - pi_x.sin()) / below))


def acosh_x(g: Any, x: Any) -> Any:
    return g * H((x + 1).rsqrt() * (x - 1).rsqrt()) if x.is_complex() else g * (x * x - 1).rsqrt()


def logit_back(g: Any, x: Any, *, eps: float | None) -> Any:
    if eps is None:
        return torch.where((x >= 0) & (x <= 1), g / (x * (1 - x)), math.nan)
    return masked((x >= eps) & (x <= 1 - eps), g / (x * (1 - x)))


def logit_x(g: Any, x: Any, *, eps: float | None) -> Any:
    """As torch: by the kernel, and in recorded runs by the formula, which differs at -0.0 and has other derivatives."""
    return logit_back(g, x, eps=eps) if torch.is_grad_enabled() else private.aten.logit_backward(g, x, eps)


def logit_bend(h: Any, g: Any, x: Any, *, eps: float | None) -> Any:
    return h * logit_back(g, x, eps=eps) * (2 * x - 1) / (x * (1 - x))


def bessel1_x(g: Any, x: Any, ans: Any, zeroth: Any, extra: Any) -> Any:
    """i1 and i1e: f0(x) - ans * (extra + 1 / x), 1/2 at 0 and, as torch has it, at NaN."""
    large = x.abs() > torch.finfo(x.dtype).eps
    safe = torch.where(large, x, torch.finfo(x.dtype).eps)
    return g * torch.where(large, zeroth(safe) - ans * (extra(safe) + safe.reciprocal()), 0.5)


def mvlgamma_x(g: Any, x: Any, *, p: int) -> Any:
    steps = torch.arange(-p / 2.0 + 0.5, 0.5, 0.5, dtype=x.dtype, device=x.device)
    return g * (x.unsqueeze(-1) + steps).digamma().sum(-1)


def bind_polygamma(a: Any, b: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor):
        raise TypeError("which is the order?")      # `torch.polygamma(n, x)`, or `x.polygamma(n)`
    return ((a,), {"n": b}) if isinstance(a, torch.Tensor) else ((b,), {"n": a})


# ----- exponentials and logarithms -----
define("exp", "x", E, "torch.exp T.exp", x=lambda g, ans: g * H(ans))
define("exp2", "x", E, "torch.exp2 T.exp2 torch.special.exp2", x=lambda g, ans: g * H(ans) * LN2)
define("expm1", "x", E, "torch.expm1 T.expm1 torch.special.expm1", x=lambda g, ans: g * H(ans + 1))
define("log", "x", E, "torch.log T.log", x=lambda g, x: g / H(x))
define("log2", "x", E, "torch.log2 T.log2", x=lambda g, x: g / H(x * LN2))
define("log10", "x", E, "torch.log10 T.log10", x=lambda g, x: g / H(x * LN10))
define("log1p", "x", E, "torch.log1p T.log1p torch.special.log1p", x=lambda g, x: g / H(x + 1))
define("logaddexp", "x, y", E, "torch.logaddexp T.logaddexp",
       x=lambda g, x, y: g / H(1 + (y - x).exp()), y=lambda g, x, y: g / H(1 + (x - y).exp()))
define("logaddexp2", "x, y", E, "torch.logaddexp2 T.logaddexp2",
       x=lambda g, x, y: g / (1 + (y - x).exp2()), y=lambda g, x, y: g / (1 + (x - y).exp2()))
define("xlogy", "x, y", E, "torch.xlogy T.xlogy torch.special.xlogy", x=xlogy_x, y=lambda g, x, y: g * x / y)
define("xlog1py", "x, y", E, "torch.special.xlog1py", x=xlog1py_x, y=lambda g, x, y: g * x / (y + 1))
define("logit", "x, eps=None", E, "torch.logit T.logit torch.special.logit",
       x=logit_x)
define("logit_backward", "g, x, eps=None", E, "torch.ops.aten.logit_backward", meaning=logit_back,
       g=lambda h, x, *, eps: private.aten.logit_backward(h, x, eps), x=logit_bend)
define("entr", "x", E, "torch.special.entr", x=lambda g, x: g * (-(1 + x.log())))
# ----- trigonometric -----
define("sin", "x", E, "torch.sin T.sin", x=lambda g, x: g * H(x.cos()))
define("cos", "x", E, "torch.cos T.cos", x=lambda g, x: g * H(-x.sin()))
define("tan", "x", E, "torch.tan T.tan", x=lambda g, ans: g * H(1 + ans * ans))
define("asin", "x", E, "torch.asin torch.arcsin T.asin T.arcsin", x=lambda g, x: g * H((-x * x + 1).rsqrt()))
define("acos", "x", E, "torch.acos torch.arccos T.acos T.arccos", x=lambda g, x: g * -H((-x * x + 1).rsqrt()))
define("atan", "x", E, "torch.atan torch.arctan T.atan T.arctan", x=lambda g, x: g / H(x * x + 1))
define("sinc", "x", E, "torch.sinc T.sinc torch.special.sinc", x=sinc_x)
# ----- hyperbolic -----
define("sinh", "x", E, "torch.sinh T.sinh", x=lambda g, x: g * H(x.cosh()))
define("cosh", "x", E, "torch.cosh T.cosh", x=lambda g, x: g * H(x.sinh()))
define("asinh", "x", E, "torch.asinh torch.arcsinh T.asinh T.arcsinh", x=lambda g, x: g * H((x ** 2 + 1).rsqrt()))
define("acosh", "x", E, "torch.acosh torch.arccosh T.acosh T.arccosh", x=acosh_x)
define("atanh", "x", E, "torch.atanh torch.arctanh T.atanh T.arctanh", x=lambda g, x: g * H((1 - x ** 2).reciprocal()))
# ----- special -----
define("erf", "x", E, "torch.erf T.erf torch.special.erf", x=lambda g, x: TWO_OVER_SQRT_PI * (-(x ** 2)).exp() * g)
define("erfc", "x", E, "torch.erfc T.erfc torch.special.erfc", x=lambda g, x: -TWO_OVER_SQRT_PI * (-(x ** 2)).exp() * g)
define("erfinv", "x", E, "torch.erfinv T.erfinv torch.special.erfinv",
       x=lambda g, x: HALF_SQRT_PI * x.erfinv().square().exp() * g)
define("erfcx", "x", E, "torch.special.erfcx", x=lambda g, x, ans: (2.0 * x * ans - TWO_OVER_SQRT_PI) * g)
define("ndtr", "x", E, "torch.special.ndtr", x=lambda g, x: g * ((x * x / -2).exp() / math.sqrt(2 * math.pi)))
define("ndtri", "x", E, "torch.special.ndtri", x=lambda g, ans: g * math.sqrt(2 * math.pi) * (ans * ans / 2).exp())
define("log_ndtr", "x", E, "torch.special.log_ndtr",
       x=lambda g, x, ans: g / math.sqrt(2 * math.pi) * (-(ans + x ** 2 / 2)).exp())
define("lgamma", "x", E, "torch.lgamma T.lgamma torch.special.gammaln", x=lambda g, x: g * x.digamma())
define("digamma", "x", E, "torch.digamma T.digamma torch.special.digamma torch.special.psi",
       x=lambda g, x: g * torch.polygamma(1, x))
define("polygamma", "x, *, n=0", E, "T.polygamma torch.polygamma torch.special.polygamma", bind=bind_polygamma,
       forward=lambda x, *, n: torch.polygamma(n, x), x=lambda g, x, *, n: g * torch.polygamma(n + 1, x))
define("mvlgamma", "x, p=1", E, "torch.mvlgamma T.mvlgamma torch.special.multigammaln", x=mvlgamma_x)
define("i0", "x", E, "torch.i0 T.i0 torch.special.i0", x=lambda g, x: g * torch.special.i1(x))
define("i0e", "x", E, "torch.special.i0e", x=lambda g, x, ans: g * (torch.special.i1e(x) - x.sgn() * ans))
define("i1", "x", E, "torch.special.i1", x=lambda g, x, ans: bessel1_x(g, x, ans, torch.i0, lambda _: 0.0))
define("i1e", "x", E, "torch.special.i1e", x=lambda g, x, ans: bessel1_x(g, x, ans, torch.special.i0e, torch.sgn))
