"""Tensors of another graph, left or still open: values as in torch, until a gradient comes to them."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

MODES = [False, True, "exact"]
F = torch.nn.functional


def sign_by_power(h: Any) -> Any:
    return (h > 1.5).float() * h.detach()


def state(h: Any) -> Any:
    with torch.no_grad():
        return h.mul(0.5).add(1).softmax(0)


USES: dict[str, Callable[[Any], Any]] = {
    "zeros_like": torch.zeros_like, "randn_like": lambda h: torch.ones_like(h) + torch.full_like(h, 2),
    "item": lambda h: h.sum().item(), "item of a row": lambda h: h[0].item(), "long": lambda h: h.long(),
    "sign": lambda h: h.sign().detach(), "compare": lambda h: (h > 1).sum(), "argmax": lambda h: h.argmax(),
    "no_grad": state, "shape": lambda h: (h.shape, h.size(0), len(h), h.dim(), h.dtype, h.numel()),
    "detach": lambda h: h.detach() * 2, "mixed": sign_by_power, "bool": lambda h: bool(h[1] > 1),
    "list": lambda h: h.tolist(), "numpy": lambda h: h.detach().numpy().tolist(), "abs": lambda h: abs(h).detach(),
    "iterate": lambda h: [x.item() for x in h], "index": lambda h: torch.arange(9.0)[h.long()],
    "mask": lambda h: torch.arange(3.0)[h > 1], "data": lambda h: h.data + 1, "isnan": lambda h: h.isnan().any(),
    "where": lambda h: torch.where(h > 1, 1, 0), "equal": lambda h: torch.equal(h, h.clone()),
    "copy_": lambda h: torch.zeros(3).copy_(h.detach()), "requires": lambda h: (h.requires_grad, h.is_leaf),
    "repr": repr, "format": lambda h: f"{h[0]:.3f} {h.detach()}", "one_hot": lambda h: F.one_hot(h.long(), 9),
    "result": lambda h: ((h * 2).requires_grad, (h * 2).is_leaf, repr(h * 2), (h * 2).grad_fn.name()),
    "grad_fn": lambda h: h.grad_fn.name(), "next": lambda h: (h * 2).grad_fn.next_functions[0][0] is h.grad_fn,
    "view": lambda h: (h.view(3, 1).shape, h[None].sum(0).detach()), "max": lambda h: h.max(0).indices,
}


def told(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.tolist(), str(result.dtype), result.requires_grad
    return type(result)(map(told, result)) if isinstance(result, (tuple, list)) else result


def kept(context: Callable[[], Any]) -> torch.Tensor:
    with context():
        return torch.tensor([0.5, 1.0, 2.0], requires_grad=True) * 2


def graph_of(optimize: Any) -> Callable[[], Any]:
    return lambda: ao.AutogradGraph(optimize=optimize)


@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("use", USES)
def test_values(use: str, optimize: Any) -> None:
    theirs = told(USES[use](kept(contextlib.nullcontext)))
    context = graph_of(optimize)
    for _ in range(2):
        h = kept(context)
        for within in (context, contextlib.nullcontext):
            with within():
                assert told(USES[use](h)) == theirs


@pytest.mark.parametrize("optimize", MODES)
def test_values_of_an_open_graph(optimize: Any) -> None:
    with ao.AutogradGraph(optimize=optimize):
        x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
        h = x * 2
        for use in USES.values():
            with ao.AutogradGraph(optimize=optimize):
                inner = told(use(h))
            assert inner == told(use(h))
        h.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def through(h: Any, w: Any) -> list[Any]:
    """Losses whose gradient would go on to the left graph."""
    part = torch.zeros(3)
    part.copy_(h)
    whole = h * w
    whole[0] = 0
    return [(h * w).sum(), h.sum(), h[0] * w[0], h.clone().mul_(w).sum(), (h.view(3, 1) * w).sum(), part.sum(),
            torch.cat([w, h]).sum(), whole.sum(), (h.detach() * w + h).sum(), F.linear(h, w[None]).sum(), h @ w,
            torch.utils.checkpoint.checkpoint(lambda a: (a * w).sum(), h, use_reentrant=False)]


@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("case", range(12))
def test_a_gradient_that_comes_to_it_is_refused(case: int, optimize: Any) -> None:
    h = kept(graph_of(optimize))
    w = torch.ones(3, requires_grad=True)
    message = r"result of mul, at .*test_left_graphs.py:\d+.*used in .*test_left_graphs.py:\d+.*detach"
    for run in (lambda loss: loss.backward(), torch.autograd.backward, lambda loss: torch.autograd.grad(loss, w),
                lambda loss: torch.autograd.grad(loss, w, create_graph=True, allow_unused=True),
                lambda loss: torch.autograd.grad(loss, (w, h), allow_unused=True)):
        with ao.AutogradGraph(optimize=optimize), pytest.raises(ao.GraphMismatchError, match=message):
            run(through(h, w)[case])
    assert w.grad is None


@pytest.mark.parametrize("optimize", MODES)
def test_a_gradient_that_ends_at_it(optimize: Any) -> None:
    h = kept(graph_of(optimize))
    with ao.AutogradGraph(optimize=optimize):
        (g,) = torch.autograd.grad((h * h).sum(), h)
    assert g.tolist() == [2.0, 4.0, 8.0]


@pytest.mark.parametrize("optimize", MODES)
def test_a_gradient_beside_it(optimize: Any) -> None:
    h = kept(graph_of(optimize))
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize) as graph:
        unused = h * w
        (h.detach() * w).sum().backward()
        assert unused.requires_grad
        assert graph.verify().status == "proved"
        assert w.grad is not None
        assert w.grad.tolist() == [1.0, 2.0, 4.0]
        unused = h * w
        assert "elsewhere" in str(graph)
        assert graph.to_dot()
        assert graph.report()
        graph.clear()
        with pytest.raises(ao.GraphError):
            (unused + h * w).sum().backward()
        (w * 2).sum().backward()


@pytest.mark.parametrize("optimize", MODES)
def test_what_was_written_since_is_read_anew(optimize: Any) -> None:
    h = kept(graph_of(optimize))
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        before = (h.detach() * w + h.sin().detach()).tolist()
        first = h.exp()
        h.detach().add_(1)
        assert h.exp().tolist() == (h.detach().exp()).tolist() != first.tolist()
        assert (h.detach() * w + h.sin().detach()).tolist() != before
        with torch.no_grad():
            h.mul_(2)
        assert h.exp().tolist() == h.detach().exp().tolist()
        h.mul_(w)
        with pytest.raises(ao.GraphMismatchError):
            h.sum().backward()


@pytest.mark.parametrize("optimize", MODES)
def test_what_is_computed_of_it_outside_keeps_that_it_has_a_history(optimize: Any) -> None:
    h = kept(graph_of(optimize))
    w = torch.ones(3, requires_grad=True)
    z = h * 2
    assert (z.requires_grad, z.is_leaf, repr(z)) == (True, False, "tensor([2., 4., 8.], grad_fn=<MulBackward0>)")
    assert not h.long().requires_grad
    assert not torch.zeros_like(h).requires_grad
    with pytest.raises(ao.OutsideGraphError):
        z.sum().backward()
    with ao.AutogradGraph(optimize=optimize):
        assert (z.detach() * w).tolist() == [2.0, 4.0, 8.0]
        assert z[0].item() == 2.0
        with pytest.raises(ao.GraphMismatchError, match="result of mul"):
            (z * w).sum().backward()


@pytest.mark.parametrize("optimize", MODES)
def test_a_state_that_is_kept_from_step_to_step(optimize: Any) -> None:
    """A spiking network: membrane potentials are reset by comparisons and detached by the user."""
    def train(context: Callable[[], Any]) -> list[Any]:
        torch.manual_seed(0)
        layer, state, out = torch.nn.Linear(4, 4), None, []
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for _ in range(5):
            with context():
                old = torch.zeros(2, 4) if state is None else state.detach()
                spikes = 0 if state is None else (state > 0.2).float()
                decay = 1.0 if state is None else 1 - state.mean().item()
                state = layer(torch.ones(2, 4)) + old * decay - spikes
                loss = state.square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            out.append((loss.item(), state.tolist()))
        return out
    assert train(graph_of(optimize)) == train(contextlib.nullcontext)


@pytest.mark.parametrize("optimize", MODES)
def test_many_kept_tensors_in_one_long_context(optimize: Any) -> None:
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize) as graph:
        for _ in range(600):
            h = kept(graph_of(optimize))
            (h.detach() * w + h.long()).sum().backward()
            h.sign().add(1)
        del h
        assert len(graph) < 2500
    assert w.grad is not None
    assert w.grad.tolist() == [600.0, 1200.0, 2400.0]


def test_no_warning_is_given() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for use in USES.values():
            with ao.AutogradGraph():
                use(kept(ao.AutogradGraph))


@pytest.mark.parametrize("run", [lambda y, x: y.backward(), lambda y, x: torch.autograd.grad(y, [x])])
def test_a_run_says_that_the_context_was_left_or_that_the_thread_is_another(run):
    x, errors = torch.ones(3, requires_grad=True), []

    def elsewhere():
        with pytest.raises(ao.OutsideGraphError, match="a thread other than the one") as caught:
            run(y, x)
        errors.append(caught)

    with ao.AutogradGraph():
        y = (x * 2).sum()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(errors) == 1
    with pytest.raises(ao.OutsideGraphError, match="after the context of its AutogradGraph was left"):
        run(y, x)


MADE_INSIDE: dict[str, Callable[[Any], Any]] = {
    "detach": lambda w: (w * 2).detach().requires_grad_(), "clone": lambda w: (w * 2).clone().detach().requires_grad_(),
    "constants": lambda w: (torch.ones(3) * 0.5).requires_grad_(), "data": lambda w: (w * 2).data.requires_grad_(),
    "flag": lambda w: assigned(torch.ones(3) + w.detach()), "detach_": lambda w: (w * 2).detach_().requires_grad_(),
    "parameter": lambda w: torch.nn.Parameter((w * 2).detach()), "no_grad": lambda w: without(w).requires_grad_(),
}


def assigned(t: Any) -> Any:
    t.requires_grad = True
    return t


def without(w: Any) -> Any:
    with torch.no_grad():
        return w * 2


def leaf_used(make: Callable[[Any], Any], context: Any) -> list[Any]:
    """What a leaf that a program has computed is inside and after a context: flags, and gradients there."""
    w = torch.ones(3, requires_grad=True)
    with context:
        p = make(w)
        seen = [p.is_leaf, p.requires_grad]
        (p * p * w).sum().backward()
        seen += [p.grad.tolist(), w.grad.tolist()]
    seen += [p.is_leaf, p.requires_grad, (p * 3).requires_grad]
    (p * p).sum().backward()
    torch.dot(w * p, p).backward()
    optimizer = torch.optim.SGD([p, w], 0.5)
    optimizer.step()
    return [*seen, p.grad.tolist(), w.grad.tolist(), p.tolist(), w.tolist()]


@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("name", MADE_INSIDE)
def test_a_leaf_that_was_computed_inside_stays_one(name: str, optimize: Any) -> None:
    make = MADE_INSIDE[name]
    assert leaf_used(make, ao.AutogradGraph(optimize=optimize)) == leaf_used(make, contextlib.nullcontext())
