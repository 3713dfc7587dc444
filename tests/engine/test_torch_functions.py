"""Classes that are no tensors and have a `__torch_function__`: asked inside a context as outside, and recorded."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import autograd_opt as ao

Tensor = torch.Tensor
@pytest.fixture(autouse=True)
def _met_before() -> None:
    """The functions have been called with tensors, and go a shorter way since."""
    with ao.AutogradGraph():
        x = torch.ones(2, 2, requires_grad=True)
        y = F.normalize(F.linear(x, x)) + torch.stack([x, x]).sum(0) + torch.matmul(x, x) @ x + torch.logdet(x)
        torch.square(torch.sin(torch.add(y, y)))
        with torch.no_grad():
            torch.ones(2).add_(x[0])
        F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(2, 2, dtype=torch.bool))


OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


class Diagonal:
    """A matrix known by its diagonal."""

    def __init__(self, values: Tensor):
        self.values = values

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.matmul, Tensor.matmul, Tensor.__rmatmul__, Tensor.__matmul__):
            a, b = args
            return a.values[:, None] * b if isinstance(a, cls) else a * b.values
        if func in (torch.add, Tensor.add, F.linear):
            first, second = args[:2]
            return (first + torch.diag(second.values)) if isinstance(second, cls) else cls(first.values + 1)
        if func in (Tensor.mul, Tensor.__mul__):
            return args[0] * args[1].values
        if func is torch.logdet:
            return args[0].values.log().sum()
        if func is F.normalize:
            return cls(F.normalize(args[0].values, dim=0))
        if func is torch.square:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args)                       # no tensor: torch refuses
        return NotImplemented


class Declining:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def program(x: Tensor, y: Tensor) -> Tensor:
    d = Diagonal(x)
    product = torch.matmul(d, y) + torch.matmul(d, y)
    return (product.sin().sum() + (y @ d).sum() + (y * d).sum() + torch.logdet(d) + torch.add(y, d).square().sum()
            + F.normalize(d).values[0])


@OPTIMIZE
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_it_is_asked_and_what_it_computes_is_recorded(needs: tuple[bool, bool], optimize: bool) -> None:
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.5], [2.0, 3.0]])
    x, y = (t.clone().requires_grad_(need) for t, need in zip((first, second), needs, strict=True))
    wanted = program(x, y)
    wanted.backward()
    a, b = (t.clone().requires_grad_(need) for t, need in zip((first, second), needs, strict=True))
    with ao.AutogradGraph(optimize=optimize) as graph:
        found = program(a, b)
        if optimize:
            assert graph.report().merged >= 1
            assert graph.verify(found).status is ao.verify.Status.PROVED
        found.backward()
    assert torch.allclose(found, wanted)
    for t, u in ((a, x), (b, y)):
        assert u.grad is None if t.grad is None else torch.allclose(t.grad, u.grad)


@OPTIMIZE
@pytest.mark.parametrize("call", [
    lambda t: torch.add(t, Declining()), lambda t: t + Declining(), lambda t: torch.matmul(Declining(), t),
    lambda t: F.normalize(Declining()), lambda t: F.linear(t, Declining()), lambda t: torch.square(Diagonal(t)),
    lambda t: torch.sin(Diagonal(t)), lambda t: torch.stack([t, Declining()]), lambda t: t * 2 + Declining(),
    lambda t: (t * 2).matmul(Declining()), lambda t: (t * 2).masked_fill(t > 0, Declining()),
    lambda t: t.detach().add_(Declining()), lambda t: torch.nn.Linear(2, 2)(Declining())])
def test_one_that_declines_is_torchs_to_refuse(call: Any, optimize: bool) -> None:
    with pytest.raises(TypeError):
        call(torch.ones(2, 2))
    x = torch.ones(2, 2, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        with pytest.raises(TypeError):
            call(x)
        (x * 2).sum().backward()                         # and nothing is left behind
    assert torch.equal(x.grad, torch.full((2, 2), 2.0))


@OPTIMIZE
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
def test_torchs_own_bias_of_an_attention(make: Any, optimize: bool) -> None:
    q, k, v = (torch.randn(1, 2, n, 8, dtype=torch.float64) for n in (4, 6, 6))
    results = []
    for context in (None, ao.AutogradGraph(optimize=optimize)):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        if context is None:
            out = F.scaled_dot_product_attention(*leaves, attn_mask=make(4, 6))
            out.square().sum().backward()
        else:
            with context:
                out = F.scaled_dot_product_attention(*leaves, attn_mask=make(4, 6))
                out.square().sum().backward()
        results.append([out.detach(), *[t.grad for t in leaves]])
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found.as_subclass(Tensor), wanted)


# Who is asked, and when ----------------------------------------------------------------------
def handlers() -> list[Any]:
    """What torch's functions in Python hand themselves to, by module."""
    return [F.handle_torch_function, torch.functional.handle_torch_function, torch.overrides.handle_torch_function]


def test_torch_answers_its_own_questions_outside_a_graph_and_hands_functions_to_its_own_handler() -> None:
    before = handlers()
    assert before[0] is before[1] is before[2]
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph():
        assert F.handle_torch_function is before[0]          # no function has handed itself over yet
        F.relu(x)
        assert F.handle_torch_function is torch.overrides.handle_torch_function is not before[0]
        assert torch.functional.handle_torch_function is before[0]
    assert handlers() == before
    with pytest.raises(RuntimeError), ao.AutogradGraph():
        F.softsign(x).backward()                             # no scalar
    assert handlers() == before


def test_a_thread_without_a_graph_is_answered_by_torch_while_another_has_one() -> None:
    asked: list[Any] = []

    class Asked(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    def elsewhere() -> None:
        t = torch.ones(2).as_subclass(Asked)
        found.append((torch.overrides.has_torch_function_unary(t), torch.overrides.has_torch_function_variadic(1, t),
                      torch.overrides.has_torch_function((torch.ones(1),)), F.softsign(t).sum().item()))

    found: list[Any] = []
    with ao.AutogradGraph():
        F.softsign(torch.ones(2, requires_grad=True))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found == [(True, True, False, 1.0)]
    assert F.softsign in asked


@pytest.mark.parametrize("question", ["has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"])
def test_a_question_is_the_same_object_whoever_asks(question: str) -> None:
    ask = getattr(torch.overrides, question)
    plain, own = torch.ones(1), Diagonal(torch.ones(1))
    one = (lambda t: ask((t,))) if question == "has_torch_function" else ask
    assert (one(plain), one(own)) == (False, True)
    with ao.AutogradGraph():
        assert (one(plain), one(own)) == (True, True)        # the graph's mode is asked, too
        assert ask.__name__ == f"_{question}"
    assert (one(plain), one(own)) == (False, True)
