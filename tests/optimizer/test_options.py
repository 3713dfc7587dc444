"""Wrong options: an unknown one names the nearest, a number out of range says what is in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import autograd_opt as ao
from autograd_opt import errors
from autograd_opt.verify import Budget, verify

X = torch.ones(2)


def same(x: Any) -> Any:
    return x


def opened(call: Callable[[Any, Any, Any], Any]) -> Callable[[], Any]:
    """`call(graph, x, y)` inside a graph that has recorded y = sum(x²)."""
    def run() -> None:
        x = ao.tensor([1.0, 2.0])
        with ao.AutogradGraph(optimize=True) as graph:
            call(graph, x, (x * x).sum())
    return run


UNKNOWN: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a graph": (lambda: ao.AutogradGraph(optmize=True), "optmize", "optimize"),  # type: ignore[call-arg]
    "among others": (lambda: ao.AutogradGraph(True, name="x", alowance=3), "alowance", "allowance"),  # type: ignore[call-arg]
    "as a function": (lambda: ao.autograd_graph(pases=["cse"]), "pases", "passes"),
    "in capitals": (lambda: ao.autograd_graph(Verify=True), "Verify", "verify"),
    "backward": (opened(lambda g, x, y: g.backward(y, retain_grph=True)), "retain_grph", "retain_graph"),
    "grad": (opened(lambda g, x, y: g.grad(y, x, allow_unsed=True)), "allow_unsed", "allow_unused"),
    "verify": (opened(lambda g, x, y: g.verify(y, budgt=Budget())), "budgt", "budget"),
    "the verifier": (opened(lambda g, x, y: verify(g.tape.snapshot(), [y.grad_fn], engine=())), "engine", "engines"),
    "optimized": (opened(lambda g, x, y: g.optimized(output=y)), "output", "outputs"),
    "report": (opened(lambda g, x, y: g.report(output=y)), "output", "outputs"),
    "expressions": (opened(lambda g, x, y: g.gradient_expression(x, optimised=True)), "optimised", "optimized"),
    "plain data": (opened(lambda g, x, y: g.to_dict(optimise=True)), "optimise", "optimized"),
    "dot": (opened(lambda g, x, y: g.to_dot(limt=3)), "limt", "limit"),
    "mermaid": (opened(lambda g, x, y: g.to_mermaid(limt=3)), "limt", "limit"),
    "draw": (opened(lambda g, x, y: g.draw(pth="x.svg")), "pth", "path"),
    "a page": (opened(lambda g, x, y: g.to_html(pth="x.html")), "pth", "path"),
    "two pictures": (opened(lambda g, x, y: ao.draw_comparison(g, limt=3)), "limt", "limit"),
    "a pair": (opened(lambda g, x, y: g.explain(a=x, bb=y)), "bb", "b"),
    "watching": (lambda: ao.explain(budgt=1), "budgt", "budget"),  # type: ignore[call-arg]
    "functions": (lambda: ao.grad(same, argnum=1), "argnum", "argnums"),  # type: ignore[call-arg]
    "values": (lambda: ao.value_and_grad(same, hasaux=True), "hasaux", "has_aux"),  # type: ignore[call-arg]
    "jacobian": (lambda: ao.jacobian(same, X, optimise=True), "optimise", "optimize"),  # type: ignore[call-arg]
    "hessian": (lambda: ao.hessian(same, X, vectorise=True), "vectorise", "vectorize"),  # type: ignore[call-arg]
    "products": (lambda: ao.hvp(same, X, optimise=True), "optimise", "optimize"),
    "gradcheck": (lambda: ao.gradcheck(same, X, tol=1), "tol", "rtol"),  # type: ignore[call-arg]
    "second order": (lambda: ao.gradgradcheck(same, X, epsilon=1), "epsilon", "eps"),  # type: ignore[call-arg]
    "tensor": (lambda: ao.tensor([1.0], require_grad=True), "require_grad", "requires_grad"),  # type: ignore[call-arg]
    "plans": (lambda: ao.compile(same, exat=True), "exat", "exact"),  # type: ignore[call-overload]
    "regions": (lambda: ao.optimize(same, patiense=1), "patiense", "patience"),  # type: ignore[call-overload]
    "a pass": (lambda: ao.register_pass("p", same, exat=True), "exat", "exact"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_option_names_the_nearest(name: str) -> None:
    call, given, nearest = UNKNOWN[name]
    with pytest.raises(errors.ArgumentTypeError) as raised:
        call()
    assert isinstance(raised.value, TypeError)
    message = str(raised.value)
    assert f"() has no option {given!r}" in message
    assert f"did you mean {nearest!r}?" in message
    assert "Options: " in message
    assert "test_options.py:" in message                     # the user's line
    assert len(message) < 400


def test_a_method_is_called_by_the_class_of_its_object() -> None:
    with pytest.raises(TypeError, match=r"^AutogradGraph\.to_dot\(\) has no option 'limt'"):
        UNKNOWN["dot"][0]()


def test_where_nothing_is_near_the_options_are_listed() -> None:
    with pytest.raises(TypeError, match=r"no option 'zzz'\. Options: optimize, passes, verify, anomaly, name"):
        ao.AutogradGraph(zzz=1)  # type: ignore[call-arg]


def test_subclasses_with_options_of_their_own() -> None:
    class Mine(ao.AutogradGraph):
        def __init__(self, colour: str = "red", **options: Any):
            super().__init__(**options)
            self.colour = colour

    assert Mine(colour="blue", optimize=True).optimize
    with pytest.raises(TypeError, match="optmize"):
        Mine(optmize=True)


def test_other_errors_of_arguments_are_pythons() -> None:
    with pytest.raises(TypeError, match="positional"):
        ao.AutogradGraph(True, None)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        ao.AutogradGraph(True, None, verify=True)  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing"):
        ao.jacobian(same)  # type: ignore[call-arg]


def test_a_type_error_of_the_users_function_stays_its_own() -> None:
    def wrong(x: Any) -> Any:
        return x.no_such(optmize=True) if False else len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
        ao.jacobian(wrong, X, optimize=True)


WRONG: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "allowance": (lambda v: ao.AutogradGraph(allowance=v), (-1, 2**63, True, math.nan, 1.0, "3", [], np.float64(3))),
    "verify": (lambda v: ao.AutogradGraph(verify=v), ("no", 2, math.nan, [])),
    "anomaly": (lambda v: ao.AutogradGraph(anomaly=v), ("no", 2, -1)),
    "sources": (lambda v: ao.AutogradGraph(sources=v), ("no", 2, -1)),
    "name": (lambda v: ao.AutogradGraph(name=v), (3, b"x", True)),
    "limit": (lambda v: opened(lambda g, x, y: g.draw(limit=v))(), (-1, 1.5, "3", True, math.nan)),
    "limit of dot": (lambda v: opened(lambda g, x, y: g.to_dot(limit=v))(), (-1, "3")),
    "limit of expressions": (lambda v: opened(lambda g, x, y: g.gradient_expression(x, limit=v))(), (-1, "3", 0.5)),
    "eps": (lambda v: ao.gradcheck(same, X, eps=v), (0, -1e-6, math.nan, math.inf, "1", True)),
    "atol": (lambda v: ao.gradcheck(same, X, atol=v), (-1e-6, math.nan, "1")),
    "rtol": (lambda v: ao.gradcheck(same, X, rtol=v), (-1e-6, math.nan, None)),
    "budget of watching": (ao.explain, (-0.1, math.nan, "1", None)),
    "seconds": (lambda v: Budget(seconds=v), (-1, math.nan, "1", None)),
    "expansions": (lambda v: Budget(expansions=v), (-1, math.nan, "1", 0.5)),
    "budget": (lambda v: opened(lambda g, x, y: g.verify(budget=v))(), (3, "x", 0)),
    "engines": (lambda v: opened(lambda g, x, y: g.verify(engines=v))(), ("linear", ["lineer"], [3])),
    "exact": (lambda v: opened(lambda g, x, y: g.verify(exact=v))(), ("bitwse", True, None)),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (_, values) in WRONG.items() for v in values])
def test_what_an_option_takes(name: str, value: Any) -> None:
    with pytest.raises((errors.ArgumentError, errors.ArgumentTypeError)) as raised:
        WRONG[name][0](value)
    message = str(raised.value)
    shown = value[0] if isinstance(value, list) and value else value
    assert message.startswith(f"{name.split()[0]}={shown!r}")
    assert "choose" in message
    assert len(message) < 300


@pytest.mark.parametrize("value", [0, 1, np.int64(7), 1 << 40, None])
def test_an_allowance_is_a_whole_number(value: Any) -> None:
    with ao.AutogradGraph(optimize=True, allowance=value) as graph:
        assert graph.references.allowance == (16 << 20 if value is None else value)
        with pytest.raises(errors.ArgumentError, match="allowance=-1"):
            graph.references.allowance = -1
        with pytest.raises(TypeError, match="allowance='3'"):
            graph.references.allowance = "3"  # type: ignore[assignment]


@pytest.mark.parametrize("value", [True, 1, np.True_, False, 0, None])
def test_yes_or_no(value: Any) -> None:
    graph = ao.AutogradGraph(verify=value, anomaly=value, sources=value)
    assert (graph.verify_each, graph.anomaly, graph.sources) == (bool(value),) * 3


def test_nearest_words() -> None:
    with pytest.raises(errors.ArgumentError, match="engines='lineer', did you mean 'linear'"):
        opened(lambda g, x, y: g.verify(engines=["lineer"]))()
    with pytest.raises(errors.ArgumentError, match="exact='bitwse', did you mean 'bitwise'"):
        opened(lambda g, x, y: g.verify(exact="bitwse"))()
