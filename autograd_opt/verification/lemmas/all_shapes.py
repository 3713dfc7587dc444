# ruff: noqa: E501 (an operator is one line)
"""Lemmas for all sizes: matrix products, reductions, softmax, layer norm and broadcasting.

An operator's value and its traced rule are evaluated on entries with symbolic indices; the
derivative of the sum of g f(x) by one entry of each operand must be the rule's entry, in the normal form
of `indexed`.  The rule is traced at two sets of prime sizes, which must give the same program
in symbols: so a rule that looks at sizes as anything but products is not called proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy
import torch

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas.claims import coded
from autograd_opt.verification.lemmas.watched import Turned
from autograd_opt.verification.program.instruction_names import FULL
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.linear import JOINTLY, joint_slots, slots
from autograd_opt.verification.program.rule_traces import laid_out, trace_rule
from autograd_opt.verification.program.tracer import Tracer
from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verification.semantics.evaluate import placed, traced_formula
from autograd_opt.verification.semantics.indexed_sums import ONE, Entry, variable
from autograd_opt.verification.semantics.numeric_ops import cast
from autograd_opt.verification.semantics.real_numbers import require_real
from autograd_opt.verification.semantics.symbolic_shapes import (
    HALF,
    Sized,
    Sizes,
    constant,
    derivative,
    divided,
    dot,
    einsum,
    exp,
    expanded,
    flat,
    inserted,
    is_zero,
    leaf,
    linear,
    log,
    matmul,
    new_indices,
    permuted,
    pointwise,
    power,
    reduced,
    reshaped,
    scaled,
    squeezed,
    sum_to,
    swapped,
)

PRIMES = ((101, 103, 107, 109), (128, 81, 137, 127), (131, 128, 81, 113), (81, 113, 128, 131), (113, 107, 81, 128))
"""Choices of the sizes a, b, c, d, without common divisors: of each, odd and even ones."""


@dataclass(frozen=True)
class SizedCase:
    """Operand shapes as words (`ab`: sizes a and b; `a1`: a and 1), and attributes, sizes in them as words too."""

    shapes: tuple[str | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(repr(self))


def on(*shapes: str | None, **attributes: Any) -> SizedCase:
    return SizedCase(shapes, attributes)


def total(x: Sized, y: Sized, k: Any = 1) -> Sized:
    return pointwise(Entry.__add__, x, scaled(y, k))


def product(x: Sized, y: Sized) -> Sized:
    return pointwise(Entry.__mul__, x, y)


def softmax(x: Sized, dim: int = -1, dtype: Any = None) -> Sized:
    return divided(exp(x), reduced(exp(x), dim, True))


def logsumexp(x: Sized, dim: Any = None, keepdim: bool = False) -> Sized:
    return log(reduced(exp(x), dim, keepdim))


def layer_norm(x: Sized, weight: Sized | None = None, bias: Sized | None = None, normalized_shape: Any = (), eps: Any = 1) -> Sized:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = total(x, reduced(x, axes, True, average=True), -1)
    out = product(centred, power(total(reduced(product(centred, centred), axes, True, average=True), constant(eps)), -HALF))
    out = out if weight is None else product(out, weight)
    return out if bias is None else total(out, bias)


def affine(of: Callable[[Sized, Sized], Sized]) -> Callable[..., Sized]:
    return lambda x, y, z, beta=1, alpha=1: total(scaled(x, beta), scaled(of(y, z), alpha))


def outer(x: Sized, y: Sized) -> Sized:
    return product(inserted(x, 1), inserted(y, 0))


def mse(x: Sized, y: Sized, reduction: int = 0) -> Sized:
    d = total(x, y, -1)
    return product(d, d) if reduction == 0 else reduced(product(d, d), average=reduction == 1)


def raised(x: Sized, y: Any) -> Sized:
    entry = y.at(())
    if entry.terms and (entry.terms[0][0].factors or not entry.terms[0][1].is_Rational):
        raise Outside("a power that is no number")
    return power(x, Fraction(str(entry.terms[0][1])) if entry.terms else Fraction(0))


SIZED: dict[str, Callable[..., Sized]] = {
    "add": lambda x, y, alpha=1: total(x, y, alpha), "sub": lambda x, y, alpha=1: total(x, y, -alpha),
    "rsub": lambda x, y, alpha=1: total(y, x, -alpha), "mul": product, "div": divided, "neg": lambda x: scaled(x, -1),
    "positive": lambda x: x, "square": lambda x: product(x, x), "reciprocal": lambda x: power(x, -ONE), "pow": raised,
    "exp": exp, "log": log, "sqrt": lambda x: power(x, HALF), "rsqrt": lambda x: power(x, -HALF),
    "addcmul": lambda x, y, z, value=1: total(x, product(y, z), value), "addcdiv": lambda x, y, z, value=1: total(x, divided(y, z), value),
    "lerp": lambda x, y, weight: total(x, product(weight, total(y, x, -1))),
    "sum": reduced, "mean": lambda x, dim=None, keepdim=False, dtype=None: reduced(x, dim, keepdim, average=True),
    "sum_to_size": lambda x, size=(): sum_to(x, size), "expand": lambda x, size=(): expanded(x, size), "broadcast_to": lambda x, size=(): expanded(x, size),
    "unsqueeze": lambda x, dim=0: inserted(x, dim), "squeeze": lambda x, dim=(): squeezed(x, dim or None),
    "mT": lambda x: swapped(x, -1, -2), "mH": lambda x: swapped(x, -1, -2), "t": lambda x: permuted(x, range(len(x.shape))[::-1]),
    "T": lambda x: permuted(x, range(len(x.shape))[::-1]), "H": lambda x: permuted(x, range(len(x.shape))[::-1]),
    "transpose": lambda x, dim0=0, dim1=0: swapped(x, dim0, dim1), "permute": lambda x, dims: permuted(x, dims),
    "view": lambda x, shape: reshaped(x, shape), "reshape": lambda x, shape: reshaped(x, shape), "ravel": lambda x: reshaped(x, (flat(x.shape),)),
    "flatten": lambda x, start_dim=0, end_dim=-1: reshaped(x, (*x.shape[:start_dim], flat(x.shape[start_dim:end_dim % len(x.shape) + 1]), *x.shape[end_dim % len(x.shape) + 1:])),
    "clone": lambda x: x, "contiguous": lambda x: x, "cast": cast, **dict.fromkeys(("to_float", "to_double", "to_half", "to_bfloat16"), lambda x: x),
    "to": lambda x, dtype=None: cast(x, (dtype,)),
    "matmul": matmul, "mm": matmul, "bmm": matmul, "mv": matmul, "dot": dot, "vdot": dot, "outer": outer, "linear": linear, "einsum": einsum,
    "addmm": affine(matmul), "baddbmm": affine(matmul), "addmv": affine(matmul), "addr": affine(outer),
    "addbmm": affine(lambda y, z: reduced(matmul(y, z), 0)),
    "softmax": softmax, "log_softmax": lambda x, dim=-1, dtype=None: total(x, logsumexp(x, dim, True), -1), "logsumexp": logsumexp,
    "layer_norm": layer_norm, "mse_loss": mse,
}
"""What operators mean over tensors of symbolic sizes."""
BOTH = (on("ab", "b"), on("a1", "b"), on("ab", "ab"), on("", "ab"))
SIZED_CASES: dict[str, tuple[SizedCase, ...]] = {
    **dict.fromkeys(["add", "sub", "rsub", "mul", "div"], BOTH),
    **dict.fromkeys(["addcmul", "addcdiv", "lerp"], (on("ab", "b", "a1"),)),
    **dict.fromkeys(["neg", "square", "reciprocal", "exp", "log", "sqrt", "rsqrt"], (on("ab"),)),
    **dict.fromkeys(["sum", "mean"], (on("ab"), on("ab", dim=1), on("ab", dim=(0,), keepdim=True), on("abc", dim=(0, 2)))),
    "sum_to_size": (on("ab", size="b"), on("ab", size="a1"), on("abc", size="1c")),
    **dict.fromkeys(["expand", "broadcast_to"], (on("a1", size="ab"), on("b", size="ab"))),
    "unsqueeze": (on("ab", dim=1),), "squeeze": (on("a1b", dim=(1,)),),
    **dict.fromkeys(["mT", "t", "T", "mH", "H", "ravel"], (on("ab"),)), "transpose": (on("abc", dim0=0, dim1=2),),
    "permute": (on("abc", dims=(2, 0, 1)),), "flatten": (on("abc", start_dim=1),),
    **dict.fromkeys(["view", "reshape"], (on("ab", shape="a1b"),)),
    "matmul": (on("ab", "bc"), on("b", "b"), on("ab", "b"), on("b", "bc"), on("abc", "cd"), on("abc", "acd"), on("1bc", "acd")),
    "mm": (on("ab", "bc"),), "bmm": (on("abc", "acd"),), "mv": (on("ab", "b"),), "dot": (on("a", "a"),), "vdot": (on("a", "a"),),
    "outer": (on("a", "b"),), "linear": (on("ab", "cb", "c"), on("ab", "cb", None), on("abc", "dc", "d")),
    "einsum": (on("ab", "bc", equation="ij,jk->ik"), on("abc", "cd", equation="bij,jk->bik"), on("ab", equation="ij->j")),
    "addmm": (on("ac", "ab", "bc", alpha=2, beta=3),), "baddbmm": (on("abd", "abc", "acd", beta=2),), "addmv": (on("a", "ab", "b", alpha=2),),
    "addbmm": (on("bd", "abc", "acd", alpha=2),), "addr": (on("ab", "a", "b", beta=2),),
    **dict.fromkeys(["softmax", "log_softmax"], (on("ab", dim=1), on("ab", dim=0), on("abc", dim=-1))),
    "logsumexp": (on("ab", dim=1), on("ab", dim=(0, 1)), on("ab", dim=0, keepdim=True)),
    "layer_norm": (on("ab", "b", "b", normalized_shape="b"), on("ab", None, None, normalized_shape="b"), on("abc", "bc", "bc", normalized_shape="bc")),
    "mse_loss": (on("ab", "ab", reduction=1), on("ab", "ab", reduction=2), on("ab", "ab", reduction=0)),
    **dict.fromkeys(["softmax_backward", "log_softmax_backward"], (on("ab", "ab", dim=1, dtype=torch.float64),)),
    "mse_loss_backward": (on("", "ab", "ab"),),
}
"""Cases that are proved for all sizes of their letters."""
SHAPES = ("size", "shape", "normalized_shape")


class Instance:
    """A case at one choice of primes: concrete types, and the symbols they stand for."""

    def __init__(self, op: str, case: SizedCase, primes: Sequence[int], tracer: Callable[..., Tracer] = Tracer):
        self.op, self.sizes, self.tracer = op, Sizes(primes), tracer
        self.length = dict(zip("abcd", primes, strict=True)) | {"1": 1}
        self.vocabulary = Vocabulary()
        self.types = [None if s is None else self.typed([self.length[c] for c in s]) for s in case.shapes]
        self.leaves = [None if s is None else leaf("xyz"[k], self.sizes.shape([self.length[c] for c in s]))
                       for k, s in enumerate(case.shapes)]
        values = {k: tuple([self.length[c] for c in v]) if k in SHAPES else v for k, v in case.attributes.items()}
        attributes = coded(op, values)
        self.ans = self.apply(Head(op, attributes, 0, True, 0), [x for x in self.leaves if x is not None],
                              [t for t in self.types if t is not None])
        shape = [int(sympy.prod(d).subs({s: p for p, s in self.sizes.symbols.items()})) if d else 1 for d in self.ans.shape]
        self.head = self.vocabulary.heads[self.vocabulary.head(op, attributes, self.typed(shape), True, 0)]

    def typed(self, shape: Sequence[int]) -> int:
        return self.vocabulary.type(tuple(shape), torch.float64, "cpu")

    def apply(self, head: Head, args: Sequence[Sized], types: Sequence[int]) -> Sized:
        """The value of one instruction, numbers at operand places included."""
        require_real(self.vocabulary, head, types)
        if head.op == FULL:
            return expanded(constant(self.sizes.value(head.value("value"))), self.sizes.shape(self.vocabulary.types[head.type].shape or ()))
        table = OPS.get(head.op)
        if head.op not in SIZED:
            if table is None or table.meaning is None:
                raise Outside(f"{head.op} has no meaning for symbolic sizes")
            return self.formula(table.meaning, head, table, args, types)
        operands, values = placed(head, args, lambda value: constant(self.sizes.value(value)))
        if head.op == "layer_norm":
            values = {**OPS["layer_norm"].attributes, **values}
        for k in SHAPES:
            if k in values:
                shape = values[k]
                values[k] = self.sizes.shape(shape[0] if shape and isinstance(shape[0], (tuple, list)) else shape)
        if "eps" in values:
            values["eps"] = sympy.Rational(str(values["eps"]))
        return SIZED[head.op](*operands, **values)

    def formula(self, fn: Callable[..., Any], head: Head, op: Any, args: Sequence[Sized], types: Sequence[int]) -> Sized:
        """A kernel by its formula in torch's operations, traced."""
        steps, _, last = traced_formula(self.vocabulary, fn, head, op, types)
        return self.steps(steps, list(args), list(types))[last]

    def steps(self, steps: Sequence[tuple[int, tuple[int, ...]]], values: list[Any], types: list[Any]) -> list[Any]:
        """All values, after these steps."""
        for number_of_head, refs in steps:
            head = self.vocabulary.heads[number_of_head]
            values.append(self.apply(head, [values[r] for r in refs], [types[r] for r in refs]))
            types.append(head.type)
        return values

    def cotangents(self) -> dict[int, Sized]:
        """What the rule gives for each operand, from a cotangent called g."""
        g = leaf("g", self.ans.shape)
        needs = [t is not None for t in self.types]
        if self.op in KERNELS:
            present = [g, *[x for x in self.leaves if x is not None]]
            kinds = [self.head.type, *[t for t in self.types if t is not None]]
            absent = tuple([(n, "N") for n, t in zip(OPS[self.op].operands, self.types, strict=True) if t is None])
            head = Head(self.op, (*absent, *self.head.attributes), self.head.type, False, 0)
            return {k: self.formula(fn, head, OPS[self.op], present, kinds) for k, fn in enumerate(KERNELS[self.op]) if needs[k]}
        template = trace_rule(self.vocabulary, OPS[self.op], self.head, self.types, needs, tracer=self.tracer)
        values = self.steps(template.steps, [g, self.ans, *self.leaves], [self.head.type, self.head.type, *self.types])
        return {k: values[position] for k, position in template.results}

    def spelled(self) -> str:
        """The entries of everything, for comparison between choices of primes."""
        return " | ".join(f"{k}: {x.at(named('pqrs', x)).key}" for k, x in sorted(self.cotangents().items()))


