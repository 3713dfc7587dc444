"""The domain of sympy expressions, with cases at kinks; and how sympy is asked whether something is zero."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from autograd_opt.verification.semantics.definedness import NONZERO, Condition, asked_by, asked_by_power
from autograd_opt.verification.semantics.domain import Array, Domain, Outside

CONSTANTS: dict[float, Any] = {
    float(e): e
    for e in (
        sympy.log(2),
        sympy.log(10),
        2 / sympy.sqrt(sympy.pi),
        -2 / sympy.sqrt(sympy.pi),
        sympy.sqrt(sympy.pi) / 2,
        sympy.sqrt(2) / 2,
        1 / sympy.sqrt(2 * sympy.pi),
        sympy.sqrt(2 * sympy.pi),
        sympy.sqrt(2 / sympy.pi),
        sympy.pi,
        sympy.pi / 180,
        180 / sympy.pi,
        sympy.sqrt(2),
        -sympy.sqrt(2),
    )
}
CONSTANTS[2 / math.sqrt(math.pi)] = 2 / sympy.sqrt(sympy.pi)
CONSTANTS[-2 / math.sqrt(math.pi)] = -2 / sympy.sqrt(sympy.pi)
CONSTANTS[math.sqrt(math.pi) / 2] = sympy.sqrt(sympy.pi) / 2
CONSTANTS[math.sqrt(2 * math.pi)] = sympy.sqrt(2 * sympy.pi)
CONSTANTS[math.sqrt(0.5)] = sympy.sqrt(2) / 2
CONSTANTS[math.sqrt(2 / math.pi)] = sympy.sqrt(2 / sympy.pi)
"""Doubles that stand for irrational numbers in rules, read as those numbers."""
FUNCTIONS = {
    "asin": sympy.asin,
    "acos": sympy.acos,
    "atan": sympy.atan,
    "lgamma": sympy.loggamma,
    "digamma": sympy.digamma,
    "erfinv": sympy.erfinv,
    "erfc": sympy.erfc,
    "sqrt": sympy.sqrt,
}


class NeedCase(Exception):
    """The sign of this expression decides a branch; which signs it may have, as far as is known."""

    def __init__(self, difference: Any, known: Any):
        super().__init__(str(difference))
        self.difference = difference
        lowest, highest = (0 if known.is_nonnegative else -1), (0 if known.is_nonpositive else 1)
        self.signs = [s for s in (1, 0, -1) if lowest <= s <= highest]


class Symbols(Domain):
    """sympy expressions; signs by assumption, or by the cases chosen so far.

    With `named`, a double in a rule is read as the number it stands for: one of `CONSTANTS`,
    or the simplest rational within a unit in its last place; without, as the rational it is.
    """

    def __init__(self, cases: tuple[tuple[Any, int], ...] = (), budget: int = 20_000, named: bool = True):
        super().__init__()
        self.named = named
        self.budget = budget
        self.substitutions: list[tuple[Any, Any]] = []
        self.decided: dict[Any, int] = {}
        self.generic: list[Any] = []
        self.cases = cases
        self.noted: list[Condition] | None = None
        """What operations ask of their operands, where it is noted."""
        for difference, sign in cases:
            self.assume(difference, sign)

    def assume(self, difference: Any, sign: int) -> None:
        """Solve `difference = sign * p`, p > 0, for one of its symbols.

        Raises
        ------
        Outside : the difference is to be 0 and is not linear in any symbol with a constant factor.
        """
        e = sympy.expand(difference)
        self.decided[e], self.decided[sympy.expand(-e)] = sign, -sign
        d = sympy.expand(self.settled(difference))
        for symbol in sorted(d.free_symbols, key=lambda s: (bool(s.is_positive), str(s))):
            factor = sympy.diff(d, symbol)
            if not factor.free_symbols and factor != 0:
                p = sympy.Dummy("p", positive=True)
                self.substitutions.append((symbol, sympy.expand((sign * p - (d - factor * symbol)) / factor)))
                return
        if sign == 0:
            raise Outside(f"{difference} = 0")
        self.generic.append(difference)

    def settled(self, e: Any) -> Any:
        """The expression under the cases chosen."""
        for symbol, value in self.substitutions:
            e = e.subs(symbol, value)
        return e

    def scalar(self, value: Any) -> Any:
        if isinstance(value, (int, np.bool_, np.integer)):
            return sympy.Integer(int(value))
        if isinstance(value, Fraction):
            return sympy.Rational(value.numerator, value.denominator)
        if isinstance(value, float):
            if self.named and value in CONSTANTS:
                return CONSTANTS[value]
            if math.isnan(value):
                return sympy.nan
            if math.isinf(value):
                return sympy.oo if value > 0 else -sympy.oo
            f = Fraction(value)
            if self.named:
                near = f.limit_denominator(10**7)
                f = near if abs(near - f) <= Fraction(math.ulp(value)) else f
            return sympy.Rational(f.numerator, f.denominator)
        if isinstance(value, sympy.Expr):
            return value
        raise Outside(f"the number {value!r}")

    def function(self, name: str, x: Any) -> Any:
        if self.noted is not None:
            self.noted += asked_by(name, x)
        if name.startswith("polygamma"):
            return sympy.polygamma(int(name[9:]), x)
        return FUNCTIONS.get(name, getattr(sympy, name, None))(x)  # type: ignore[misc]

    def raised(self, x: Any, y: Any) -> Any:
        if self.noted is not None:
            self.noted += asked_by_power(x, y)
        return x**y

    def div(self, x: Array, y: Array) -> Array:
        if self.noted is not None:
            self.noted += [(NONZERO, e) for e in np.asarray(self.lift(y)).reshape(-1)]
        return super().div(x, y)

    def shown(self, e: Any) -> bool:
        """True if sympy shows that the expression is 0 in this case, False if it is another number at a point of it.

        Raises
        ------
        Outside : neither was found.
        """
        e = self.settled(sympy.sympify(e))
        if soon_zero(e):
            return True
        if self.differs(e):              # asked before sympy's simplification, which has no end for some
            return False
        if at_length_zero(e):
            return True
        raise Outside(f"sympy does not say whether {e} is 0")

    def differs(self, e: Any) -> bool:
        """Is the expression not 0 at some point that was drawn, where everything has the sign of this case?"""
        rng = random.Random(0)
        signs = [(self.settled(d), sign) for d, sign in self.cases]
        symbols = set().union(e.free_symbols, *[v.free_symbols for _, v in self.substitutions],
                              *[s.free_symbols for s, _ in signs]) - {s for s, _ in self.substitutions}
        for _ in range(POINTS):
            point = {s: drawn(s, rng) for s in sorted(symbols, key=str)}
            try:
                inside = all(compared(d, sign, point) for d, sign in signs) and all(
                    (not s.is_positive or compared(self.settled(s), 1, point))
                    and (not s.is_negative or compared(self.settled(s), -1, point)) for s, _ in self.substitutions)
                if inside and abs(sympy.N(e.subs(point), 40)) > ROUNDING:
                    return True
            except (TypeError, ValueError, ZeroDivisionError):   # no number there
                continue
        return False

    def sign(self, x: Any) -> int:
        e = sympy.expand(x)
        if e in self.decided:
            return self.decided[e]
        e = sympy.expand(self.settled(x))
        if e in self.decided:
            return self.decided[e]
        if e.is_zero or e == 0:
            return 0
        if e.is_positive:
            return 1
        if e.is_negative:
            return -1
        found = below_an_exponential(e)
        if found is not None:
            return found[0] * self.sign(found[1])
        raise NeedCase(x, self.settled(x))


POINTS = 60
"""Where an expression is looked at that sympy does not show to be 0."""
ROUNDING = 1e-10
"""What numbers that a rule has computed of its attributes may be off, and refutes nothing."""


def drawn(symbol: Any, rng: random.Random) -> Any:
    """A number for a symbol, as its assumptions have it."""
    size = sympy.Rational(rng.randint(1, 400), rng.choice((16, 101, 997)))
    return size if symbol.is_positive else -size if symbol.is_negative else size * rng.choice((1, -1))


def compared(e: Any, sign: int, point: dict[Any, Any]) -> bool:
    """Has the expression this sign at the point?

    Raises
    ------
    TypeError : it is no real number there.
    """
    found = sympy.N(e.subs(point), 40, chop=False)
    value = float(found)
    if not math.isfinite(value):
        raise ValueError(str(found))
    return sign == (0 if abs(value) < 1e-25 else 1 if value > 0 else -1)


def below_an_exponential(e: Any) -> tuple[int, Any] | None:
    """For a exp(u) + b, numbers a and b of two signs: the sign of a, and u - log(-b / a), of which it has the sign."""
    b, rest = e.as_coeff_Add()
    a, power = rest.as_coeff_Mul()
    if not isinstance(power, sympy.exp) or not a * b < 0:
        return None
    return (1 if a > 0 else -1), power.args[0] - sympy.log(-b / a)


def fresh(prefix: str, shape: tuple[int, ...], positive: bool = False, negative: bool = False) -> Any:
    """An array of real symbols named prefix0, prefix1, ..."""
    out = np.empty(shape, dtype=object)
    kind = {"positive": True} if positive else {"negative": True} if negative else {"real": True}
    out.reshape(-1)[:] = [sympy.Symbol(f"{prefix}{k}" if out.size > 1 else prefix, **kind) for k in range(out.size)]
    return out


def is_zero(e: Any) -> bool:
    """Does sympy show that the expression is 0?  Cheap means first; never a numeric guess."""
    return soon_zero(e) or at_length_zero(e)


def at_length_zero(e: Any) -> bool:
    """Does sympy's simplification show that the expression is 0?  For some it has no end."""
    return bool(sympy.simplify(sympy.expand(e)) == 0)


def soon_zero(e: Any) -> bool:
    """Do expanding and a common denominator show that the expression is 0?"""
    if e == 0:
        return True
    e = sympy.expand(e)
    if e == 0:
        return True
    n = sympy.fraction(sympy.together(e))[0]
    if sympy.expand(n) == 0 or sympy.expand(sympy.powsimp(sympy.expand(n))) == 0:
        return True
    r = e.rewrite(sympy.exp)
    n = sympy.fraction(sympy.together(r))[0]
    return bool(sympy.expand(sympy.powsimp(sympy.expand(n))) == 0)
