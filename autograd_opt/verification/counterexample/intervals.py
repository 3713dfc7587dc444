"""Rationals as long as they last, then balls that contain the value: Arb's arithmetic, whose bounds are rigorous.

Both are flint's own numbers, which meet each other.
"""

from __future__ import annotations

import time
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from flint import arb, fmpq

from autograd_opt.verification.semantics.domain import Domain, Outside, TooLarge

PRECISION = 120
"""Bits."""


def finite(x: Any) -> Any:
    """The ball, whose bounds are finite.

    Raises
    ------
    Outside : they are not.
    """
    if not x.is_finite():
        raise Outside("a value without finite bounds")
    return x


FUNCTIONS = frozenset("""exp sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc erfinv lgamma digamma
                         log sqrt""".split())
AT_ZERO = {"exp": 1, "cos": 1, "cosh": 1} | dict.fromkeys("sin tan tanh sinh asinh atan erf sqrt".split(), 0)


class Rational(Domain):
    """Rationals, and balls where they do not suffice."""

    def __init__(self, budget: int, deadline: float):
        super().__init__()
        self.budget, self.deadline = budget, deadline

    def charge(self, n: int) -> None:
        super().charge(n)
        if time.monotonic() > self.deadline:
            raise TooLarge("no time left")

    def scalar(self, value: Any) -> Any:
        if isinstance(value, (arb, fmpq)):
            return value
        if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
            raise Outside(f"the number {value}")
        exact = Fraction(int(value) if isinstance(value, (bool, np.bool_, np.integer)) else value)
        return fmpq(exact.numerator, exact.denominator)

    def div(self, x: Any, y: Any) -> Any:
        y = self.lift(y)
        if any(type(v) is fmpq and v == 0 for v in y.reshape(-1)):
            raise Outside("a division by 0")
        out = super().div(x, y)
        for v in out.reshape(-1):
            if type(v) is arb:
                finite(v)
        return out

    def function(self, name: str, x: Any) -> Any:
        if type(x) is fmpq:
            if x == 0 and name in AT_ZERO:
                return fmpq(AT_ZERO[name])
            if name == "sqrt":
                root = exact_root(x)
                if root is not None:
                    return root
            if name == "log" and x == 1:
                return fmpq(0)
        if name not in FUNCTIONS:
            raise Outside(f"no bounds for {name}")
        return finite(getattr(arb(x), name)())

    def raised(self, x: Any, y: Any) -> Any:
        if type(y) is fmpq and y.q == 1 and abs(y) <= 64:
            n = int(y)
            if type(x) is fmpq:
                if x == 0 and n < 0:
                    raise Outside("0 to a negative power")
                return x**n
            return finite(x**n if n >= 0 else 1 / x**-n)
        return finite((y * arb(x).log()).exp())

    def sign(self, x: Any) -> int:
        if x > 0:
            return 1
        if x < 0:
            return -1
        if x == 0:
            return 0
        raise Outside("a comparison too close to call")


def exact_root(x: Any) -> Any:
    """The square root of a rational, where it is one; else None."""
    if x < 0:
        return None
    a, b = isqrt(int(x.p)), isqrt(int(x.q))
    return fmpq(a, b) if a * a == x.p and b * b == x.q else None


def apart(a: Any, b: Any) -> bool:
    """Do the bounds show a != b?"""
    d = a - b
    return bool(d > 0 or d < 0)


def bounds(x: Any) -> tuple[str, str]:
    if type(x) is fmpq:
        return str(x), str(x)
    return str(x.lower().str(17, radius=False)), str(x.upper().str(17, radius=False))
