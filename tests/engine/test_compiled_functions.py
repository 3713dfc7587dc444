"""torch.compile: compiled functions inside a context are calls of torch's; a context inside one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore")           # torch's compiler has many words of its own


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    torch.compiler.reset()


def step(x: Tensor) -> Tensor:
    with ao.AutogradGraph(optimize=True):
        (x * x).sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("optimize", [False, True])
def test_a_compiled_function_inside(optimize: bool) -> None:
    fn: Callable[[Tensor], Tensor] = torch.compile(lambda x: (x * 2).sin(), backend="eager")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        x.grad = None
        with ao.AutogradGraph(optimize=optimize):
            (fn(x) * x).sum().backward()
        assert torch.allclose(x.grad, (x * 2).sin().detach() + 2 * x.detach() * (x * 2).cos().detach())  # type: ignore[arg-type]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [
    lambda x: x.sin() * 2, lambda x: torch.sin(x) + 1, torch.nn.functional.relu, lambda x: (x * 2).exp(),
    lambda x: (x.sin() * x.exp()).sum(),
], ids=["method", "function", "functional", "after an operator", "several"])
def test_compiled_functions_of_several_kinds(function: Any, backend: str, optimize: bool) -> None:
    """Where torch's compiler breaks off, what is left of the function is compiled for a recorded tensor."""
    seen = []
    for context in (nullcontext, lambda: ao.AutogradGraph(optimize=optimize)):
        torch.compiler.reset()
        fn, x = torch.compile(function, backend=backend), torch.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(2):
            with context():
                fn(x).sum().backward()
        seen.append(x.grad)
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("function", [lambda a: (a * 2).tanh(), lambda a: a.sin() * a.sin(), lambda a: a + 1,
                                      torch.nn.Linear(2, 2)], ids=["chain", "repeated", "sum", "module"])
def test_a_trace_takes_every_call_down(function: Any, optimize: bool, needs: bool, checked: bool) -> None:
    """Also those that the graph has computed already."""
    x = torch.tensor([1.0, 2.0], requires_grad=needs)
    with ao.AutogradGraph(optimize=optimize) as graph:
        function(x)
        before = len(graph)
        traced = torch.jit.trace(function, x, check_trace=checked)
        if not checked:
            assert len(graph) == before
        y = torch.tensor([0.3, 0.4], requires_grad=True)
        assert torch.allclose(traced(y), function(y))
        traced(y).sum().backward()
    other = torch.tensor([0.3, 0.4], requires_grad=True)
    function(other).sum().backward()
    assert torch.allclose(y.grad, other.grad)
    assert torch.allclose(traced(other), function(other))


def test_a_trace_of_what_was_computed_here() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with ao.AutogradGraph(optimize=True):
        h = x * 3
        traced = torch.jit.trace(lambda a: (a.exp(), (a * 2, a)), h)
        first, rest = traced(h)
        (first + rest[0]).sum().backward()
    assert torch.allclose(x.grad, 3 * (3 * torch.tensor([1.0, 2.0])).exp() + 6)


def test_a_context_inside_a_compiled_function() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(Exception, match="compile functions that are called inside it, and put @torch"):
        torch.compile(step, backend="eager")(x)
    assert step(torch.ones(3, requires_grad=True)).tolist() == [2.0] * 3


def test_a_context_kept_out_of_a_compiled_function() -> None:
    kept = torch.compiler.disable(step)
    fn: Callable[[Tensor], Tensor] = torch.compile(lambda x: kept(x) + 1, backend="eager")
    assert fn(torch.ones(3, requires_grad=True)).tolist() == [3.0] * 3


@pytest.mark.parametrize("optimize", [None, False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_takes_a_branch(sign: float, optimize: bool | None) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with nullcontext() if optimize is None else ao.AutogradGraph(optimize=optimize):
        operands = (x, torch.tensor(3.0))
        y = torch.cond(x.sum() * sign > 0, lambda x, s: (x * s).sin(), lambda x, s: (x * s).cos(), operands)
        y.sum().backward()
    at = 3 * x.detach()
    assert x.grad is not None
    assert torch.allclose(x.grad, 3 * at.cos() if sign > 0 else -3 * at.sin())


def test_cond_in_a_compiled_function() -> None:
    fn = torch.compile(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), backend="eager", fullgraph=True)
    x = torch.tensor([1.0, 2.0])
    assert torch.equal(fn(x), x.sin())
    assert torch.equal(fn(-x), x.cos())
