"""Rationals as long as they last, then balls that contain the value: Arb's arithmetic, whose bounds are rigorous."""

from __future__ import annotations

import time
from fractions import Fraction
from math import isqrt
from typing import Any

import flint
import numpy as np

from autograd_opt.verification.semantics.domain import Domain, Outside, TooLarge

PRECISION = 120
"""Bits."""


def enclosed(x: Any) -> Any:
    """A scalar as a ball."""
    if isinstance(x, Fraction):
        return flint.arb(flint.fmpq(x.numerator, x.denominator))
    if isinstance(x, (int, np.integer, np.bool_)):
        return flint.arb(int(x))
    if not isinstance(x, flint.arb):
        raise Outside(f"the number {x!r}")
    return x


class Interval:
    """A ball that also meets Fractions; one without finite bounds is refused."""

    __slots__ = ("v",)

    def __init__(self, v: Any):
        if not v.is_finite():
            raise Outside("a value without finite bounds")
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
        return Interval(self.v / raw(o))

    def __rtruediv__(self, o: Any) -> Any:
        return Interval(raw(o) / self.v)


def raw(x: Any) -> Any:
    return x.v if type(x) is Interval else enclosed(x)


FUNCTIONS = frozenset("""exp sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc erfinv lgamma digamma
                         log sqrt""".split())
AT_ZERO = {"exp": 1, "cos": 1, "cosh": 1} | dict.fromkeys("sin tan tanh sinh asinh atan erf sqrt".split(), 0)


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
        if name not in FUNCTIONS:
            raise Outside(f"no bounds for {name}")
        return Interval(getattr(raw(x), name)())

    def raised(self, x: Any, y: Any) -> Any:
        if type(y) is Fraction and y.denominator == 1 and abs(y) <= 64:
            n = int(y)
            if type(x) is Fraction:
                if x == 0 and n < 0:
                    raise Outside("0 to a negative power")
                return x**n
            return Interval(raw(x) ** n) if n >= 0 else Fraction(1) / Interval(raw(x) ** -n)
        return Interval((raw(y) * raw(x).log()).exp())

    def sign(self, x: Any) -> int:
        if type(x) is Fraction:
            return (x > 0) - (x < 0)
        if x.v > 0:
            return 1
        if x.v < 0:
            return -1
        raise Outside("a comparison too close to call")


def exact_root(x: Fraction) -> Fraction | None:
    if x < 0:
        return None
    a, b = isqrt(x.numerator), isqrt(x.denominator)
    return Fraction(a, b) if a * a == x.numerator and b * b == x.denominator else None


def apart(a: Any, b: Any) -> bool:
    """Do the bounds show a != b?"""
    if type(a) is Fraction and type(b) is Fraction:
        return a != b
    d = raw(a) - raw(b)
    return bool(d > 0 or d < 0)


def bounds(x: Any) -> tuple[str, str]:
    if type(x) is Fraction:
        return str(x), str(x)
    return str(x.v.lower().str(17, radius=False)), str(x.v.upper().str(17, radius=False))
