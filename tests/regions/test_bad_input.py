"""Regions around functions that do what a region cannot foresee: right, or a sentence."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import autograd_opt as ao


def leaf() -> torch.Tensor:
    return torch.randn(3, requires_grad=True)


@pytest.mark.parametrize("value", [None, 3, "text", [], {"a": 1}, object], ids=str)
def test_no_tensor_is_returned(value: Any) -> None:
    x = leaf()

    @ao.optimize
    def f(t: torch.Tensor) -> Any:
        t.sin()
        return value

    assert f(x) is value


def test_a_structure_that_changes_from_call_to_call() -> None:
    x = leaf()
    f = ao.optimize(lambda t, n: [t.sin() * k for k in range(n)] if n != 1 else t.sin())
    total = sum(y.sum() for n in (3, 2, 0, 1) for y in f(x, n))
    total.backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * 5)


def test_a_structure_that_changes_between_forward_and_recomputation() -> None:
    x, calls = leaf(), []

    @ao.optimize
    def f(t: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return t.sin().exp() if len(calls) == 1 else t.sin()

    y = checkpoint(f, x, use_reentrant=False)
    with pytest.raises(CheckpointError):
        y.sum().backward()


def test_a_tensor_kept_of_a_former_call() -> None:
    x, kept = leaf(), []

    @ao.optimize
    def f(t: torch.Tensor) -> torch.Tensor:
        kept.append(t.sin())
        return kept[0] * t

    f(x).sum().backward()
    with pytest.raises(RuntimeError, match=r"another|region|graph"):
        f(x).sum().backward()


def test_two_threads_at_once() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    inputs = [torch.randn(4, 3).double() for _ in range(8)]
    expected = [torch.autograd.grad(net(x).pow(2).sum(), list(net.parameters())) for x in inputs]
    region = ao.optimize(net)
    found: list[Any] = [None] * len(inputs)
    gate = threading.Barrier(2)

    def work(which: int) -> None:
        gate.wait()
        for i in range(which, len(inputs), 2):
            found[i] = torch.autograd.grad(region(inputs[i]).pow(2).sum(), list(net.parameters()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)


def test_a_backward_in_another_thread_and_two_at_once() -> None:
    x = leaf()
    y = ao.optimize(lambda t: t.sin().exp() * t)(x)
    expected, = torch.autograd.grad(y.sum(), x, retain_graph=True)
    found: list[Any] = []

    def work() -> None:
        for _ in range(20):
            found.append(torch.autograd.grad(y.sum(), x, retain_graph=True)[0])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 40
    for g in found:
        torch.testing.assert_close(g, expected)


def test_a_leaf_of_this_library_is_refused() -> None:
    with pytest.raises(ao.UnsupportedError, match=r"autograd_opt\.tensor"):
        ao.optimize(lambda t: t * 2)(ao.tensor([1.0]))
    x = leaf()
    ao.optimize(lambda t: t * 2)(x).sum().backward()        # nothing is left of the refusal
    assert x.grad is not None


def test_a_region_in_a_context_is_part_of_it() -> None:
    x = leaf()
    f = ao.optimize(lambda t: t.sin() * 2)
    with ao.AutogradGraph(optimize=True) as graph:
        y = f(x).sum()
        assert "sin" in str(graph)
        y.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_a_context_in_a_region() -> None:
    x, w = leaf(), leaf()

    @ao.optimize
    def f(t: torch.Tensor) -> torch.Tensor:
        with ao.AutogradGraph():
            (w * w).sum().backward()
        return t * 2

    f(x).sum().backward()
    torch.testing.assert_close(w.grad, 2 * w.detach())
    assert x.grad.tolist() == [2.0] * 3


def test_a_result_that_shows_an_argument_is_not_written_unseen() -> None:
    x = leaf()
    h = x * 2
    y = ao.optimize(lambda t: t[1:])(h)
    with pytest.raises(RuntimeError, match="view"):
        y.mul_(2)


def test_a_result_that_shows_another_is_not_written_unseen() -> None:
    x = leaf()
    a, b = ao.optimize(lambda t: (lambda u: (u, u[1:]))(t.sin()))(x)
    a.mul_(2)
    with pytest.raises(RuntimeError, match="view"):
        (a.sum() + b.sum()).backward()


def test_a_generator_as_result_ends_with_a_sentence() -> None:
    x = leaf()
    f = ao.optimize(lambda t: (t * k for k in range(2)))
    total = sum(y.sum() for y in f(x))      # computed outside of the region, by torch
    total.backward()
    assert x.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("made", [torch.sin, lambda t: t[:], lambda t: (t * 2).exp()], ids=["sin", "view", "chain"])
@pytest.mark.parametrize("first", [lambda x: x, lambda x: x * 2], ids=["leaf", "computed"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_derivative_inside_leads_through_the_history_of_an_argument(made: Any, first: Any, batch: bool) -> None:
    """Nothing here can record that part of it, or map it over a batch."""
    @ao.optimize
    def f(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        y = (t * u).sin()
        rows = torch.ones(2, *y.shape) if batch else torch.ones_like(y)
        return torch.autograd.grad(y, t, rows, create_graph=not batch, is_grads_batched=batch)[0]

    argument = first(leaf())
    with pytest.raises(ao.errors.UnsupportedError, match="own history"):
        f(argument, made(argument))
