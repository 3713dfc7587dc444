"""What the words of `passes.rules` mean, on torch tensors and on arrays of sympy expressions.

`instances(rule)` lists ways to write a rule's pattern: shapes, dtypes, permutations and
numbers, among them many that its side conditions forbid.  `agree` runs pattern and
replacement on one of them and compares values and gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import torch

from autograd_opt.passes.data import (
    FUNCTIONS,
    axes_of,
    is_exact_product,
    is_exact_sum,
    is_identity,
    is_small_power_of_two,
    packed,
)
from autograd_opt.passes.rules import BITS, REALS, Rule
from autograd_opt.passes.terms import Term, bits_of, number_of, variables_of

Tensor = torch.Tensor
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, -1.5e-45, 6e-8, 65504.0, -3.3e38]
SHAPES: list[tuple[int, ...]] = [(4, 12), (12, 4), (1, 12), (48,), (1, 1)]
SMALL: list[tuple[int, ...]] = [(2, 3), (3, 2), (1, 3), (6,)]
NUMBERS = [1.0, -1.0, 0.0, -0.0, 2.0, 0.5, 3.0, 0.1, 2.0**-1050]
PERMUTATIONS = [packed(p) for p in ([0], [0, 1], [1, 0])]
AXES = [((0,), True), ((1,), True), ((0,), False)]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
LOOSE = 1e-9
"""Relative difference of two orders of arithmetic in float64."""


@dataclass(frozen=True)
class Instance:
    """Shapes of the variables, what stands in brackets, targets of reshapes and the like, and a dtype."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    data: tuple[tuple[str, Any], ...]
    targets: tuple[Any, ...]
    dtype: torch.dtype = torch.float64


class Impossible(Exception):
    """The instance does not fit together."""


class Mistyped(Exception):
    """Inside a replacement something is not of the type that the matcher takes it to have."""


WORDS: dict[str, Callable[..., Any]] = {
    "negate": lambda x, d: -x,
    "times": lambda x, c: x * c,
    "over": lambda x, c: x / c,
    "plus": lambda x, c: x + c,
    "minus": lambda x, c: x - c,
    "add": lambda x, y, d: x + y,
    "sub": lambda x, y, d: x - y,
    "mul": lambda x, y, d: x * y,
    "matmul": lambda x, y, d: x @ y,
    "reshape": lambda x, to: x.reshape(to),
}
ON_TENSORS: dict[str, Callable[..., Any]] = {
    **WORDS,
    "exp": lambda x, d: x.exp(),
    "log": lambda x, d: x.log(),
    "permute": lambda x, p: x.permute(axes_of(p)),
    "expand": lambda x, to: x.expand(to),
    "copy": lambda x, to: x.to(to, copy=True),
    "sum": lambda x, d: x.sum(*d),
}
ON_EXPRESSIONS: dict[str, Callable[..., Any]] = {
    **WORDS,
    "exp": lambda x, d: np.vectorize(sympy.exp, otypes=[object])(x),
    "log": lambda x, d: np.vectorize(sympy.log, otypes=[object])(x),
    "permute": lambda x, p: x.transpose(axes_of(p)),
    "expand": lambda x, to: np.broadcast_to(x, to),
    "copy": lambda x, to: x.copy(),
    "sum": lambda x, d: x.sum(axis=d[0], keepdims=d[1]),
}
TARGETED = ("reshape", "expand", "copy", "zero")


def symbols_of(term: Term) -> Iterator[str]:
    """The symbols of a term, outermost first."""
    if not term.is_variable:
        yield term.symbol
        for operand in term.operands:
            yield from symbols_of(operand)


def instances(rule: Rule, shapes: list[tuple[int, ...]], dtypes: list[torch.dtype]) -> Iterator[Instance]:
    """Every combination; many of them do not fit together."""
    names = sorted({v.name for v in variables_of(rule.left)})
    words = list(symbols_of(rule.left))
    moves = any(w in ("reshape", "expand", "permute", "sum", "matmul", "zero") for w in words)
    choices = shapes if moves or len(names) > 1 else shapes[:1]
    targets = [shapes if w != "copy" else [torch.float64, torch.float32] for w in words if w in TARGETED]
    data = sorted(data_of(rule.left))
    values = [PERMUTATIONS if kind == "permute" else AXES if kind == "sum" else NUMBERS for _, kind in data]
    for dtype in dtypes:
        for chosen in itertools.product(choices, repeat=len(names)):
            for numbers in itertools.product(*values):
                for to in itertools.product(*targets):
                    yield Instance(
                        tuple(zip(names, chosen, strict=True)),
                        tuple((name, v) for (name, _), v in zip(data, numbers, strict=True)), to, dtype,
                    )


