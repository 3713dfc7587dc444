"""Parameters updated inside the context, as optimizers do it: with gradients off, nothing of it is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import autograd_opt as ao
from autograd_opt.record import routes
from autograd_opt.record.dispatch import classify

Tensor = torch.Tensor
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.01),
    "momentum": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "Adam, fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "Adam, foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
}


def trained(make: Callable[[Any], torch.optim.Optimizer], graph: Callable[[], Any]) -> list[Tensor]:
    """Parameters after steps that are whole inside the context, two forwards around each update."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    optimizer = make(model.parameters())
    x = torch.randn(5, 3).double()
    for _ in range(4):
        with graph():
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
            model(x).sin().sum().backward()         # reads what the step has written
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("optimize", [False, True, "exact"])
def test_steps_inside_the_context(name: str, optimize: Any) -> None:
    expected = trained(OPTIMIZERS[name], contextlib.nullcontext)
    found = trained(OPTIMIZERS[name], lambda: ao.AutogradGraph(optimize=optimize))
    assert all(a.isfinite().all() for a in expected)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("optimize", [False, True])
def test_an_update_records_nothing(optimize: bool) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], 0.5, momentum=0.9)
    with ao.AutogradGraph(optimize=optimize) as graph:
        (p * 2).sum().backward()
        optimizer.step()
        before = len(graph)
        optimizer.step()
        optimizer.step()
        assert len(graph) == before
        y = p * 2                                   # another value, of the same leaf
        assert torch.equal(y.detach(), p.detach() * 2)
        y.sum().backward()
    assert torch.equal(p.grad, torch.full((3,), 4.0))


@pytest.mark.parametrize("optimize", [False, True])
def test_a_mode_further_inside_sees_updates_and_gradients(optimize: bool) -> None:
    seen: list[Any] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    with ao.AutogradGraph(optimize=optimize), torch.no_grad(), Watch():
        p.add_(p.grad, alpha=-0.5)
    assert Tensor.add_ in seen
    assert Tensor.grad.__get__ in seen              # type: ignore[attr-defined]
    assert torch.equal(p.detach(), torch.full((3,), 0.5))


@pytest.mark.parametrize("optimize", [False, True])
def test_a_value_kept_for_reuse_does_not_change_with_an_update(optimize: bool) -> None:
    x = ao.tensor(torch.tensor([1.0, 2.0]))
    with ao.AutogradGraph(optimize=optimize):
        a = x * 3
        with torch.no_grad():
            b = (x * 3).add_(1)                     # a value handed out again, then written
            c = x * 3
            c.mul_(2).sub_(torch.ones(2), alpha=1)
        d = x * 3
        assert a.tolist() == d.tolist() == [3.0, 6.0]
        assert b.tolist() == [4.0, 7.0]
        assert c.tolist() == [5.0, 11.0]
        (a * d).sum().backward()
    assert x.grad.tolist() == [18.0, 36.0]


def test_a_write_without_gradient_is_seen_by_rules_that_read_the_memory() -> None:
    x = ao.tensor(torch.tensor([1.0, 2.0]))
    with ao.AutogradGraph(optimize=True):
        y = x.exp()
        z = y.sum()
        with torch.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()


def test_forms_with_a_meaning_of_their_own_have_no_short_entry() -> None:
    with ao.AutogradGraph():
        pass
    assert isinstance(classify(Tensor.add_), routes.Write)
    for name in ("requires_grad_", "detach_", "set_", "resize_", "__setitem__"):
        assert not isinstance(classify(getattr(Tensor, name)), routes.Write), name


@pytest.mark.parametrize("optimize", [False, True])
def test_writes_that_torch_does_not_count(optimize: bool) -> None:
    """The kernel of a `GradScaler` writes its operands without a version."""
    for unscaled in (lambda g: [g.clone(), g.clone()], lambda g: [g * 1, g.clone().t()], lambda g: [g.clone()[:, :2]]):
        with ao.AutogradGraph(optimize=optimize):
            g = torch.full((4, 4), 4.0)
            parts = unscaled(g)
            before = [p.sum() for p in parts]
            torch._amp_foreach_non_finite_check_and_unscale_(parts, torch.zeros(1), torch.full((1,), 0.25))
            assert [4 * float(p.sum()) for p in parts] == [float(b) for b in before]
            assert float(g.sum()) == 64
            assert float(g.clone().sum()) == 64


@pytest.mark.parametrize("optimize", [False, True])
def test_a_gradient_scaler(optimize: bool) -> None:
    def trained(context: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        twin = torch.nn.Linear(3, 2)
        twin.load_state_dict(net.state_dict())
        parameters = [*net.parameters(), *twin.parameters()]
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        sgd = torch.optim.SGD(parameters, 0.1)
        seen = []
        for _ in range(3):
            with context():
                x = torch.randn(4, 3)
                scaler.scale(net(x).square().mean() + twin(x).square().mean()).backward()
                seen.append(torch.stack([p.grad.square().sum() for p in parameters if p.grad is not None]))
                scaler.unscale_(sgd)
                seen.append(torch.stack([p.grad.square().sum() for p in parameters if p.grad is not None]))
                scaler.step(sgd)
                scaler.update()
                sgd.zero_grad()
        return [*seen, *(p.detach() for p in parameters)]

    found = trained(lambda: ao.AutogradGraph(optimize=optimize))
    for a, b in zip(found, trained(contextlib.nullcontext), strict=True):
        torch.testing.assert_close(a, b)
