"""Gradients as formulas, before and after optimization."""

from __future__ import annotations

import re

import pytest
import sympy
import torch

import autograd_opt as ao
from autograd_opt.errors import ArgumentError


def leaf(*shape):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


@pytest.fixture
def graph():
    with ao.AutogradGraph(optimize=True) as graph:
        yield graph


def test_both_forms_are_the_derivative_and_the_optimized_one_is_shorter(graph):
    a, b = leaf(), leaf()
    _ = (a * b).sin() * (a * b)
    names = {"a": a, "b": b}
    before, after = graph.gradient_expression(a, False, names=names), graph.gradient_expression(a, names=names)
    x, y = sympy.symbols("a b", real=True)
    expected = sympy.diff(sympy.sin(x * y) * x * y, x)
    assert sympy.expand(after.elements.item() - expected) == 0
    assert sympy.expand(before.elements.item() - expected) == 0
    assert after.operations < before.operations
    assert [name for name, _ in after.lines()] == ["t0", "d/da"]
    assert str(after.named[0][1]) == "a*b"


@pytest.mark.parametrize("op", ["max", "min", "amax", "amin", "mean", "sum", "exp", "clone", "t", "ravel"])
def test_one_number_without_axes(graph, op):
    x = leaf()
    loss = (getattr(x, op)() * x).sum()
    found = graph.gradient_expression(x, names={"x": x}).elements.item()
    loss.backward()
    assert float(found.subs({symbol: x.item() for symbol in found.free_symbols})) == pytest.approx(x.grad.item())


def test_the_names_stand_for_what_they_say(graph):
    """Substituting the named values back gives the elements."""
    x, w = leaf(2, 2), leaf(2)
    _ = ((x @ w).tanh() * (x @ w)).sum()
    for optimized in (False, True):
        found = graph.gradient_expression(w, optimized)
        back = list(found.results)
        for name, e in reversed(found.named):
            back = [r.subs(name, e) for r in back]
        assert found.named
        assert all(sympy.expand(r - e) == 0 for r, e in zip(back, found.elements.reshape(-1), strict=True))


def test_it_is_the_number_that_backward_computes(graph):
    a, b = leaf(3), leaf()
    loss = ((a * b).exp() / (1 + (a * b) ** 2)).sum()
    found = graph.gradient_expression(b, names={"a": a, "b": b})
    loss.backward()
    point = {"b": b.item(), **{f"a_{k}": v for k, v in enumerate(a.tolist())}}
    formula = found.elements.item()
    value = formula.subs({s: point[str(s)] for s in formula.free_symbols})
    assert float(value) == pytest.approx(b.grad.item(), rel=1e-12)


def test_latex_and_compact(graph):
    a, b = leaf(2), leaf()
    _ = (a * b).sin().sum() + (a * b).sum()
    found = graph.gradient_expression(a, names={"a": a, "b": b})
    assert found.latex().startswith("\\begin{align*}")
    assert r"\frac{\partial L}{\partial a_{1}} &= " in found.latex()
    assert found.compact().operations <= found.operations


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: (leaf(50, 50) @ x).sum(), "pass limit="),
        (lambda x: x.relu().sum(), "branches on the sign"),
        (lambda x: torch.linalg.svdvals(x).sum(), "has no expression"),
        (lambda x: (x * 2, x * 3), "outputs="),
    ],
    ids=["too large", "branch", "no meaning", "two outputs"],
)
def test_refusals_say_what_to_do(graph, program, message):
    x = leaf(50, 50) if message == "pass limit=" else leaf(2, 2)
    kept = program(x)
    with pytest.raises(ArgumentError, match=message):
        graph.gradient_expression(x)
    del kept


def test_a_leaf_without_a_path_and_a_cleared_graph(graph):
    a, b = leaf(2), leaf(2)
    loss = (a * 2).sum()
    with pytest.raises(ArgumentError, match="has not seen this leaf"):
        graph.gradient_expression(b)
    c = (b * 2).sum()
    with pytest.raises(ArgumentError, match="no output depends"):
        graph.gradient_expression(b, outputs=loss)
    del c
    graph.clear()
    with pytest.raises(ArgumentError, match="cleared"):
        graph.gradient_expression(a)


