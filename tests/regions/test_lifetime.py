"""What a region keeps alive, and until when."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import autograd_opt as ao
from autograd_opt.graph import boundary


def alive() -> int:
    """Tensors in this process that the collector knows."""
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


class Probe(torch.autograd.Function):
    """The identity, which saves a tensor and tells when it is gone."""

    refs: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        kept = x.detach().clone()
        ctx.save_for_backward(kept)
        Probe.refs.append(weakref.ref(kept))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0]


@pytest.fixture(autouse=True)
def no_probes() -> None:
    Probe.refs = []


def test_saved_values_go_with_the_last_result() -> None:
    x = torch.randn(3, requires_grad=True)
    y = ao.optimize(lambda t: Probe.apply(t.sin()) * 2)(x)
    z = y.sum()
    del y
    assert Probe.refs[0]() is not None
    del z
    assert Probe.refs[0]() is None


def test_saved_values_go_with_a_backward() -> None:
    x = torch.randn(3, requires_grad=True)
    y = ao.optimize(lambda t: Probe.apply(t.sin()) * 2)(x)
    y.sum().backward(retain_graph=True)
    assert Probe.refs[0]() is not None
    y.sum().backward()
    assert Probe.refs[0]() is None


def test_an_argument_that_no_rule_reads_is_not_kept() -> None:
    w = torch.randn(3, requires_grad=True)
    h = w * 2
    seen = weakref.ref(h)
    y = ao.optimize(lambda t: t + 1)(h)
    del h
    assert seen() is None
    y.sum().backward()
    assert w.grad.tolist() == [2.0] * 3


def test_an_argument_that_a_rule_reads_is_kept() -> None:
    w = torch.randn(3, requires_grad=True)
    h = w * 2
    y = ao.optimize(lambda t: t * t)(h)
    expected = 4 * h.detach()
    del h
    y.sum().backward()
    torch.testing.assert_close(w.grad, expected)


def forward(net: Any, x: torch.Tensor) -> None:
    net(x)


def backward(net: Any, x: torch.Tensor) -> None:
    net(x).sum().backward()
    net.zero_grad()


def penalty(net: Any, x: torch.Tensor) -> None:
    x = x.detach().requires_grad_()
    g, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    net.zero_grad()


def failing(net: Any, x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError):
        net(x[:, :2])


def writing(net: Any, x: torch.Tensor) -> None:
    c = torch.zeros(4, 3)
    ao.optimize(lambda t, u: t.copy_(net[0].weight[:4] * u))(c, x)
    c.sum().backward()
    net.zero_grad()


@pytest.mark.parametrize("step", [forward, backward, penalty, failing, writing])
def test_nothing_is_left_of_many_calls(step: Callable[[Any, torch.Tensor], None]) -> None:
    net, x = ao.optimize(mlp()), torch.randn(4, 3)
    for _ in range(5):
        step(net, x)
    gc.collect()
    gc.disable()                            # nothing waits for the collector of cycles
    try:
        before, tapes, objects = alive(), len(boundary.living_tapes()), len(gc.get_objects())
        for _ in range(200 if step is failing else 1000):
            step(net, x)
        assert alive() == before
        assert len(boundary.living_tapes()) == tapes
        if step in (forward, backward):
            assert len(gc.get_objects()) - objects < 100
    finally:
        gc.enable()
