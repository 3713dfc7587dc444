"""Rules: arithmetic, powers, rounding, extrema, selection."""

from __future__ import annotations

import cmath
import math
from typing import Any

import torch

from autograd_opt.ops.helpers import NUMBER, TIES_SHARE, H, masked, times, zero
from autograd_opt.ops.table import COMMUTATIVE, ELEMENTWISE, ONCE, PURE, choose, define


def inverse_or_zero(x: Any) -> Any:
    """1 / x, and 0 where x is 0: torch's convention for the derivative of atan2 at the origin."""
    return torch.where(x == 0, 0.0, x.reciprocal())


def atan2_back(g: Any, needs: Any, x: Any, y: Any) -> list[Any]:
    inverse = inverse_or_zero(x * x + y * y)
    return [g * y * inverse if needs[0] else None, g * -x * inverse if needs[1] else None]


E = ELEMENTWISE | PURE


def pow_base(g: Any, x: Any, y: Any, ans: Any) -> Any:
    """Cotangent of x in x ** y; 0 where y is 0, also at x = 0.  torch saves the result of two tensors for either."""
    if isinstance(y, NUMBER):
        if y == 0 and y is not False:           # which torch does not count as 0
            return torch.zeros_like(g)
        return g * H(x * 2 if y == 2 and not isinstance(y, complex) else y * x ** (y - 1))
    return torch.where(y == 0, 0.0, g * H(y * x ** (y - 1)))


def pow_exponent(g: Any, x: Any, y: Any, ans: Any) -> Any:
    """Cotangent of y in x ** y; 0 where x is 0 and y is real and not negative."""
    if isinstance(x, NUMBER):
        log = logarithm(complex(x) if ans.is_complex() else x)
        if x != 0:
            return g * H(ans * log)
        return g * torch.where(not_negative(y), 0.0, H(ans * log))
    if x.dtype != ans.dtype:
        x = x.to(ans.dtype)             # a real logarithm would be NaN left of 0, that of a lower precision rounded
    return g * torch.where((x == 0) & not_negative(y), 0.0, H(ans * x.log()))


def logarithm(x: Any) -> Any:
    """Take the logarithm of a number: infinite at 0, NaN where it is not real."""
    if isinstance(x, complex):
        return cmath.log(x) if x else complex(-math.inf)
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def widened(t: Any, g: Any) -> Any:
    """`t` in the type in which `float_power` computes, that of its cotangent."""
    return t.to(g.dtype) if not isinstance(t, NUMBER) else t if isinstance(t, complex) else float(t)


def not_negative(y: Any) -> Any:
    """Where `y` is real and not negative."""
    return (y.imag == 0) & (y.real >= 0) if y.is_complex() else y >= 0


def pick_division(*args: Any, rounding_mode: str | None = None, **kwargs: Any) -> str:
    return "div_rounded" if rounding_mode else "div"


def copysign_x(g: Any, x: Any, ans: Any) -> Any:
    return g * torch.where(x == 0, 0.0, ans / x)


# ----- sums and products -----
define("add", "x, y, *, alpha=1", E | COMMUTATIVE, "torch.add T.add T.__add__ T.__radd__", inplace="T.__iadd__",
       x=lambda g: g, y=lambda g, *, alpha: times(g, alpha))
define("sub", "x, y, *, alpha=1", E, "torch.sub torch.subtract T.sub T.subtract T.__sub__", inplace="T.__isub__",
       x=lambda g: g, y=lambda g, *, alpha: times(-g, alpha))
define("rsub", "x, y, *, alpha=1", E, "torch.rsub T.__rsub__",
       x=lambda g, *, alpha: times(-g, alpha), y=lambda g: g)
define("mul", "x, y", E | COMMUTATIVE | ONCE, "torch.mul torch.multiply T.mul T.multiply T.__mul__ T.__rmul__",
       inplace="T.__imul__",
       x=lambda g, y: g * H(y), y=lambda g, x: g * H(x))
define("div", "x, y", E | ONCE, "torch.true_divide T.true_divide T.__truediv__ T.__div__",
       forward=torch.div, inplace="T.__itruediv__ T.__idiv__ T.div_ T.divide_",
       x=lambda g, y: g / H(y), y=lambda g, x, y: -g * H(torch.div(x, y) / y))