@pytest.mark.parametrize("optimized", [False, True])
def test_a_result_with_a_twin_has_the_gradient_of_its_own_uses(graph, optimized):
    x, y = leaf(), leaf()
    a, b = x.sin(), x.sin()
    loss = a * y + b * b
    found = graph.gradient_expression(a, optimized, outputs=loss, names={"a": a, "y": y})
    assert str(found) == "d/da = y"
    assert graph.grad(loss, a)[0].item() == y.item()


def test_a_result_without_a_name_is_called_by_its_number(graph):
    x = leaf()
    y = x.sin()
    number = y.grad_fn.index
    assert str(graph.gradient_expression(y, outputs=y * y, names={"x": x})) == f"t0 = sin(x)\nd/dx{number} = 2*t0"
    with pytest.raises(ArgumentError, match="no output depends on x"):
        graph.gradient_expression(x.cos(), outputs=y)


def test_a_hook_on_the_way_is_named(graph):
    x = leaf()
    y = x.sin()
    y.retain_grad()
    with pytest.raises(ArgumentError, match="a hook or retain_grad sees a cotangent on the way"):
        graph.gradient_expression(x, outputs=y * y)


# ----- names -----
def test_no_two_values_have_one_name(graph):
    x, y = leaf(), leaf()
    loss = (x * y).sin() * (x * y)
    a, b = sympy.symbols("a b", real=True)
    expected = sympy.diff(sympy.sin(a * b) * a * b, a)
    for name in ("t0", "t1", "g0", *(f"x{t._node.index}" for t in (x, y))):
        for names in ({name: y}, {name: x}):
            found = graph.gradient_expression(x, outputs=loss, names=names)
            symbols = sorted({s.name for s in found.elements.item().free_symbols})
            assert len(symbols) == 2, (names, symbols)
            assert name in symbols
            assert not {str(s) for s, _ in found.named} & set(symbols)
            assert not {str(s) for s, _ in found.compact().named} & set(symbols)
            other = next(s for s in symbols if s != name)
            pair = (name, other) if names[name] is x else (other, name)
            renamed = expected.subs({a: sympy.Symbol(pair[0], real=True), b: sympy.Symbol(pair[1], real=True)})
            assert sympy.expand(found.elements.item() - renamed) == 0


def test_a_leaf_that_the_graph_has_not_seen_gives_its_name_to_no_other(graph):
    x, y, absent = leaf(), leaf(), leaf()
    text = str(graph.gradient_expression(x, outputs=x * y, names={"absent": absent, "x": x, "y": y}))
    assert text == "d/dx = y"


def test_names_that_would_be_written_alike_are_refused(graph):
    x, y = leaf(2), leaf()
    with pytest.raises(ArgumentError, match="u_1 would be a symbol of the leaf 'u' and of the leaf 'u_1': choose"):
        graph.gradient_expression(x, outputs=(x * y).sum(), names={"u": x, "u_1": y})
    with pytest.raises(ArgumentError, match="g0_0 would be a symbol of the cotangent of output 0 and of the leaf"):
        graph.gradient_expression(y, outputs=x * y, names={"g0": x})


@pytest.mark.parametrize("name", ["", "1", "a b", "a+b", 3, "x-y"])
def test_what_is_no_name_is_refused(graph, name):
    x = leaf()
    with pytest.raises(ArgumentError, match=r"is no name for a leaf: choose .*test_expressions"):
        graph.gradient_expression(x, outputs=x * x, names={name: x})
    assert str(graph.gradient_expression(x, outputs=x * x, names={"fc.weight": x})) == "d/dfc.weight = 2*fc.weight"


def test_latex_has_no_double_subscripts(graph):
    x, w = leaf(2, 2), leaf()
    found = graph.gradient_expression(x, outputs=(w * x * x).sum(), names={"x_1": x, "w_1_2": w})
    assert r"\frac{\partial L}{\partial x_{1,3}} &= 2 w_{1,2} x_{1,3}" in found.latex()
    text = graph.gradient_expression(x, outputs=x.exp().sum()).latex()
    assert not re.search(r"_\{[^{}]*\}_|_\w_|_\{\w+ \w+\}", text), text
