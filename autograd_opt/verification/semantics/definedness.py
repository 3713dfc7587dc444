"""Where a rule is defined: what it divides by, and takes roots and logarithms of, beside what the derivative does.

sympy takes g x / x for g, though the machine finds no number at x = 0.  So what operations ask of their operands is
noted as they are evaluated; a rule is right where the operator is differentiable if nothing is asked of it that was not
asked by the operator or its derivative.  Shown by signs that sympy knows, and factor by factor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import sympy

NONZERO, NONNEGATIVE, REGULAR = "not 0", "not below 0", "no pole"
Condition = tuple[str, Any]
"""What is asked of an expression; a function with poles is named before the word."""


def asked_by(name: str, x: Any) -> list[Condition]:
    """What a function asks of its operand."""
    if name == "log":
        return [(NONZERO, x), (NONNEGATIVE, x)]
    if name == "sqrt":
        return [(NONNEGATIVE, x)]
    if name in ("asin", "acos", "atanh", "erfinv"):
        return [(NONNEGATIVE, 1 - x**2), *([(NONZERO, 1 - x**2)] if name in ("atanh", "erfinv") else [])]
    if name == "tan":
        return [(NONZERO, sympy.cos(x))]
    poles = name in ("lgamma", "digamma") or name.startswith("polygamma")
    return [(REGULAR, x)] if poles else []


def asked_by_power(x: Any, y: Any) -> list[Condition]:
    """What x ** y asks."""
    if y.is_Integer:
        return [(NONZERO, x)] if y < 0 else []
    return [(NONNEGATIVE, x), *([(NONZERO, x)] if not y.is_nonnegative else [])]


def asked_in(e: Any) -> list[Condition]:
    """What an expression asks of its parts."""
    out: list[Condition] = []
    for part in sympy.preorder_traversal(e):
        if part.is_Pow and part.base is not sympy.E:
            out += asked_by_power(part.base, part.exp)
        elif part.is_Function:
            out += asked_by({"loggamma": "lgamma"}.get(part.func.__name__, part.func.__name__), part.args[-1])
    return out


def core(e: Any) -> Any:
    """What is 0 where the expression is, without numbers and roots around it; expanded."""
    while True:
        parts = [f for f in sympy.Mul.make_args(e) if not f.is_number]
        if len(parts) != 1:
            break
        (e,) = parts
        if not (e.is_Pow and e.exp.is_Rational and e.exp > 0):
            break
        e = e.base
    e = sympy.expand(e)
    return (-e if e.could_extract_minus_sign() else e).as_content_primitive()[1]


@functools.lru_cache(256)
def factors(e: Any) -> dict[Any, int]:
    """The factors of an expression without numbers but -1, and how often each occurs."""
    out: dict[Any, int] = {}
    for part in sympy.fraction(sympy.together(e)):
        for factor, power in split(part):
            if factor.is_Pow and factor.exp.is_Rational and factor.exp > 0:  # a root asks by itself not to be of less
                found = factors(factor.base)
            elif factor.is_Mul or not sympy.sympify(power).is_Integer:
                parts = [factors(f) for f in sympy.Mul.make_args(factor)]
                found = {f: sum(p.get(f, 0) for p in parts) for p in parts for f in p}
            else:
                minus = factor.could_extract_minus_sign()
                factor = sympy.expand(-factor if minus else factor)
                found = {} if factor.is_number else {factor.as_content_primitive()[1]: 1}
                found |= {sympy.Integer(-1): 1} if minus else {}
            for f, n in found.items():
                out[f] = out.get(f, 0) + n * power
    return out


def split(e: Any) -> list[tuple[Any, int]]:
    """An expression's factors as sympy finds them; itself where it is no polynomial in anything."""
    if e.is_number:
        return [(e, 1)]
    try:
        coefficient, found = sympy.factor_list(e)
    except sympy.polys.polyerrors.BasePolynomialError:
        return [(e, 1)]
    return [(coefficient, 1), *found]


class Known:
    """What may be taken for granted: what the operator and its derivative ask."""

    def __init__(self, conditions: Iterable[Condition]):
        self.given = dict.fromkeys([(what, sympy.expand(e)) for what, e in conditions])

    def implies(self, what: str, e: Any) -> bool:
        """True if the condition follows."""
        if what is REGULAR:
            return bool(e.is_positive) or (what, sympy.expand(e)) in self.given
        if e.is_positive or (what is NONZERO and e.is_nonzero) or (what is NONNEGATIVE and e.is_nonnegative):
            return True
        if (what, sympy.expand(e)) in self.given:
            return True
        if what is NONZERO and core(e) in self.cores:
            return True
        if what is NONZERO:
            return all(f == -1 or f.is_nonzero or f in self.nonzero for f in factors(e))
        left = deciding(e)
        return not left or left in self.signed

    @functools.cached_property
    def cores(self) -> set[Any]:
        """What is not 0, as it stands."""
        return {core(e) for what, e in self.given if what is NONZERO}

    @functools.cached_property
    def nonzero(self) -> set[Any]:
        """Factors that are not 0."""
        return {f for what, e in self.given if what is NONZERO for f in factors(e)}

    @functools.cached_property
    def signed(self) -> list[set[Any]]:
        """The factors that decide the sign, of each expression that is not below 0."""
        return [deciding(e) for what, e in self.given if what is NONNEGATIVE]


def deciding(e: Any) -> set[Any]:
    """The factors that decide the sign of an expression, -1 among them."""
    return {f for f, n in factors(e).items() if n % 2 and not f.is_nonnegative}


def undefined(asked: Iterable[Condition], given: Iterable[Condition]) -> str:
    """What a rule asks beyond what is given, in words, or an empty string."""
    given = dict.fromkeys(given)
    wanted = [c for c in dict.fromkeys(asked) if c not in given]
    known = Known(given)
    return next((f"the rule asks that {e} is {what}" for what, e in wanted if not known.implies(what, e)), "")
