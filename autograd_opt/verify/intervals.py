"""Rationals as long as they last, then intervals that contain the value: numbers whose bounds are rigorous."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import iv

from autograd_opt.verify.balls import bounded
from autograd_opt.verify.domain import Domain, Outside, TooLarge

PRECISION = 120


def enclosed(x: Any) -> Any:
    """A scalar as an interval."""
    if isinstance(x, Fraction):
        return iv.mpf(x.numerator) / iv.mpf(x.denominator)
    if isinstance(x, (int, np.integer, np.bool_)):
        return iv.mpf(int(x))
    if not isinstance(x, iv.mpf):
        raise Outside(f"the number {x!r}")
    return x


class Interval:
    """An mpmath interval that also meets Fractions; operators delegate to mpmath."""

    __slots__ = ("v",)

    def __init__(self, v: Any):
        self.v = v

    def __add__(self, o: Any) -> Any:
        return self if type(o) is Fraction and o == 0 else Interval(self.v + raw(o))

    __radd__ = __add__

    def __sub__(self, o: Any) -> Any:
        return Interval(self.v - raw(o))

    def __rsub__(self, o: Any) -> Any:
        return Interval(raw(o) - self.v)

    def __mul__(self, o: Any) -> Any:
        return Fraction(0) if type(o) is Fraction and o == 0 else Interval(self.v * raw(o))

    __rmul__ = __mul__

    def __truediv__(self, o: Any) -> Any:
        return Interval(divided(self.v, raw(o)))

    def __rtruediv__(self, o: Any) -> Any:
        return Interval(divided(raw(o), self.v))


def raw(x: Any) -> Any:
    return x.v if type(x) is Interval else enclosed(x)


def divided(a: Any, b: Any) -> Any:
    if b.a <= 0 <= b.b:
        raise Outside("a division by an interval around 0")
    return a / b


FUNCTIONS: dict[str, Any] = {
    "exp": iv.exp,
    "sin": iv.sin,
    "cos": iv.cos,
    "tan": iv.tan,
    "sinh": lambda x: (iv.exp(x) - iv.exp(-x)) / 2,
    "cosh": lambda x: (iv.exp(x) + iv.exp(-x)) / 2,
    "tanh": lambda x: 1 - 2 / (iv.exp(2 * x) + 1),
    "asinh": lambda x: iv.log(x + iv.sqrt(x * x + 1)),
}
AT_ZERO = {
    "exp": 1,
    "sin": 0,
    "cos": 1,
    "tan": 0,
    "tanh": 0,
    "sinh": 0,
    "cosh": 1,
    "asinh": 0,
    "atan": 0,
    "erf": 0,
    "sqrt": 0,
}


class Rational(Domain):
    """Fractions, and intervals where Fractions do not suffice."""

    def __init__(self, budget: int, deadline: float):
        super().__init__()
        self.budget, self.deadline = budget, deadline

    def charge(self, n: int) -> None:
        super().charge(n)
        if time.monotonic() > self.deadline:
            raise TooLarge("no time left")

    def scalar(self, value: Any) -> Any:
        if isinstance(value, (Interval, Fraction)):
            return value
        if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
            raise Outside(f"the number {value}")
        return Fraction(int(value) if isinstance(value, (bool, np.bool_, np.integer)) else value)

    def div(self, x: Any, y: Any) -> Any:
        y = self.lift(y)
        if any(type(v) is Fraction and v == 0 for v in y.reshape(-1)):
            raise Outside("a division by 0")
        return super().div(x, y)

    def function(self, name: str, x: Any) -> Any:
        if type(x) is Fraction:
            if x == 0 and name in AT_ZERO:
                return Fraction(AT_ZERO[name])
            if name == "sqrt":
                root = exact_root(x)
                if root is not None:
                    return root
            if name == "log" and x == 1:
                return Fraction(0)
        v = raw(x)
        if name in ("log", "sqrt"):
            if v.a <= 0:
                raise Outside(f"{name} of something not positive")
            return Interval(iv.log(v) if name == "log" else iv.sqrt(v))
        found = FUNCTIONS.get(name)
        return Interval(bounded(name, v) if found is None else found(v))

    def raised(self, x: Any, y: Any) -> Any:
        if type(y) is Fraction and y.denominator == 1 and abs(y) <= 64:
            n = int(y)
            if type(x) is Fraction:
                if x == 0 and n < 0:
                    raise Outside("0 to a negative power")
                return x**n
            return Interval(raw(x) ** n) if n >= 0 else Fraction(1) / Interval(raw(x) ** -n)
        v = raw(x)
        if v.a <= 0:
            raise Outside("a power of something not positive")
        return Interval(iv.exp(raw(y) * iv.log(v)))

    def sign(self, x: Any) -> int:
        if type(x) is Fraction:
            return (x > 0) - (x < 0)
        if x.v.a > 0:
            return 1
        if x.v.b < 0:
            return -1
        raise Outside("a comparison too close to call")


def exact_root(x: Fraction) -> Fraction | None:
    from math import isqrt

    if x < 0:
        return None
    a, b = isqrt(x.numerator), isqrt(x.denominator)
    return Fraction(a, b) if a * a == x.numerator and b * b == x.denominator else None


def apart(a: Any, b: Any) -> bool:
    """Do the bounds show a != b?"""
    if type(a) is Fraction and type(b) is Fraction:
        return a != b
    d = raw(a) - raw(b)
    return bool(d.a > 0 or d.b < 0)


def bounds(x: Any) -> tuple[str, str]:
    if type(x) is Fraction:
        return str(x), str(x)
    return mpmath.nstr(mpmath.mpf(x.v.a), 17), mpmath.nstr(mpmath.mpf(x.v.b), 17)