define("div_rounded", "x, y, *, rounding_mode=None", E, forward=torch.div,
       x=lambda g, y: zero(g), y=lambda g, x, y: zero(g))
choose("torch.div torch.divide T.div T.divide", pick_division)
define("neg", "x", E, "torch.neg torch.negative T.neg T.negative T.__neg__", x=lambda g: -g)
define("reciprocal", "x", E, "torch.reciprocal T.reciprocal", x=lambda g, ans: -g * H(ans * ans))
define("square", "x", E, "torch.square T.square", x=lambda g, x: g * H(x * 2))
define("fmod", "x, y", E, "torch.fmod T.fmod",
       x=lambda g: g, y=lambda g, x, y: -g * torch.div(x, y, rounding_mode="trunc"))
define("remainder", "x, y", E, "torch.remainder T.remainder T.__mod__", inplace="T.__imod__",
       x=lambda g: g, y=lambda g, x, y: -g * torch.div(x, y, rounding_mode="floor"))
define("hypot", "x, y", E, "torch.hypot T.hypot", x=lambda g, x, ans: g * x / ans, y=lambda g, y, ans: g * y / ans)
define("atan2", "x, y", E, "torch.atan2 torch.arctan2 T.atan2 T.arctan2",
       joint=atan2_back)
define("addcmul", "x, y, z, *, value=1", E, "torch.addcmul T.addcmul",
       x=lambda g: g, y=lambda g, z, *, value: g * H(z * value), z=lambda g, y, *, value: g * H(y * value))
define("addcdiv", "x, y, z, *, value=1", E, "torch.addcdiv T.addcdiv", keeps="z",
       x=lambda g: g, y=lambda g, z, *, value: g * H(value / z),
       z=lambda g, y, z, *, value: -g * H(value * y / (z * z)))
define("lerp", "x, y, weight", E, "torch.lerp T.lerp",
       x=lambda g, weight: g * H(1 - weight), y=lambda g, weight: g * H(weight), weight=lambda g, x, y: g * H(y - x))
# ----- powers -----
define("pow", "x, y", E, "torch.pow T.pow T.__pow__", inplace="T.__ipow__", lean="ans", x=pow_base,
       y=pow_exponent)
define("float_power", "x, y", E, "torch.float_power T.float_power", lean="ans",
       x=lambda g, x, y, ans: pow_base(g, widened(x, g), widened(y, g), ans),
       y=lambda g, x, y, ans: pow_exponent(g, widened(x, g), widened(y, g), ans))
define("sqrt", "x", E, "torch.sqrt T.sqrt", x=lambda g, ans: g / (2 * H(ans)))
define("rsqrt", "x", E, "torch.rsqrt T.rsqrt", x=lambda g, ans: -0.5 * g * H(ans ** 3))
# ----- rounding and signs -----
for _name, _calls in {
    "floor": "torch.floor T.floor", "ceil": "torch.ceil T.ceil", "trunc": "torch.trunc torch.fix T.trunc T.fix",
    "sign": "torch.sign T.sign",
}.items():
    define(_name, "x", E, _calls, x=zero)
define("round", "x, *, decimals=0", E, "torch.round T.round", x=zero)
define("frac", "x", E, "torch.frac T.frac", x=lambda g: g)
define("abs", "x", E, "torch.abs torch.absolute T.abs T.absolute T.__abs__", x=lambda g, x: g * x.sgn())
define("copysign", "x, y", E, "torch.copysign T.copysign", keeps="ans", x=copysign_x, y=zero)
define("nan_to_num", "x, nan=None, posinf=None, neginf=None", E, "torch.nan_to_num T.nan_to_num",
       x=lambda g, x: g * torch.isfinite(x))
define("positive", "x", E, "torch.positive T.positive T.__pos__")
define("deg2rad", "x", E, "torch.deg2rad T.deg2rad", x=lambda g: g * 0.017453292519943295769236907684886)
define("rad2deg", "x", E, "torch.rad2deg T.rad2deg", x=lambda g: g * 57.295779513082320876798154814105)
define("ldexp", "x, y", E, "torch.ldexp T.ldexp",
       x=lambda g, y: g * H(torch.pow(2.0, y)), y=lambda g, ans: g * H(ans) * 0.6931471805599453)