def data_of(term: Term) -> set[tuple[str, str]]:
    """Data variables and the symbol they belong to."""
    found = {(name, term.symbol) for name in term.datum.names}
    return found.union(*map(data_of, term.operands))


def evaluate(term: Term, words: dict[str, Any], values: dict[str, Any], data: dict[str, Any], targets: list[Any],
             like: Any = None, inner: bool | None = None) -> Any:
    """The value of a term; `targets` are used up, outermost first.

    With `inner` a replacement is checked: what stands inside it has the type of its first operand.
    """
    if term.is_variable:
        return values[term.name]
    if term.symbol == "zero":
        shape = targets.pop(0)
        return torch.zeros(shape, dtype=like.dtype) if isinstance(like, Tensor) else np.full(shape, sympy.S.Zero)
    datum: Any = data[term.datum.names[0]] if term.datum.kind == "variable" else number_of(term.datum.bits)
    if term.datum.kind in FUNCTIONS:
        datum = computed(term.datum.kind, [data[name] for name in term.datum.names])
    if term.symbol in TARGETED:
        datum = targets.pop(0)
    operands = [evaluate(o, words, values, data, targets, like, None if inner is None else True) for o in term.operands]
    try:
        result = words[term.symbol](*operands, datum)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise Impossible(str(error)) from error
    if inner and (result.shape != operands[0].shape or result.dtype != operands[0].dtype):
        raise Mistyped(f"{term.symbol} of {list(operands[0].shape)} inside is {list(result.shape)}")
    return result


EXACT = {"exact_product": is_exact_product, "exact_sum": is_exact_sum}
ON_FRACTIONS: dict[str, Callable[..., Fraction]] = {
    "negative": lambda a: -a, "product": lambda a, b: a * b, "total": lambda a, b: a + b, "inverse": lambda a: 1 / a}


def rounded(term: Term, data: dict[str, Any]) -> str | None:
    """A number of a replacement that is not the one that the rule says, but near it."""
    kind, names = term.datum.kind, term.datum.names
    if kind in ON_FRACTIONS:
        given = [data[name] for name in names]
        found = computed(kind, given)
        if not math.isfinite(found) or Fraction(found) != ON_FRACTIONS[kind](*map(Fraction, given)):
            return f"number: {kind} of {given} is {found}, rounded"
    return next(filter(None, (rounded(o, data) for o in term.operands)), None)


def computed(kind: str, given: list[Any]) -> Any:
    """A datum of a replacement; numbers may be symbols."""
    if kind == "compose":
        return FUNCTIONS[kind](*given)
    if isinstance(given[0], sympy.Expr):
        return {"negative": lambda a: -a, "product": lambda a, b: a * b, "total": lambda a, b: a + b,
                "inverse": lambda a: 1 / a}[kind](*given)
    try:
        return number_of(FUNCTIONS[kind](*map(bits_of, given)))
    except ZeroDivisionError as error:
        raise Impossible(str(error)) from error


def holds(rule: Rule, values: dict[str, Any], data: dict[str, Any], whole: Any) -> bool:
    """Do the side conditions that speak of types and data hold?"""
    def type_of(x: Any) -> Any:
        return tuple(x.shape), x.dtype

    for condition in rule.conditions:
        names = condition.names
        if condition.question == "typed" and type_of(values[names[0]]) != type_of(whole):
            return False
        if condition.question == "alike" and type_of(values[names[0]]) != type_of(values[names[1]]):
            return False
        if condition.question == "identity" and not is_identity(data[names[0]]):
            return False
        if condition.question == "power_of_two" and isinstance(data[names[0]], float) \
                and not is_small_power_of_two(bits_of(data[names[0]])):
            return False
        if condition.question in EXACT and isinstance(data[names[0]], float) \
                and not EXACT[condition.question](*(bits_of(data[name]) for name in names)):
            return False
    return True


