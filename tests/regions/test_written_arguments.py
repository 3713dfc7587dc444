"""Arguments that torch has computed, written or detached in a region; functions that leave gradients off."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autograd_opt as ao

PATIENCES = [8, None]


def assigned(h: Tensor) -> Tensor:
    h[0] = 0.0
    return (h * 3).sum()


def added_to_part(h: Tensor) -> Tensor:
    h[1:].add_(2)
    return h.square().sum()


def read_after(h: Tensor) -> Tensor:
    h.mul_(2)
    return h.sin().sum()


def read_between(h: Tensor) -> Tensor:
    y = h.exp()
    h.mul_(y)
    return (h * y).sum()


def through_a_module(h: Tensor) -> Tensor:
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1, bias=False))
    nn.init.constant_(net[1].weight, 0.5)
    return net(h).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("patience", PATIENCES)
@pytest.mark.parametrize("function", [assigned, added_to_part, read_after, read_between, through_a_module])
def test_a_written_argument(function: Callable[[Tensor], Tensor], patience: int | None) -> None:
    seen = []
    for f in (function, ao.optimize(function, patience=patience)):
        x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
        h = x * 1
        y = f(h)
        seen.append((y.detach(), h.detach().clone(), h.requires_grad, h._version))
        (y + h.sum() if h.requires_grad else y).backward()
        seen[-1] += (x.grad,)
    torch.testing.assert_close(seen[1], seen[0])


def test_a_detached_argument() -> None:
    x = torch.ones(3, requires_grad=True)
    h = x * 1
    y = ao.optimize(lambda h: h.detach_() * 2, patience=None)(h)
    assert not y.requires_grad
    assert not h.requires_grad
    assert h.is_leaf


def test_a_written_view_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ao.errors.UnsupportedError, match="clone"):
        ao.optimize(lambda h: h.mul_(2).sum())((x * 1)[1:])


@pytest.mark.parametrize("patience", PATIENCES)
def test_gradients_that_the_function_leaves_off(patience: int | None) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        torch.set_grad_enabled(False)
        return y
    x = torch.ones(2, requires_grad=True)
    try:
        y = ao.optimize(function, patience=patience)(x)
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("function", [
    lambda h: (h.exp(), h.exp().detach()), lambda h: (lambda y: (y, y.detach(), y[1:]))(h * 2),
    lambda h: (lambda y: (y.detach(), y, y[1:]))(h * 2), lambda h: (h[1:].detach(), h[1:]),
    lambda h: (h[1:], h[1:].detach()),
    lambda h: (lambda y: (y, y[1:]))(h.detach() * 2),
], ids=["apart", "after", "before", "of an argument", "after a view", "constants"])
def test_a_detached_result_beside_what_it_was_detached_from(function: Callable[[Tensor], Any]) -> None:
    seen = []
    for f in (function, ao.optimize(function, patience=None)):
        x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
        results = f(x * 1)
        seen.append([(t.detach().clone(), t.requires_grad) for t in results])
        if any(t.requires_grad for t in results):
            sum(t.square().sum() * k for k, t in enumerate(results, 1)).backward()
        seen[-1].append((x.grad, True))
    torch.testing.assert_close(seen[1], seen[0])


class Pair(tuple):  # type: ignore[type-arg]
    """A tuple that is made of two, with an attribute."""

    def __new__(cls, a: Any, b: Any) -> Pair:
        made = super().__new__(cls, (a, b))
        made.name = "pair"  # type: ignore[attr-defined]
        return made


def test_results_in_containers_that_are_made_otherwise() -> None:
    def function(x: Tensor) -> Any:
        return Pair(x * 2, 3), types.MappingProxyType({"x": x * 4, "n": 1})
    x = torch.ones(2, requires_grad=True)
    pair, mapping = ao.optimize(function)(x)
    assert type(pair) is Pair
    assert pair.name == "pair"
    assert pair[1] == 3
    assert type(mapping) is types.MappingProxyType
    assert list(mapping) == ["x", "n"]
    (pair[0] + mapping["x"]).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6]
