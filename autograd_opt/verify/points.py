"""Counterexamples: a rational point, and rigorous bounds that show two values to differ.

Scalars are exact rationals as long as the operations are rational, and mpmath intervals
from the first transcendental function on.  A refutation needs two disjoint intervals (or
two different rationals); overlapping ones prove nothing.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import iv

from autograd_opt.verify.domain import Domain, Outside, TooLarge
from autograd_opt.verify.evaluate import evaluate
from autograd_opt.verify.field import integers
from autograd_opt.verify.ir import DRAWS, Head, Program
from autograd_opt.verify.verdict import Counterexample

PRECISION = 120
POOLS: tuple[tuple[Fraction, ...], ...] = (
    tuple(map(Fraction, (0, 1, -1, 2))),
    tuple(Fraction(k, 2) for k in (1, 2, 3, 5)),
    tuple(Fraction(k, 2) for k in (-3, -2, -1, 1, 2, 3, 4)),
    tuple(Fraction(k, 7) for k in range(-15, 16)),
    (Fraction(0),),
    (Fraction(1),),
)


def enclosed(x: Any) -> Any:
    """A scalar as an interval."""
    if isinstance(x, Fraction):
        return iv.mpf(x.numerator) / iv.mpf(x.denominator)
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
    "atan": iv.atan if hasattr(iv, "atan") else None,
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
        if found is None:
            raise Outside(f"no bounds for {name}")
        return Interval(found(v))

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


def refute(
    original: Program,
    optimized: Program,
    goals: Sequence[tuple[str, int | None, int | None]],
    *,
    names: Mapping[int, str],
    budget: int = 2_000_000,
    seconds: float = 10.0,
    seed: int = 0,
    nodes: Any = None,
    tries: int = 24,
) -> Counterexample | str:
    """Look for a point where a goal has two values; a readable one where that is possible.

    Returns
    -------
    Counterexample, or a line that says why there is none.
    """
    deadline = time.monotonic() + seconds
    last = "no difference was found"
    total = budget
    with_precision = iv.prec
    iv.prec = PRECISION
    try:
        for attempt in range(tries):
            pool = POOLS[attempt % len(POOLS)]
            point: dict[str, Any] = {}
            D = Rational(total, deadline)
            for some in (goals, *([g] for g in goals if len(goals) > 1)):
                try:
                    found = evaluate_at(D, original, optimized, some, pool, seed * 1000 + attempt, names, nodes, point)
                except Outside as error:
                    last = str(error)
                    continue
                if found is not None:
                    goal, element, a, b = found
                    kind = "effect" if any(k.startswith("draw") for k in point) else "value"
                    return Counterexample(kind, goal, element, point, bounds(a), bounds(b))
                if some is goals:
                    break
            total -= D.spent
        return last
    except TooLarge as error:
        return f"{last} ({error})"
    finally:
        iv.prec = with_precision


def evaluate_at(
    D: Rational,
    original: Program,
    optimized: Program,
    goals: Any,
    pool: Sequence[Fraction],
    key: int,
    names: Mapping[int, str],
    nodes: Any,
    point: dict[str, Any],
) -> Any:
    """The first element that differs at one random point, or None."""
    made: dict[Any, Any] = {}

    def free(position: int, head: Head, shape: tuple[int, ...]) -> Any:
        if (head.op, head.effect) in made:
            return made[head.op, head.effect]
        if head.op not in ("leaf", "seed") and head.op not in DRAWS:
            raise Outside(f"{head.op} has no meaning")
        given = integers(head, nodes, original)
        if given is None:
            word = hashlib.sha256(f"{key}|{head.op}|{head.effect}".encode()).digest()
            rng = random.Random(word)
            given = np.empty(shape, dtype=object)
            one = head.op == "seed" and given.size == 1
            given.reshape(-1)[:] = [Fraction(1) if one else rng.choice(pool) for _ in range(given.size)]
            name = (
                names.get(head.effect - 1, f"%{head.effect - 1}")
                if head.op == "leaf"
                else f"seed {head.effect - 1}"
                if head.op == "seed"
                else f"draw %{head.effect - 1}"
            )
            point[name] = nested(given)
        made[head.op, head.effect] = given
        return given

    a = evaluate(D, original, [x for _, x, _ in goals if x is not None], free)
    b = evaluate(D, optimized, [y for _, _, y in goals if y is not None], free)
    for goal, x, y in goals:
        left = None if x is None else np.asarray(a[x], dtype=object)
        right = None if y is None else np.asarray(b[y], dtype=object)
        some = right if left is None else left
        if some is None:
            continue
        left = np.full(some.shape, Fraction(0), dtype=object) if left is None else left
        right = np.full(some.shape, Fraction(0), dtype=object) if right is None else right
        if left.shape != right.shape:
            continue
        for element in np.ndindex(left.shape):
            if apart(left[element], right[element]):
                return goal, element, left[element], right[element]
    return None


def nested(values: Any) -> Any:
    return (
        [nested(v) for v in values]
        if isinstance(values, np.ndarray) and values.ndim
        else str(values.item() if isinstance(values, np.ndarray) else values)
    )