def filled(shape: tuple[int, ...], dtype: torch.dtype, special: bool, seed: int) -> Tensor:
    """A leaf: special values in an order of their own, or positive finite ones."""
    generator = torch.Generator().manual_seed(seed)
    n = math.prod(shape)
    if special:
        values = torch.tensor(SPECIAL * (n // len(SPECIAL) + 1), dtype=torch.float64)[:n]
        values = values[torch.randperm(n, generator=generator)]
        half = torch.rand(n, generator=generator, dtype=torch.float64) < 0.5
        values = torch.where(half, values, torch.randn(n, generator=generator, dtype=torch.float64))
    else:
        values = torch.rand(n, generator=generator, dtype=torch.float64) + 0.5
    return values.reshape(shape).to(dtype).requires_grad_()


def agree(rule: Rule, instance: Instance, special: bool) -> str | None:
    """What differs between pattern and replacement; None where nothing does.

    `special` fills the tensors with NaN, infinities, signed zeros and denormals among others.

    Raises
    ------
    Impossible : the pattern cannot be written so, or a side condition forbids it.
    """
    sides = []
    for term in (rule.left, rule.right):
        values = {n: filled(s, instance.dtype, special, k) for k, (n, s) in enumerate(instance.shapes)}
        targets = list(instance.targets) if term is rule.left else [
            sides[0][0].dtype if s == "copy" else tuple(sides[0][0].shape) for s in symbols_of(term) if s in TARGETED]
        like = next(iter(values.values()))
        try:
            whole = evaluate(term, ON_TENSORS, values, dict(instance.data), targets, like,
                             None if term is rule.left else False)
        except Mistyped as error:
            return str(error)
        if term is rule.left and not holds(rule, values, dict(instance.data), whole):
            raise Impossible("a side condition does not hold")
        if term is rule.left and rule.strength == REALS and (inexact := rounded(rule.right, dict(instance.data))):
            return inexact
        if whole.requires_grad:
            g = filled(tuple(whole.shape), whole.dtype, special, 99).detach()
            grads = torch.autograd.grad(whole, list(values.values()), g, allow_unused=True)
        else:
            grads = [None] * len(values)
        sides.append((whole.detach(), [torch.zeros_like(v) if d is None else d
                                       for v, d in zip(values.values(), grads, strict=True)]))
    (left, left_grads), (right, right_grads) = sides
    pairs = [("value", left, right)]
    pairs += [("gradient", a, b) for a, b in zip(left_grads, right_grads, strict=True)]
    for what, a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{what}: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
        if not (same_bits(a, b) if rule.strength == BITS else torch.allclose(a, b, LOOSE, LOOSE)):
            return f"{what}: {a} and {b}"
    return None


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, every NaN the same."""
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())


def counterexample(rule: Rule, most: int = 4000) -> tuple[Instance, str] | None:
    """The first instance on which the two sides differ."""
    tried = 0
    dtypes = DTYPES if rule.strength == BITS else DTYPES[:1]
    for instance in instances(rule, SHAPES, dtypes):
        try:
            found = agree(rule, instance, False) or (agree(rule, instance, True) if rule.strength == BITS else None)
        except Impossible:
            continue
        if found is not None:
            return instance, found
        tried += 1
        if tried >= most:
            break
    assert tried, f"{rule.name}: no instance was tried"
    return None


def prove(rule: Rule) -> int:
    """Prove a rule on small arrays of symbols; the number of instances proved.

    Numbers are symbols, shapes and permutations are all small ones that fit.
    """
    proved = 0
    for instance in instances(rule, SMALL, [torch.float64]):
        kinds = dict(data_of(rule.left))
        if any(v != NUMBERS[0] for n, v in instance.data if kinds[n] not in ("permute", "sum")):
            continue
        data = {n: v if kinds[n] in ("permute", "sum") else sympy.Symbol(n, positive=True) for n, v in instance.data}
        values = {n: np.array([sympy.Symbol(f"{n}{k}", positive=True) for k in range(math.prod(s))], object).reshape(s)
                  for n, s in instance.shapes}
        try:
            left = np.asarray(evaluate(rule.left, ON_EXPRESSIONS, values, data, list(instance.targets)), object)
            if not holds(rule, values, data, left) or torch.float32 in instance.targets:
                continue
            targets = [left.shape] * 4
            right = np.asarray(evaluate(rule.right, ON_EXPRESSIONS, values, data, targets), object)
        except Impossible:
            continue
        assert left.shape == right.shape, f"{rule.name} on {instance}"
        for a, b in zip(left.reshape(-1), right.reshape(-1), strict=True):
            assert sympy.simplify(sympy.nsimplify(a - b)) == 0, f"{rule.name} on {instance}: {a} is not {b}"
        proved += 1
        if proved == 12:
            break
    return proved
