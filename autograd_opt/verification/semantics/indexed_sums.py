"""Sums over indices of symbolic range, in a normal form in which equal sums look equal.

An `Entry` is one element of a tensor: a sum of terms, each a coefficient (a rational
function of sizes) times powers of atoms, summed over bound indices.  Atoms are entries of
tensors, `exp` and `log` of entries, and entries taken as bases of powers.  Normal form:
products are multiplied out and sums hoisted, Kronecker deltas contracted, a bound index that
nothing reads becomes its range, equal bases share one power, exponentials one exponent, and
bound indices are named by the smallest of their permutations, level by level.  So renaming of
indices, swapped sums, reassociated products and sums of ones need no rule of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import sympy

from autograd_opt.verification.semantics.domain import Outside

Index = str
Bound = tuple[tuple[Index, Any], ...]
"""Bound indices with their ranges, which are sympy symbols."""
MAX_BOUND = 6
ONE = Fraction(1)
_fresh = itertools.count()


@dataclass(frozen=True)
class Atom:
    """A tensor's entry (`name`, indices), a function (`exp`, `log`) of an entry, a base, or a delta."""

    kind: str
    name: str = ""
    indices: tuple[Index, ...] = ()
    inner: Entry | None = None

    @cached_property
    def key(self) -> str:
        return f"{self.kind}.{self.name}[{','.join(self.indices)}]" + (f"({self.inner.key})" if self.inner else "")

    @property
    def level(self) -> int:
        return 0 if self.inner is None else 1 + self.inner.level

    def renamed(self, names: dict[Index, Index]) -> Atom:
        """With other free indices."""
        inner = None if self.inner is None else self.inner.renamed(names)
        return Atom(self.kind, self.name, tuple([names.get(i, i) for i in self.indices]), inner)

    @property
    def free(self) -> set[Index]:
        return set(self.indices) | (set() if self.inner is None else self.inner.free)


@dataclass(frozen=True)
class Term:
    """Powers of atoms, summed over bound indices."""

    bound: Bound
    factors: tuple[tuple[Atom, Fraction], ...]

    @cached_property
    def key(self) -> str:
        return f"{self.bound}" + "*".join([f"{a.key}^{p}" for a, p in self.factors])

    @property
    def free(self) -> set[Index]:
        return set().union(*[a.free for a, _ in self.factors]) - {i for i, _ in self.bound}


@dataclass(frozen=True)
class Entry:
    """A sum of terms with coefficients, in normal form."""

    terms: tuple[tuple[Term, Any], ...] = ()
    level: int = field(default=0, compare=False)

    @cached_property
    def key(self) -> str:
        return "+".join([f"{c}*{t.key}" for t, c in self.terms]) or "0"

    @property
    def free(self) -> set[Index]:
        return set().union(*[t.free for t, _ in self.terms])

    def renamed(self, names: dict[Index, Index]) -> Entry:
        """With other free indices; bound ones are named anew."""
        return normal((c, t.bound, [(a.renamed(names), p) for a, p in t.factors]) for c, t in opened(self))

    def __add__(self, other: Entry) -> Entry:
        return collected([*self.terms, *other.terms])

    def __neg__(self) -> Entry:
        return self.scaled(sympy.Integer(-1))

    def __sub__(self, other: Entry) -> Entry:
        return self + -other

    def scaled(self, k: Any) -> Entry:
        return collected([(t, c * k) for t, c in self.terms])

    def __mul__(self, other: Entry) -> Entry:
        return normal(
            (a * b, s.bound + t.bound, [*s.factors, *t.factors]) for a, s in opened(self) for b, t in opened(other)
        )

    def summed(self, bound: Bound) -> Entry:
        """The sum over some of the free indices."""
        return normal((c, t.bound + bound, list(t.factors)) for c, t in opened(self))

    def raised(self, power: Fraction) -> Entry:
        """A power; integer powers of single products, and positive ones of sums, are multiplied out."""
        if power == 0:
            return number(1)
        if power.denominator == 1 and power > 0:
            return self if power == 1 else self * self.raised(power - 1)
        if len(self.terms) == 1 and not self.terms[0][0].bound:
            ((term, c),) = self.terms
            if not term.factors and (power.denominator == 1 or c.is_positive):
                return number(c ** sympy.Rational(power.numerator, power.denominator))
            if power.denominator == 1:
                return normal([(c ** int(power), (), [(a, p * power) for a, p in term.factors])])
        return normal([(sympy.Integer(1), (), [(Atom("base", inner=self), power)])])


def number(value: Any) -> Entry:
    """A constant."""
    return collected([(Term((), ()), sympy.sympify(value))])


def variable(name: str, indices: tuple[Index, ...]) -> Entry:
    """An entry of a tensor."""
    return Entry(((Term((), ((Atom("entry", name, indices), ONE),)), sympy.Integer(1)),))


def function(name: str, x: Entry) -> Entry:
    """exp or log of an entry; exp(k log z + r) is z**k exp(r)."""
    if name not in ("exp", "log"):
        raise Outside(f"{name} of symbolic size")
    return normal([(sympy.Integer(1), (), [(Atom(name, inner=x), ONE)])])