# ----- extrema: ties share half -----
LARGER: dict[str, Any] = {
    "x": lambda g, x, y: torch.where(x == y, g / 2, g).masked_fill(x < y, 0),
    "y": lambda g, x, y: torch.where(x == y, g / 2, g).masked_fill(x > y, 0),
}
SMALLER: dict[str, Any] = {"x": LARGER["y"], "y": LARGER["x"]}
define("maximum", "x, y", E, "torch.maximum T.maximum", **LARGER)
define("minimum", "x, y", E, "torch.minimum T.minimum", **SMALLER)
if TIES_SHARE:
    define("fmax", "x, y", E, "torch.fmax T.fmax", **LARGER)
    define("fmin", "x, y", E, "torch.fmin T.fmin", **SMALLER)
else:
    define("fmax", "x, y", E, "torch.fmax T.fmax",
           x=lambda g, x, y: masked((x >= y) | y.isnan(), g), y=lambda g, x, y: masked(~((x >= y) | y.isnan()), g))
    define("fmin", "x, y", E, "torch.fmin T.fmin",
           x=lambda g, x, y: masked((x <= y) | y.isnan(), g), y=lambda g, x, y: masked(~((x <= y) | y.isnan()), g))


# ----- selection -----
def above(x: Any, bound: Any) -> Any:
    """Where a lower bound leaves `x` its cotangent: at a number itself up to torch 2.13."""
    return x > bound if TIES_SHARE and isinstance(bound, NUMBER) else x >= bound


def below(x: Any, bound: Any) -> Any:
    return x < bound if TIES_SHARE and isinstance(bound, NUMBER) else x <= bound


def shared(tie: Any, g: Any) -> Any:
    """The cotangent of one of two operands that are equal where `tie` is true."""
    return torch.where(tie, g / 2, g)


def clamp_x(g: Any, x: Any, min: Any, max: Any) -> Any:
    if min is None and max is None:
        return g
    if TIES_SHARE and not isinstance(max if min is None else min, NUMBER):
        if min is None:
            return shared(x == max, g).masked_fill(x > max, 0)
        if max is None:
            return shared(x == min, g).masked_fill(x < min, 0)
        return shared((min < max) & ((x == min) | (x == max)), g).masked_fill((x < min) | (x > max), 0)
    if min is None:
        return masked(below(x, max), g)
    return masked(above(x, min) if max is None else above(x, min) & below(x, max), g)


def clamp_min(g: Any, x: Any, min: Any, max: Any) -> Any:
    if not TIES_SHARE:
        return masked(x < min if max is None else (min < max) & (x < min), g)
    if max is None:
        return shared(x == min, g).masked_fill(x > min, 0)
    return masked((min <= max) & (x < min) | (min < max) & (x == min), shared(x == min, g))


def clamp_max(g: Any, x: Any, min: Any, max: Any) -> Any:
    if not TIES_SHARE:
        return masked(x > max if min is None else (x > max) | (max < min), g)
    if min is None:
        return shared(x == max, g).masked_fill(x < max, 0)
    return masked((min <= max) & (x > max) | (min < max) & (x == max) | (max < min),
                  shared((min < max) & (x == max), g))


define("clamp", "x, min=?, max=?", E, "torch.clamp torch.clip T.clamp T.clip", x=clamp_x, min=clamp_min, max=clamp_max)
define("clamp_min", "x, min", E, "torch.clamp_min T.clamp_min",
       x=lambda g, x, min: clamp_x(g, x, min, None), min=lambda g, x, min: clamp_min(g, x, min, None))
define("clamp_max", "x, max", E, "torch.clamp_max T.clamp_max",
       x=lambda g, x, max: clamp_x(g, x, None, max), max=lambda g, x, max: clamp_max(g, x, None, max))
define("where", "condition, x, y", E, "torch.where",
       x=lambda g, condition: torch.where(condition, g, 0.0), y=lambda g, condition: torch.where(condition, 0.0, g))
define("where_method", "x, condition, y", E, "T.where",
       x=lambda g, condition: torch.where(condition, g, 0.0), y=lambda g, condition: torch.where(condition, 0.0, g))
define("fill", "x, value", E, "torch.fill T.fill", inplace="T.fill_", x=zero, value=lambda g: g)
define("masked_fill", "x, mask, value", E, "torch.masked_fill T.masked_fill",
       x=lambda g, mask: g.masked_fill(mask, 0), value=lambda g, mask: torch.where(mask, g, 0.0))