def named(letters: str, x: Sized) -> tuple[tuple[str, ...], ...]:
    """Free indices with these letters."""
    rest = iter(letters)
    return tuple([tuple([next(rest) for _ in dim]) for dim in x.shape])


def gradient(op: str, case: SizedCase) -> str:
    """Is the rule the derivative, for all sizes?  The first difference, or an empty string."""
    return wrong_entry(op, case, Tracer) or (wrong_entry(op, case, Turned) if laid_out(OPS[op]) else "")


def wrong_entry(op: str, case: SizedCase, tracer: Callable[..., Tracer]) -> str:
    """The first difference between the rule, on such traces, and the derivative."""
    found = Instance(op, case, PRIMES[0], tracer)
    cotangents = found.cotangents()
    place, bound = new_indices(found.ans.shape)
    pairing = (variable("g", flat(place)) * found.ans.at(place)).summed(bound)
    for k, x in enumerate(found.leaves):
        if x is None:
            continue
        at = named("pqrs", x)
        expected = derivative(pairing, "xyz"[k], flat(at))
        given = cotangents[k].at(at) if k in cotangents else Entry()
        if k in cotangents and cotangents[k].shape != x.shape:
            return f"operand {k}: shape {cotangents[k].shape}, not {x.shape}"
        if not is_zero(given - expected):
            return f"operand {k}: the rule gives {given.key}, the derivative is {expected.key}"
    spelled = found.spelled()
    if any(Instance(op, case, sizes, tracer).spelled() != spelled for sizes in PRIMES[1:]):
        raise Outside("the rule is another one at other sizes")
    return ""


def linearity(op: str, case: SizedCase) -> str:
    """Is the operator linear where `linear` says so, for all sizes?  Also where it is so in several operands together."""
    found = Instance(op, case, PRIMES[0])
    floating = [t is not None for t in found.types if t is not None]
    present = [x for x in found.leaves if x is not None]
    kinds = [t for t in found.types if t is not None]
    together = [joint_slots(found.head, floating)] if op in JOINTLY else []
    a, b = sympy.symbols("alpha beta", real=True)
    for group in [*[(s,) for s in slots(found.head, floating)], *[t for t in together if t]]:
        u, v = ([leaf(f"{name}{k}", x.shape) if k in group else x for k, x in enumerate(present)] for name in "uv")
        mixed = [total(scaled(p, a), scaled(q, b)) if k in group else x
                 for k, (x, p, q) in enumerate(zip(present, u, v, strict=True))]
        whole, left, right = (found.apply(found.head, xs, kinds) for xs in (mixed, u, v))
        place = named("pqrs", whole)
        difference = whole.at(place) - left.at(place).scaled(a) - right.at(place).scaled(b)
        if not is_zero(difference):
            return f"operands {group}: {difference.key} is not 0"
    return ""
