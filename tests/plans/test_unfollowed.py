"""Views made where no gradient is followed: the call that is watched hands out what an unwatched one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor


def largest(x: Tensor) -> Tensor:
    """A metric aside, of a view."""
    q = x * 2
    with torch.no_grad():
        q[1:].max()
    return (q * x).sum()


def between(x: Tensor) -> tuple[Tensor, Tensor]:
    """A view that comes before one of two results."""
    a = x + 0.5
    with torch.no_grad():
        a[0]
    return x.sin(), (a * a).sum()


def of_an_operand(x: Tensor) -> Tensor:
    """A view of an operand, which is read."""
    with torch.no_grad():
        x[1:].sin()
    return (x * x).sum()


def of_a_result(x: Tensor) -> tuple[Tensor, ...]:
    """Views of results, and results that are views."""
    y = x.exp()
    with torch.no_grad():
        y[:2].view(-1).sum()
    return y, y[1:], y.view(-1) * 2


@pytest.mark.parametrize("function", [largest, between, of_an_operand, of_a_result])
def test_gradients_arrive_where_they_belong(function: Callable[[Tensor], Any]) -> None:
    def gradient(f: Callable[[Tensor], Any]) -> Tensor:
        x = torch.arange(3.0, requires_grad=True)
        results = f(x)
        results = results if isinstance(results, tuple) else (results,)
        return torch.autograd.grad(sum((t * (k + 1)).sum() for k, t in enumerate(results)), x)[0]

    compiled = ao.compile(function)
    for _ in range(4):
        torch.testing.assert_close(gradient(compiled), gradient(function))
    assert [kind.reason for kind in compiled.report().kinds] == [""]
