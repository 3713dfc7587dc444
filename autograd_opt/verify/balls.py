"""Functions whose bounds mpmath's intervals lack: by python-flint's balls where it is installed, by formulas otherwise.

Every bound is rigorous: formulas are evaluated in intervals, the error function by its alternating series, whose
rest is smaller than the first term left out (Abramowitz and Stegun 7.1.5).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from mpmath import iv

from autograd_opt.verify.domain import Outside

flint: Any = None                        # an extra
with contextlib.suppress(ImportError):
    flint = importlib.import_module("flint")

SERIES = 6
"""Beyond this the error function is 1 but for 2.2e-17."""


def within(x: Any, low: int, high: int) -> Any:
    """x, which lies between two numbers.

    Raises
    ------
    Outside : it may not.
    """
    if not low < x.a <= x.b < high:
        raise Outside(f"something that may not lie between {low} and {high}")
    return x


def erf(x: Any) -> Any:
    """Between the values at both ends: it grows."""
    return iv.mpf([erf_at(iv.mpf(x.a)).a, erf_at(iv.mpf(x.b)).b])


def erf_at(x: Any) -> Any:
    if x.b < 0:
        return -erf_at(-x)
    if x.b > SERIES:
        return iv.mpf([1 - iv.mpf(10) ** -16, 1]) if x.a >= SERIES else iv.mpf([0, 1])
    precision, iv.prec = iv.prec, iv.prec + 80  # terms reach exp(36)
    try:
        square, term, total, k = x * x, x, x, 0
        while True:
            k += 1
            term = -term * square / k
            part = term / (2 * k + 1)
            if k > square.b and abs(part).b < iv.mpf(2) ** -precision:
                break
            total += part
        total += iv.mpf([-abs(part).b, abs(part).b])
        return 2 * total / iv.sqrt(iv.pi)
    finally:
        iv.prec = precision


def widened(fn: Callable[..., Any], *xs: Any) -> Any:
    """fn of intervals in 40 more bits, then wider by the last bit asked for: mpmath may round these inwards."""
    precision, iv.prec = iv.prec, iv.prec + 40
    try:
        found = fn(*xs)
        rest = (1 + abs(found).b) * iv.mpf(2) ** -precision
        return found + iv.mpf([-rest.b, rest.b])
    finally:
        iv.prec = precision


def root_of_rest(x: Any) -> Any:
    return iv.sqrt((1 - x) * (1 + x))


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "erf": erf,
    "erfc": lambda x: 1 - erf(x),
    "atan": lambda x: widened(iv.atan2, x, iv.mpf(1)),
    "asin": lambda x: widened(iv.atan2, x, root_of_rest(within(x, -1, 1))),
    "acos": lambda x: widened(iv.atan2, root_of_rest(within(x, -1, 1)), x),
    "acosh": lambda x: iv.log(x + iv.sqrt((x - 1) * (x + 1))) if x.a > 1 else iv.log(within(x, 1, 10**9)),
    "atanh": lambda x: (iv.log(1 + x) - iv.log(1 - within(x, -1, 1))) / 2,
    "lgamma": lambda x: widened(iv.loggamma, within(x, 0, 10**9)),
}


def bounded(name: str, x: Any) -> Any:
    """An interval that holds the function's values on an interval.

    Raises
    ------
    Outside : there is no bound, or none that is finite.
    """
    if flint is not None and hasattr(flint.arb, name):
        return by_ball(name, x)
    if name not in FORMULAS:
        raise Outside(f"no bounds for {name}")
    return FORMULAS[name](x)


def by_ball(name: str, x: Any) -> Any:
    """The same by arb: https://arblib.org."""
    old, flint.ctx.prec = flint.ctx.prec, iv.prec
    try:
        found = getattr(ball(x.a).union(ball(x.b)), name)()
        if not found.is_finite():
            raise Outside(f"no finite bounds for {name}")
        return iv.mpf([exactly(found.lower()).a, exactly(found.upper()).b])
    finally:
        flint.ctx.prec = old


def ball(end: Any) -> Any:
    """One end of an interval as a ball."""
    sign, man, exponent, _ = iv.convert(end)._mpi_[0]
    return flint.arb(-int(man) if sign else int(man)) * flint.arb(2) ** int(exponent)


def exactly(x: Any) -> Any:
    man, exponent = x.man_exp()
    return iv.mpf(int(man)) * iv.mpf(2) ** int(exponent)
