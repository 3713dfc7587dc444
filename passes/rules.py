"""The rules of algebra, as data: pattern, replacement, side condition.

Words that patterns are written in, and what they stand for:

============================  =================================================
``negate``, ``exp``, ``log``  elementwise functions of one operand
``times[c]``, ``over[c]``     a floating real tensor and a Python number
``plus[c]``, ``minus[c]``
``permute[p]``                axes in another order, transposes included
``reshape``                   the same elements in row-major order, another shape
``expand``                    broadcast to a larger shape
``copy``                      the same values in other memory or another dtype
``sum[d]``                    over the axes ``d``
``zero``                      zeros
============================  =================================================

An operation recorded where gradients were off, though an operand of it asks for
one, is no word at all: nothing looks through it. So the words differ from what
they stand for in nothing but shape and dtype, which the side conditions ask:

``typed(x)``
    x has the shape, dtype, device and ``requires_grad`` of the whole term;
``alike(x, y)``
    they have one another's;
``identity(p)``, ``power_of_two(c)``
    the latter of small exponent;
``exact_product(a, b)``, ``exact_sum(a, b)``
    of two numbers is a number, without rounding;
``before(x, y)``
    x has the smaller number, which puts the operands of a sum in order;
``nested(x)``, ``single(x)``
    x has, or has not, the same symbol as the whole term.

A rule of strength ``BITS`` keeps every bit of the value, NaN, infinities, signed
zeros and denormals included, and every bit of what a cotangent becomes on its
way through. One of strength ``REALS`` is an identity of real numbers where both
sides are defined, and no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes.terms import Condition, Term, conditions_of, term_of

__all__ = ["BITS", "COMMUTES", "REALS", "RULES", "SYMBOLS", "Rule", "in_words_of", "rules_of"]

BITS, REALS = "bits", "reals"


@dataclass(frozen=True)
class Rule:
    """One line of the table.

    Examples
    --------
    >>> rule = Rule("double negation", "negate(negate(x))", "x")
    >>> rule.left.operands[0].symbol, rule.right.name
    ('negate', 'x')
    """

    name: str
    pattern: str
    replacement: str
    when: str = ""
    strength: str = BITS
    left: Term = field(init=False, repr=False, compare=False)
    right: Term = field(init=False, repr=False, compare=False)
    conditions: tuple[Condition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", term_of(self.pattern))
        object.__setattr__(self, "right", term_of(self.replacement))
        object.__setattr__(self, "conditions", conditions_of(self.when))

    @property
    def erases(self) -> bool:
        """Whether an operand of the pattern no longer occurs in the replacement."""
        return bool(_names(self.left) - _names(self.right))


SYMBOLS: dict[str, int] = {
    name: number
    for number, name in enumerate(
        """negate times over plus minus permute reshape expand copy
        add sub mul matmul exp log sum zero""".split(),
        start=1,
    )
}
"""Number of each symbol; 0 stands for every operation that no rule speaks of."""

COMMUTES = frozenset({"add", "mul"})
"""Symbols whose two operands match in either order."""

RULES: tuple[Rule, ...] = (
    # ----- every bit is kept -----
    Rule("double negation", "negate(negate(x))", "x"),
    Rule("permute of permute", "permute[p](permute[q](x))", "permute[q.p](x)"),
    Rule("identity permute", "permute[p](x)", "x", "identity(p)"),
    Rule("reshape of reshape", "reshape(reshape(x))", "reshape(x)"),
    Rule("reshape to itself", "reshape(x)", "x", "typed(x)"),
    Rule("expand to itself", "expand(x)", "x", "typed(x)"),
    Rule("copy", "copy(x)", "x", "typed(x)"),
    Rule("times one", "times[1](x)", "x"),
    Rule("over one", "over[1](x)", "x"),
    Rule("minus zero", "minus[0](x)", "x"),
    Rule("plus negative zero", "plus[-0](x)", "x"),
    Rule("times minus one", "times[-1](x)", "negate(x)"),
    Rule("negated factor", "times[c](negate(x))", "times[-c](x)"),
    Rule("negated product", "negate(times[c](x))", "times[-c](x)"),
    Rule("over a power of two", "over[c](x)", "times[1/c](x)", "power_of_two(c)"),
    Rule("minus a number", "minus[c](x)", "plus[-c](x)"),
    # ----- real numbers -----
    Rule("plus zero", "plus[0](x)", "x", "", REALS),
    Rule("sum of one element", "sum[d](x)", "x", "typed(x)", REALS),
    Rule("expand of expand", "expand(expand(x))", "expand(x)", "", REALS),
    Rule("log of exp", "log(exp(x))", "x", "", REALS),
    Rule("exp of log", "exp(log(x))", "x", "", REALS),
    Rule("two factors", "times[a](times[b](x))", "times[a*b](x)", "exact_product(a, b)", REALS),
    Rule("two summands", "plus[a](plus[b](x))", "plus[a+b](x)", "exact_sum(a, b)", REALS),
    Rule("times zero", "times[0](x)", "zero()", "", REALS),
    Rule("difference", "sub(x, y)", "add(x, negate(y))", "", REALS),
    Rule("minus itself", "add(x, negate(x))", "zero()", "", REALS),
    Rule("minus itself, in a sum", "add(add(y, x), negate(x))", "y", "typed(y)", REALS),
    Rule("nothing added", "add(x, zero())", "x", "typed(x)", REALS),
    Rule("product with zeros", "mul(x, zero())", "zero()", "", REALS),
    Rule("sum of sums", "add(x, add(y, z))", "add(add(x, y), z)", "nested(x); single(z); typed(x)", REALS),
    Rule("sum in order", "add(add(x, y), z)", "add(add(x, z), y)", "before(z, y); single(y); typed(x)", REALS),
    Rule("product of products", "mul(x, mul(y, z))", "mul(mul(x, y), z)", "nested(x); single(z); typed(x)", REALS),
    Rule("product in order", "mul(mul(x, y), z)", "mul(mul(x, z), y)", "before(z, y); single(y); typed(x)", REALS),
    Rule("common factor", "add(mul(a, x), mul(a, y))", "mul(a, add(x, y))", "alike(x, y)", REALS),
    Rule("sum before permute", "add(permute[p](x), permute[p](y))", "permute[p](add(x, y))", "alike(x, y)", REALS),
    Rule("sum before reshape", "add(reshape(x), reshape(y))", "reshape(add(x, y))", "alike(x, y)", REALS),
    Rule("sum before sum", "add(sum[d](x), sum[d](y))", "sum[d](add(x, y))", "alike(x, y)", REALS),
    Rule("sum before matmul", "add(matmul(a, x), matmul(a, y))", "matmul(a, add(x, y))", "alike(x, y)", REALS),
    Rule("sum before matmul, left", "add(matmul(x, a), matmul(y, a))", "matmul(add(x, y), a)", "alike(x, y)", REALS),
)


def rules_of(strength: str, rules: Iterable[Rule] = RULES) -> tuple[Rule, ...]:
    """Return the rules that may be used: all of them for ``REALS``.

    Examples
    --------
    >>> len(rules_of(BITS)) < len(rules_of(REALS)) == len(RULES)
    True
    """
    return tuple(rule for rule in rules if strength == REALS or rule.strength == BITS)


def in_words_of(table: tuple[Rule, ...], rules: tuple[Rule, ...], fired: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return bits that speak of `rules` as bits that speak of `table`.

    Raises
    ------
    ValueError
        If one of `rules` is not in `table`.
    """
    if rules == table[: len(rules)]:
        return fired
    out = np.zeros_like(fired)
    for k, rule in enumerate(rules):
        out |= (fired >> np.uint64(k) & np.uint64(1)) << np.uint64(table.index(rule))
    return out


def _names(term: Term) -> set[str]:
    return {term.name} if term.is_variable else set().union(*map(_names, term.operands))
