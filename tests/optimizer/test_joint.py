"""Forward and backward are one graph: what they have in common runs once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import autograd_opt as ao
from tests.optimizer.counting import kernels_of

Tensor = torch.Tensor
ADVANCE = 16 << 20
"""Bytes that may be held for reuse before a repeat has been seen."""


def leaf(seed: int = 0, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ao.tensor(torch.rand(shape or (5,), generator=generator, dtype=torch.float64) + 0.5)


def gradient(y: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def count(program: Callable[[Tensor], object], optimize: bool) -> dict[str, int]:
    x = leaf()
    with ao.AutogradGraph(optimize=optimize, allowance=ADVANCE):
        return dict(kernels_of(lambda: program(x)))


def test_a_rule_reuses_a_forward_value() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        c = x.cos()
        return c, gradient(x.sin(), x)  # the rule of sin computes cos(x)

    assert count(program, False)["cos"] == 2
    assert count(program, True)["cos"] == 1


def test_forward_reuses_a_value_of_a_rule() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        g = gradient(x.sin(), x)
        return g, x.cos()

    assert count(program, True)["cos"] == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin() * x,
        lambda x: (x.exp() + x).tanh(),
        lambda x: (x * x).sum().sqrt(),
        lambda x: x.log().softmax(0),
        lambda x: x.sigmoid() / x,
        lambda x: (x**3).logsumexp(0),
        lambda x: x.norm() * x,
    ],
    ids=range(7),
)
def test_a_second_gradient_of_one_output_is_free(function: Callable[[Tensor], Tensor]) -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True, allowance=ADVANCE):
        y = function(x).sum()
        (g1,) = torch.autograd.grad(y, x, create_graph=True)
        found: list[Tensor] = []
        counts = kernels_of(lambda: found.extend(torch.autograd.grad(y, x, create_graph=True)))
        assert not counts, counts
        assert found[0] is not g1
        assert torch.equal(found[0].detach(), g1.detach())


def test_gradients_of_twins_share_their_backward() -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True, allowance=ADVANCE):
        y1, y2 = (x.sin() * x).sum(), (x.sin() * x).sum()
        torch.autograd.grad(y1, x, create_graph=True)
        counts = kernels_of(lambda: torch.autograd.grad(y2, x, create_graph=True))
        assert not counts, counts


def test_a_merged_backward_runs_each_rule_once() -> None:
    """k equal branches: their cotangents are summed, and one rule runs for all."""

    def program(x: Tensor) -> None:
        y = sum((x.sin() * k for k in range(1, 9)), torch.zeros_like(x))
        y.sum().backward()

    plain, merged = count(program, False), count(program, True)
    assert plain["cos"] == 8
    assert merged["cos"] == 1
    assert merged["sin"] == 1


def test_second_order_of_a_repeated_expression() -> None:
    def program(x: Tensor) -> None:
        y = (x.exp() * x.sin()).sum() + (x.exp() * x.sin()).sum() * 2
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()

    plain, merged = count(program, False), count(program, True)
    assert sum(merged.values()) < sum(plain.values())
    assert merged["exp"] == 1
    assert merged["sin"] <= 2  # once forward, once in the rule of cos, which is not recorded


@pytest.mark.parametrize("retain", [False, True])
def test_gradients_are_those_of_eager(retain: bool) -> None:
    def program(x: Tensor) -> Tensor:
        y = (x.exp() * x.sin()).sum() + (x.exp() * x.sin()).sum() * 2 + x.cos().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g + g.exp()).sum().backward(retain_graph=retain)
        return x.grad

    plain = leaf().detach().as_subclass(Tensor).clone().requires_grad_()
    expected = program(plain)
    for optimize in (False, True):
        x = leaf()
        with ao.AutogradGraph(optimize=optimize, allowance=ADVANCE):
            found = program(x)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-12)
