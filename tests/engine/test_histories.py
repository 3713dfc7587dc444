"""Tensors that torch has computed are leaves of a graph, whose gradients go on in torch's engine when the run ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import autograd_opt as ao

Opened = Callable[[], AbstractContextManager[Any]]
OPTIONS: dict[str, dict[str, Any]] = {"written": {}, "optimized": {"optimize": True}, "verified": {"verify": True}}


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def body() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def grads(*owners: Any) -> list[Any]:
    found = [p for o in owners for p in (o.parameters() if isinstance(o, nn.Module) else [o])]
    return [None if p.grad is None else p.grad.clone() for p in found]


def a_network_before(opened: Opened) -> Any:
    first, second, x = body(), body(), leaf(4, 3)
    h = first(x)
    with opened():
        second(h).pow(2).sum().backward()
    return grads(first, second, x)


def shared_on_both_sides(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    h = net(x)
    k = h.exp()
    with opened():
        ((net(h) * k).sum() + (h * x).sum()).backward()
    return grads(net, x)


def a_gradient_of_everything(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    h = net(x)
    k = h.exp()
    with opened():
        loss = (h * k * x).sum() + net[2].bias.sum()
        found = torch.autograd.grad(loss, [h, x, k, net[0].weight, net[2].bias])
    return found, grads(net, x)


def a_gradient_of_one_leaf(opened: Opened) -> Any:
    x = leaf(3)
    h = x.exp()
    with opened():
        return torch.autograd.grad((h * x).sum(), x)


def an_unused_input(opened: Opened) -> Any:
    x, y = leaf(3), leaf(3)
    h = x.exp()
    with opened():
        return torch.autograd.grad((h * x).sum(), [x, y], allow_unused=True)


def some_inputs(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    h = net(x)
    with opened():
        (h * h.sin() * x).sum().backward(inputs=[net[0].weight, x])
    return grads(net, x)


def retained(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    h = net(x)
    with opened():
        loss = h.pow(2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    return grads(net, x)


def accumulated(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    for _ in range(2):
        h = net(x)
        with opened():
            h.pow(2).sum().backward()
    return grads(net, x)


def freed(opened: Opened) -> Any:
    h = body()(leaf(4, 3))
    with opened():
        (h * 2).sum().backward()
        (h * 3).sum().backward()


def hooks(opened: Opened) -> Any:
    net, x, seen = body(), leaf(4, 3), []
    h = net(x)
    h.register_hook(lambda g: seen.append(("h", g)))
    h.retain_grad()
    net[0].weight.register_hook(lambda g: seen.append(("weight", g)))
    net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad)))
    with opened():
        h.register_hook(lambda g: g * 2)
        (h * h * net[0].weight.sum()).sum().backward()
    return sorted((name, float(g.sum())) for name, g in seen), h.grad


def a_function_before(opened: Opened) -> Any:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(t)
            return t * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            t, = ctx.saved_tensors
            return g * 2 + (t * 0).exp() - 1

    x = leaf(3)
    h = Doubled.apply(x)
    with opened() as graph:
        loss = h.sin().sum()
        before = 0 if graph is None else len(graph)
        loss.backward()
        assert graph is None or len(graph) <= before + 1       # nothing of torch's run is recorded
    return grads(x)


def no_gradient_wanted(opened: Opened) -> Any:
    h = leaf(3) * 2
    with opened():
        with torch.no_grad():
            y = h * 3
        return y.requires_grad, (h.detach() * leaf(3)).requires_grad, y.detach()


def a_view_of_what_torch_has_computed(opened: Opened) -> Any:
    x = leaf(4)
    h = x.exp()
    v = h[1:]
    with opened():
        (v * v * h[:3]).sum().backward()
    return grads(x)


def written_in_the_context(opened: Opened) -> Any:
    x = leaf(4)
    h = x.sin() + 0
    with opened():
        h.mul_(x)
        h[1:].add_(x[1:])
        (h * h).sum().backward()
    return grads(x)


def a_region_before(opened: Opened) -> Any:
    net, x = body(), leaf(4, 3)
    h = ao.optimize(net)(x)
    with opened():
        (h * h).sum().backward()
    return grads(net, x)


def a_context_in_a_context(opened: Opened) -> Any:
    x = leaf(3)
    h = x.exp()
    with opened(), opened():
        (h * h).sum().backward()
    return grads(x)


PROGRAMS = [a_network_before, shared_on_both_sides, a_gradient_of_everything, a_gradient_of_one_leaf, an_unused_input,
            some_inputs, retained, accumulated, freed, hooks, a_function_before, no_gradient_wanted,
            a_view_of_what_torch_has_computed, written_in_the_context, a_region_before, a_context_in_a_context]


def outcome(program: Callable[[Opened], Any], opened: Opened) -> Any:
    torch.manual_seed(0)
    try:
        return program(opened), None
    except RuntimeError as error:
        return None, error


def same(a: Any, b: Any) -> None:
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-12)
    else:
        assert a == b or (isinstance(a, float) and a == pytest.approx(b))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_half_of_which_torch_records(program: Callable[[Opened], Any], options: dict[str, Any]) -> None:
    expected, failed = outcome(program, nullcontext)
    found, error = outcome(program, lambda: ao.AutogradGraph(**options))
    if failed is None and error is not None:
        raise error
    assert (failed is None) == (error is None)
    same(expected, found)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("optimize", [False, True])
def test_second_derivatives_through_torchs_part_are_refused(optimize: bool) -> None:
    x = leaf(3)
    h = x.exp()
    with ao.AutogradGraph(optimize=optimize):
        g, = torch.autograd.grad((h * h).sum(), h, create_graph=True)      # which torch's engine is not asked for
        torch.testing.assert_close(g, 2 * h)
        with pytest.raises(ao.UnsupportedError, match=r"ao\.optimize"):
            torch.autograd.grad((h * h).sum(), x, create_graph=True)
        with pytest.raises(ao.UnsupportedError, match=r"ao\.optimize"):
            torch.autograd.backward((h * h).sum(), create_graph=True, inputs=[x])
    assert x.grad is None


def test_batched_gradients_through_torchs_part_are_refused() -> None:
    x = leaf(3)
    h = x.exp()
    with ao.AutogradGraph(), pytest.raises(ao.UnsupportedError, match="is_grads_batched"):
        torch.autograd.grad(h * h, x, torch.eye(3).double(), is_grads_batched=True)


def test_a_failing_hook_of_torchs_leaves_the_graph_usable() -> None:
    x = leaf(3)
    h = x.exp()
    handle = h.register_hook(lambda g: 1 / 0)
    with ao.AutogradGraph():
        with pytest.raises(ZeroDivisionError):
            (h * h).sum().backward(retain_graph=True)
        handle.remove()
        (h * h).sum().backward()
        assert type(x * 2).__name__ == "CustomTensor"
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).exp())


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_results_that_keep_their_history(options: dict[str, Any]) -> None:
    net, x = body(), leaf(4, 3)
    expected = torch.autograd.grad((net(x * 2).sin() * 3).sum(), [x, *net.parameters()])
    with ao.AutogradGraph(keep=True, **options) as graph:
        y = net(x * 2)
        z = y.sin()
    assert type(y) is type(z) is torch.Tensor
    torch.testing.assert_close(torch.autograd.grad((z * 3).sum(), [x, *net.parameters()], retain_graph=True), expected)
    g, = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    second = x.grad.clone()
    x.grad = None
    g, = torch.autograd.grad(net(x * 2).pow(2).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    torch.testing.assert_close(second, x.grad)
    assert "tanh" in str(graph)


def test_a_graph_entered_again_keeps_the_first_history() -> None:
    x = leaf(3)
    graph = ao.AutogradGraph(keep=True)
    with graph:
        y = x.exp()
    with graph:
        z = x.sin()
    assert len(graph) == 2
    (y + z).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp() + x.detach().cos())
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def raising(_: object) -> None:
    raise ValueError("mine")


def test_results_without_a_history_to_keep() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(keep=True) as graph:
        y = x.exp()
    with pytest.raises(ao.OutsideGraphError):
        y.sum().backward()
    with pytest.raises(ValueError, match="mine"), ao.AutogradGraph(keep=True):
        list(map(raising, [leaf(3).exp()]))
    assert len(graph) == 2


@pytest.mark.parametrize("optimize", [False, True])
def test_retain_grad_of_a_result_of_torchs(optimize):
    """Asked inside, of a tensor that torch has computed: its engine, which goes on from there, keeps the gradient."""
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    h = w * 2
    with ao.AutogradGraph(optimize=optimize):
        h.retain_grad()
        (h * h).sum().backward()
    assert h.retains_grad
    assert h.grad.tolist() == [4.0, 8.0]
    assert w.grad.tolist() == [8.0, 16.0]