def delta(i: Index, j: Index) -> Atom:
    return Atom("delta", indices=(i, j))


def opened(x: Entry) -> list[tuple[Any, Term]]:
    """The terms, bound indices under names that occur nowhere else."""
    out = []
    for term, c in x.terms:
        names = {i: f"~{next(_fresh)}" for i, _ in term.bound}
        out.append((c, Term(tuple([(names[i], n) for i, n in term.bound]),
                            tuple([(a.renamed(names), p) for a, p in term.factors]))) if names else (c, term))
    return out


def collected(terms: Iterable[tuple[Term, Any]]) -> Entry:
    """Equal terms added up, in order."""
    total: dict[Term, Any] = {}
    for term, c in terms:
        total[term] = total.get(term, sympy.Integer(0)) + c
    kept = [(t, sympy.cancel(c)) for t, c in total.items()]
    kept = sorted([(t, c) for t, c in kept if c != 0], key=lambda tc: tc[0].key)
    return Entry(tuple(kept), max([a.level for t, _ in kept for a, _ in t.factors], default=0))


def normal(raw: Iterable[tuple[Any, Bound, list[tuple[Atom, Fraction]]]]) -> Entry:
    """The normal form of a sum of products; bound names must be unique in each."""
    out: list[tuple[Term, Any]] = []
    pending = list(raw)
    while pending:
        c, bound, factors = pending.pop()
        bound, factors = contract(bound, factors)
        powers, exponent = gathered(factors)
        whole = next((a for a, p in powers.items() if a.kind == "base" and p >= 1), None)
        if whole is not None:  # z**(3/2) is z * z**(1/2), and z is a sum
            assert whole.inner is not None
            rest = [(a, p - (a == whole)) for a, p in powers.items()] + exponent
            pending += [(c * k, bound + t.bound, [*rest, *t.factors]) for k, t in opened(whole.inner)]
            continue
        factors = [(a, p) for a, p in powers.items() if p] + exponent
        read = set().union(*[a.free for a, _ in factors])
        for i, n in bound:
            if i not in read:
                c = c * n
        out.append((canonical(tuple([b for b in bound if b[0] in read]), factors), c))
    return collected(out)


def contract(bound: Bound, factors: list[tuple[Atom, Fraction]]) -> tuple[Bound, list[tuple[Atom, Fraction]]]:
    """Sum over deltas."""
    while True:
        found = next((a for a, _ in factors if a.kind == "delta"), None)
        if found is None:
            return bound, factors
        factors = [(a, p) for a, p in factors if a != found]
        i, j = found.indices
        if i == j:
            continue
        names = {b for b, _ in bound}
        if i not in names:
            i, j = j, i
        if i not in names:
            raise Outside("a delta of two free indices")
        bound = tuple([b for b in bound if b[0] != i])
        factors = [(a.renamed({i: j}), p) for a, p in factors]


def gathered(factors: list[tuple[Atom, Fraction]]) -> tuple[dict[Atom, Fraction], list[tuple[Atom, Fraction]]]:
    """Powers added up, and one exponential of everything in exponents."""
    powers: dict[Atom, Fraction] = {}
    exponent = Entry()
    for atom, p in factors:
        if atom.kind == "exp":
            assert atom.inner is not None
            exponent = exponent + atom.inner.scaled(sympy.Rational(p.numerator, p.denominator))
        else:
            powers[atom] = powers.get(atom, Fraction(0)) + p
    rest = []
    for term, c in exponent.terms:
        (atom, p), *more = term.factors or ((Atom("none"), ONE),)
        if atom.kind == "log" and p == 1 and not more and not term.bound and c.is_Rational:
            assert atom.inner is not None
            base = Atom("base", inner=atom.inner)
            powers[base] = powers.get(base, Fraction(0)) + Fraction(int(c.p), int(c.q))
        else:
            rest.append((term, c))
    left = collected(rest)
    return powers, [(Atom("exp", inner=left), ONE)] if left.terms else []


def canonical(bound: Bound, factors: list[tuple[Atom, Fraction]]) -> Term:
    """Bound indices named by level, by the permutation that gives the smallest key."""
    if not bound:
        return Term((), tuple(sorted(factors, key=lambda ap: ap[0].key)))
    if len(bound) > MAX_BOUND:
        raise Outside("a sum over too many indices")
    level = max([a.level for a, _ in factors], default=0)
    best: Term | None = None
    ranges = sorted(bound, key=lambda b: str(b[1]))
    for order in itertools.permutations(ranges):
        if [str(n) for _, n in order] != [str(n) for _, n in ranges]:
            continue
        names = {i: f"{level}.{k}" for k, (i, _) in enumerate(order)}
        term = Term(tuple([(names[i], n) for i, n in order]),
                    tuple(sorted([(a.renamed(names), p) for a, p in factors], key=lambda ap: ap[0].key)))
        if best is None or term.key < best.key:
            best = term
    assert best is not None
    return best
