"""Lemmas for all sizes: the normal form, the operators, and rules that are wrong."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import sympy
from test_lemmas import Changed

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas import all_shapes, claims, pointwise, prover
from autograd_opt.verification.lemmas.all_shapes import PRIMES, SIZED_CASES, Instance, gradient, linearity, on
from autograd_opt.verification.lemmas.cases import CASES, Case
from autograd_opt.verification.lemmas.claims import forward, instance
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.linear import FOR_ALL_SIZES, JOINTLY, LINEAR
from autograd_opt.verification.semantics.index_ops import MOVEMENTS
from autograd_opt.verification.semantics.indexed_sums import ONE, function, number, variable
from autograd_opt.verification.semantics.operators import MEANING
from autograd_opt.verification.semantics.symbolic_shapes import is_zero
from autograd_opt.verification.semantics.symbols import Symbols

n, m, k = sympy.symbols("n m k", integer=True, positive=True)


def entry(name):
    return lambda *indices: variable(name, indices)


A, B, C, X = map(entry, "ABCX")


def E(*indices):
    return function("exp", X(*indices))


def Z(i):
    return E(i, "b").summed((("b", m),))


def over_a(x):
    return x.summed((("a", m),))


TRUE = {
    "names of indices": lambda: X("i", "b").summed((("b", m),)) - X("i", "c").summed((("c", m),)),
    "order of sums": lambda: (
        X("a", "b").summed((("b", m),)).summed((("a", n),)) - X("a", "b").summed((("a", n), ("b", m)))
    ),
    "a sum of ones": lambda: number(1).summed((("a", n),)) - number(n),
    "associativity": lambda: (
        ((A("i", "a") * B("a", "b")).summed((("a", m),)) * C("b", "j")).summed((("b", k),))
        - (A("i", "a") * (B("a", "b") * C("b", "j")).summed((("b", k),))).summed((("a", m),))
    ),
    "deviations add up to 0": lambda: (
        (X("i", "j") - X("i", "b").summed((("b", m),)).scaled(1 / m)).summed((("j", m),))
    ),
    "variance": lambda: (
        (lambda d: (d * d).summed((("j", m),)))(X("i", "j") - X("i", "b").summed((("b", m),)).scaled(1 / m))
        - (X("i", "j") * X("i", "j")).summed((("j", m),))
        + X("i", "b").summed((("b", m),)).raised(Fraction(2)).scaled(1 / m)
    ),
    "a softmax adds up to 1": lambda: (E("i", "j") * Z("i").raised(-ONE)).summed((("j", m),)) - number(1),
    "exp of log": lambda: function("exp", function("log", Z("i"))) - E("i", "c").summed((("c", m),)),
}
FALSE = {
    "another range": lambda: X("i", "b").summed((("b", m),)) - X("i", "b").summed((("b", n),)),
    "another index": lambda: X("i", "b").summed((("b", m),)) - X("b", "i").summed((("b", m),)),
    "sum of products": lambda: (
        (X("i", "j") * X("i", "j")).summed((("j", m),)) - X("i", "j").summed((("j", m),)).raised(Fraction(2))
    ),
    "a transposed factor": lambda: over_a(A("i", "a") * B("a", "j")) - over_a(A("i", "a") * B("j", "a")),
    "exp of a sum": lambda: function("exp", X("i", "b").summed((("b", m),))) - Z("i"),
    "m for m - 1": lambda: X("i").scaled(1 / m) - X("i").scaled(1 / (m - 1)),
}


@pytest.mark.parametrize("name", TRUE)
def test_equal_sums_have_one_normal_form(name):
    assert is_zero(TRUE[name]())


@pytest.mark.parametrize("name", FALSE)
def test_different_sums_have_not(name):
    assert not is_zero(FALSE[name]())


@pytest.mark.parametrize(
    "op", "matmul sum mean softmax log_softmax logsumexp linear einsum add mul div expand".split()
)
def test_rules_are_the_derivative_for_all_sizes(op):
    assert [gradient(op, case) for case in SIZED_CASES[op]] == [""] * len(SIZED_CASES[op])
    if op in LINEAR or op in JOINTLY:
        assert {linearity(op, case) for case in SIZED_CASES[op]} == {""}


def test_layer_norm_for_all_sizes():
    assert gradient("layer_norm", on("ab", "b", "b", normalized_shape="b")) == ""


WRONG = {
    "matmul": ("x", lambda g, y: g @ y, on("aa", "aa")),
    "mean": ("x", lambda g, x_shape: g.expand(x_shape), on("ab")),
    "softmax": ("x", lambda g, ans: ans * g, on("ab", dim=1)),
    "log_softmax": ("x", lambda g, ans, *, dim: g - g.sum(dim, keepdim=True) * ans, on("ab", dim=1)),
    "logsumexp": ("x", lambda g, x, *, dim, keepdim: g.unsqueeze(1) * x.exp(), on("ab", dim=1)),
    "sum": ("x", lambda g, x_shape: g.expand(x_shape) / x_shape[0], on("ab")),
    "div": ("y", lambda g, x, y: -g * x / y, on("ab", "ab")),
}


@pytest.mark.parametrize("op", WRONG)
def test_wrong_rules_are_refuted(op, monkeypatch):
    operand, rule, case = WRONG[op]
    monkeypatch.setitem(OPS, op, Changed(OPS[op], operand, rule))
    assert "the rule gives" in gradient(op, case)


def test_a_wrong_formula_of_a_kernel_is_refuted(monkeypatch):
    right = KERNELS["layer_norm"]

    def without_mean(g, x, weight, bias, **attributes):
        return right[0](g, x, weight, bias, **attributes) + g.mean(-1, keepdim=True)

    monkeypatch.setitem(KERNELS, "layer_norm", (without_mean, *right[1:]))
    assert "the rule gives" in gradient("layer_norm", on("ab", "b", "b", normalized_shape="b"))


def test_a_rule_that_looks_at_sizes_is_not_proved(monkeypatch):
    def rule(g, x, x_shape):
        return g * x.cos() if x_shape[0] == PRIMES[0][0] else g * x.sin()

    monkeypatch.setitem(OPS, "sin", Changed(OPS["sin"], "x", rule))
    assert "looks at sizes" in pointwise.everywhere("sin", CASES["sin"][0])

    def averaged(g, x_shape):
        return g.expand(x_shape) / (x_shape[0] * x_shape[1]) if x_shape[0] < PRIMES[1][0] else g.expand(x_shape)

    monkeypatch.setitem(OPS, "mean", Changed(OPS["mean"], "x", averaged))
    proof = claims.attempt("mean", "gradient", lambda: gradient("mean", on("ab")))
    assert (proof.status, proof.detail) == ("undecided", "the rule is another one at other sizes")


# ----- the meanings for all sizes are the meanings -----
SMALL = {"a": 2, "b": 3, "c": 2, "d": 1, "1": 1}


def at_small_sizes(op, case):
    """The symbolic entries at sizes 2, 3, 2, 1, as sympy expressions over the symbols of `claims.instance`."""
    found = Instance(op, case, PRIMES[0])
    sizes = dict(zip(found.sizes.symbols.values(), (2, 3, 2, 1), strict=True))
    shapes = [None if s is None else tuple(SMALL[c] for c in s) for s in case.shapes]
    values = {key: [SMALL[c] for c in v] if key in all_shapes.SHAPES else v for key, v in case.attributes.items()}
    small = Case(tuple(shapes), values)
    vocabulary, types, args = instance(op, small)
    _, expected = forward(Symbols(), op, small, vocabulary, types, args)
    arrays = {"xyz"[j]: a for j, a in enumerate(args) if a is not None}

    def spelled(e, where):
        total = sympy.Integer(0)
        for term, c in e.terms:
            for values_ in itertools.product(*[range(sizes[r]) for _, r in term.bound]):
                inner = where | dict(zip([i for i, _ in term.bound], values_, strict=True))
                product = sympy.sympify(c).subs(sizes)
                for atom, p in term.factors:
                    if atom.kind == "entry":
                        flat = [inner[i] for i in atom.indices]
                        value = np.squeeze(arrays[atom.name])[tuple(flat)]
                    else:
                        value = spelled(atom.inner, inner)
                        value = value if atom.kind == "base" else getattr(sympy, atom.kind)(value)
                    product *= value ** sympy.Rational(p.numerator, p.denominator)
                total += product
        return total

    place = all_shapes.named("pqrs", found.ans)
    names = [i for dim in place for i in dim]
    squeezed = np.squeeze(np.asarray(expected, dtype=object))
    # sizes that are 1 here but not for all sizes keep their index
    ranges = [sizes[r] for dim in found.ans.shape for r in dim]
    squeezed = squeezed.reshape(ranges)
    return [(spelled(found.ans.at(place), dict(zip(names, where, strict=True))), squeezed[where])
            for where in itertools.product(*map(range, ranges))]


SAME = [(op, k) for op in SIZED_CASES for k, case in enumerate(SIZED_CASES[op])
        if "d" not in "".join(s or "" for s in case.shapes) and op not in ("log", "sqrt", "rsqrt")]


@pytest.mark.parametrize(("op", "k"), SAME)
def test_meanings_agree_at_small_sizes(op, k):
    point = {}
    for got, expected in at_small_sizes(op, SIZED_CASES[op][k]):
        for s in got.free_symbols | expected.free_symbols:
            point.setdefault(s, sympy.Rational(1 + len(point), 7))
        difference = abs((got - expected).subs(point).evalf(30))
        assert difference < sympy.Float("1e-25"), (got, expected)


# ----- element by element, and movement -----
@pytest.mark.parametrize("op", ["sin", "gelu", "relu", "where", "add", "pow", "clamp", "tanh_backward"])
def test_functions_of_single_elements(op):
    assert [pointwise.everywhere(op, case) for case in CASES[op]] == [""] * len(CASES[op])


@pytest.mark.parametrize("op", ["softmax", "sum", "cumsum", "flip", "glu", "mse_loss", "matmul", "max_all"])
def test_what_is_no_function_of_single_elements(op):
    assert pointwise.everywhere(op, CASES[op][0])


@pytest.mark.parametrize("op", [op for op in CASES if MEANING.get(op) in MOVEMENTS])
def test_movements_only_move(op):
    """On objects without arithmetic, every element of the result is one of them."""
    for case in CASES[op]:
        made, args = set(), []
        for j, shape in enumerate(case.shapes):
            if j in case.values:
                args.append(case.values[j])
                continue
            x = np.empty(shape, dtype=object)
            x.reshape(-1)[:] = [object() for _ in range(x.size)]
            made |= set(x.reshape(-1))
            args.append(x)
        out = MEANING[op](None, *args, **case.attributes)
        for part in out if isinstance(out, tuple) else (out,):
            assert set(np.asarray(part, dtype=object).reshape(-1)) <= made


@pytest.mark.parametrize("op", sorted(FOR_ALL_SIZES))
def test_what_is_said_to_be_linear_for_all_sizes(op):
    tables = {"linear": LINEAR, "jointly": JOINTLY}
    small = {c: claims.Proof(op, c, "proved") for c, table in tables.items() if op in table}
    assert any(p.claim == "linear, all sizes" and p.proved for p in prover.for_all_sizes(op, small))
