"""Tensors of symbolic sizes, and what operators mean over them.

A dimension is a tuple of elementary sizes: empty for size 1, so that broadcasting is an
index that is not there; several where dimensions were flattened into one.  A tensor gives the
`Entry` at any indices.  A rule traced at prime sizes is read back as a program over symbolic
ones: every number in it that is a product of these primes is the product of their symbols.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verification.semantics.indexed_sums import (
    ONE,
    Atom,
    Entry,
    Index,
    Term,
    delta,
    function,
    normal,
    number,
    opened,
    variable,
)
from autograd_opt.verification.semantics.numeric_ops import axes_of

Dim = tuple[Any, ...]
Shape = tuple[Dim, ...]
Place = tuple[tuple[str, ...], ...]
HALF = Fraction(1, 2)
_bound = itertools.count()


class Forced(Outside):
    """Two sizes have to be one, or the operation is none."""

    def __init__(self, one: Any, other: Any):
        super().__init__(f"sizes that do not fit: {one} and {other}")
        self.pair = one, other


def require_same(one: Dim, other: Dim) -> None:
    """Hold two dimensions to be one.

    Raises
    ------
    Forced : they are of one elementary size each, and of two symbols.
    Outside : of several.
    """
    if one != other:
        if len(one) == len(other) == 1:
            raise Forced(one[0], other[0])
        raise Outside(f"sizes that do not fit: {one} and {other}")


@dataclass(frozen=True)
class Sized:
    """A tensor: shape, and the entry at indices, one tuple of names per dimension."""

    shape: Shape
    at: Callable[[Place], Entry]


SMALL = 16
"""Numbers of a rule that are not sizes have numerators and denominators up to here; all sizes are larger by far."""
POWERS = sorted(itertools.product((0, 1, 2, -1, -2), repeat=4), key=lambda powers: sum(map(abs, powers)))


class Sizes:
    """Symbols for numbers without common divisors: 101 is n, 101 * 103 is n * m."""

    def __init__(self, primes: Sequence[int]):
        self.symbols = {p: sympy.Symbol("nmkl"[k], integer=True, positive=True) for k, p in enumerate(primes)}

    def dim(self, size: int) -> Dim:
        """The elementary sizes of a dimension."""
        out = []
        for prime, symbol in self.symbols.items():
            while size % prime == 0:
                size //= prime
                out.append(symbol)
        if size != 1:
            raise Outside(f"a size of {size}")
        return tuple(out)

    def shape(self, sizes: Sequence[int]) -> Shape:
        return tuple([self.dim(int(s)) for s in sizes])

    def value(self, k: Any) -> Any:
        """A number of a rule: in terms of sizes where it is a product of them."""
        if isinstance(k, bool) or not isinstance(k, (int, float)):
            raise Outside(f"the number {k!r}")
        f = Fraction(k).limit_denominator(10**7)
        if abs(f - Fraction(k)) > Fraction(abs(k)) / 2**50:
            raise Outside(f"the number {k!r}")
        for powers in POWERS:            # a few sizes times a small number
            rest = f
            for size, power in zip(self.symbols, powers, strict=True):
                rest *= Fraction(size) ** power
            if abs(rest.numerator) <= SMALL and rest.denominator <= SMALL:
                return sympy.Rational(rest.numerator, rest.denominator) * sympy.prod(
                    [s ** -p for s, p in zip(self.symbols.values(), powers, strict=True)])
        return self.part(f.numerator) / self.part(f.denominator)

    def part(self, k: int) -> Any:
        out = sympy.Integer(1)
        for size, symbol in self.symbols.items():
            while k and k % size == 0:
                k //= size
                out *= symbol
        return out * k


def new_indices(shape: Shape) -> tuple[Place, tuple[tuple[str, Any], ...]]:
    """Indices that occur nowhere else, and their ranges."""
    place = tuple([tuple([f"!{next(_bound)}" for _ in dim]) for dim in shape])
    return place, tuple([(i, n) for dim, names in zip(shape, place, strict=True)
                         for i, n in zip(names, dim, strict=True)])


def flat(place: Place) -> tuple[str, ...]:
    return tuple([i for dim in place for i in dim])


def leaf(name: str, shape: Shape) -> Sized:
    return Sized(shape, lambda place: variable(name, flat(place)))


# ----- words -----
def broadcast(*shapes: Shape) -> Shape:
    rank = max(map(len, shapes))
    padded = [((),) * (rank - len(s)) + s for s in shapes]
    out = []
    for dims in zip(*padded, strict=True):
        real = [d for d in dims if d]
        for d in real[1:]:
            require_same(real[0], d)
        out.append(real[0] if real else ())
    return tuple(out)


def seen(x: Sized, place: Place) -> Entry:
    """The entry of a broadcast tensor."""
    tail = place[len(place) - len(x.shape):]
    return x.at(tuple([i if d else () for i, d in zip(tail, x.shape, strict=True)]))


def pointwise(op: Callable[..., Entry], *xs: Sized) -> Sized:
    return Sized(broadcast(*[x.shape for x in xs]), lambda place: op(*[seen(x, place) for x in xs]))


def reduced(x: Sized, dim: Any = None, keepdim: bool = False, dtype: Any = None, average: bool = False) -> Sized:
    axes = axes_of(dim, len(x.shape))
    shape = tuple([() if k in axes else d for k, d in enumerate(x.shape) if keepdim or k not in axes])
    count = sympy.prod([n for k in axes for n in x.shape[k]])

    def at(place: Place) -> Entry:
        inner, bound = new_indices(tuple([x.shape[k] for k in axes]))
        outer = iter([p for k, p in enumerate(place) if k not in axes] if keepdim else place)
        entry = x.at(tuple([inner[axes.index(k)] if k in axes else next(outer) for k in range(len(x.shape))]))
        total = entry.summed(bound)
        return total.scaled(1 / count) if average else total

    return Sized(shape, at)


def sum_to(x: Sized, shape: Shape) -> Sized:
    lead = len(x.shape) - len(shape)
    axes = tuple(range(lead)) + tuple([lead + k for k, d in enumerate(shape) if not d and x.shape[lead + k]])
    return reshaped(reduced(x, axes, True), shape) if axes else x


def reshaped(x: Sized, shape: Shape) -> Sized:
    """The same elements in the same order: elementary sizes are regrouped, never split."""
    if len(flat(x.shape)) != len(flat(shape)):
        raise Outside(f"a view of {x.shape} as {shape}")
    for one, other in zip(flat(x.shape), flat(shape), strict=True):
        require_same((one,), (other,))

    def at(place: Place) -> Entry:
        names = iter(flat(place))
        return x.at(tuple([tuple([next(names) for _ in dim]) for dim in x.shape]))

    return Sized(shape, at)


def permuted(x: Sized, dims: Sequence[int]) -> Sized:
    order = [d % len(x.shape) for d in dims]
    return Sized(tuple([x.shape[d] for d in order]),
                 lambda place: x.at(tuple([place[order.index(k)] for k in range(len(order))])))


def swapped(x: Sized, a: int, b: int) -> Sized:
    order = list(range(len(x.shape)))
    a, b = a % len(order), b % len(order)
    order[a], order[b] = b, a
    return permuted(x, order)


def expanded(x: Sized, shape: Shape) -> Sized:
    for have, want in zip(x.shape, shape[len(shape) - len(x.shape):], strict=True):
        if have:
            require_same(have, want)
    return Sized(shape, lambda place: seen(x, place))


def inserted(x: Sized, dim: int) -> Sized:
    dim %= len(x.shape) + 1
    return reshaped(x, (*x.shape[:dim], (), *x.shape[dim:]))


def squeezed(x: Sized, dim: Any) -> Sized:
    axes = axes_of(dim, len(x.shape))
    return reshaped(x, tuple([d for k, d in enumerate(x.shape) if d or k not in axes]))


def matmul(x: Sized, y: Sized) -> Sized:
    if len(x.shape) == 1:
        return squeezed(matmul(inserted(x, 0), y), -2 if len(y.shape) > 1 else -1) if len(y.shape) > 1 else dot(x, y)
    if len(y.shape) == 1:
        return squeezed(matmul(x, inserted(y, 1)), -1)
    left = Sized((*x.shape[:-1], (), x.shape[-1]), lambda p: x.at((*p[:-2], p[-1])))
    turned = swapped(y, -1, -2)
    right = Sized((*turned.shape[:-2], (), *turned.shape[-2:]), lambda p: turned.at((*p[:-3], *p[-2:])))
    return reduced(pointwise(Entry.__mul__, left, right), -1)


def dot(x: Sized, y: Sized) -> Sized:
    return reduced(pointwise(Entry.__mul__, x, y), 0)


def linear(x: Sized, weight: Sized, bias: Sized | None = None) -> Sized:
    out = matmul(x, swapped(weight, -1, -2))
    return out if bias is None else pointwise(Entry.__add__, out, bias)


def einsum(*xs: Sized, equation: str = "") -> Sized:
    left, _, out = equation.partition("->")
    letters = out + "".join(sorted({c for c in left if c.isalpha()} - set(out)))
    spread = []
    for term, x in zip(left.split(","), xs, strict=True):
        turned = permuted(x, [term.index(c) for c in letters if c in term])
        dims = iter(turned.shape)
        spread.append(reshaped(turned, tuple([next(dims) if c in term else () for c in letters])))
    total = spread[0]
    for x in spread[1:]:
        total = pointwise(Entry.__mul__, total, x)
    return reduced(total, tuple(range(len(out), len(letters)))) if len(letters) > len(out) else total


def exp(x: Sized) -> Sized:
    return pointwise(lambda e: function("exp", e), x)


def log(x: Sized) -> Sized:
    return pointwise(lambda e: function("log", e), x)


def power(x: Sized, k: Fraction) -> Sized:
    return pointwise(lambda e: e.raised(k), x)


def divided(x: Sized, y: Sized) -> Sized:
    return pointwise(lambda a, b: a * b.raised(-ONE), x, y)


def constant(k: Any) -> Sized:
    return Sized((), lambda place: number(k))


def scaled(x: Sized, k: Any) -> Sized:
    return x if k == 1 else pointwise(lambda e: e.scaled(k), x)


# ----- derivatives -----
def derivative(x: Entry, name: str, indices: tuple[Index, ...]) -> Entry:
    """The derivative by one entry of a tensor."""
    return normal((c, t.bound, list(t.factors)) for c, t in raw_derivative(x, name, indices))


def raw_derivative(x: Entry, name: str, indices: tuple[Index, ...]) -> list[tuple[Any, Term]]:
    """The derivative of something inside, whose deltas may meet indices that are bound outside."""
    out: list[tuple[Any, Term]] = []
    for c, term in opened(x):
        for k, (atom, p) in enumerate(term.factors):
            power = sympy.Rational(p.numerator, p.denominator)
            rest = (*term.factors[:k], (atom, p - 1), *term.factors[k + 1:])
            if atom.kind == "entry":
                if atom.name == name:
                    deltas = tuple([(delta(a, b), ONE) for a, b in zip(atom.indices, indices, strict=True)])
                    out.append((c * power, Term(term.bound, (*rest, *deltas))))
                continue
            assert atom.inner is not None
            outer = {"exp": ((atom, ONE),), "log": ((Atom("base", inner=atom.inner), -ONE),), "base": ()}[atom.kind]
            out += [(c * power * d, Term(term.bound + t.bound, (*rest, *outer, *t.factors)))
                    for d, t in raw_derivative(atom.inner, name, indices)]
    return out


def is_zero(x: Entry) -> bool:
    """Is the entry 0?  Bases that no bound index reaches are cleared from denominators first."""
    for _ in range(4):
        if not x.terms:
            return True
        lowest: dict[Atom, Fraction] = {}
        for term, _c in x.terms:
            inner = {i for i, _ in term.bound}
            for atom, p in term.factors:
                if atom.kind == "base" and p < 0 and not atom.free & inner:
                    lowest[atom] = min(lowest.get(atom, Fraction(0)), p)
        if not lowest:
            return False
        clear = [(a, -p) for a, p in lowest.items()]
        x = normal((c, t.bound, [*t.factors, *clear]) for c, t in opened(x))
    return not x.terms
