"""`graph.clear()` inside the context: what was recorded before is refused, what is recorded after works."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import released_history

MODES: list[Any] = [False, True, "exact"]


def refused(ask: Callable[[], Any]) -> None:
    with pytest.raises(ao.FreedGraphError) as caught:
        ask()
    text = str(caught.value)
    for part in ("was cleared", "sin", "test_cleared.py:", "detach()"):
        assert part in text


@pytest.mark.parametrize("optimize", MODES)
def test_what_was_recorded_before_is_refused(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize, name="g") as graph:
        loss = x.sin().sum().sin()
        graph.clear()
        refused(loss.backward)
        refused(lambda: torch.autograd.grad(loss, x))
        refused(lambda: graph.grad(loss, x, allow_unused=True))
        refused(lambda: graph.grad(loss, x, create_graph=True))
        refused(lambda: graph.verify(loss))
        refused(lambda: graph.report(loss))
    assert x.grad is None


@pytest.mark.parametrize("optimize", MODES)
def test_a_path_through_it_is_not_left_out(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a = x.sin()
        graph.clear()
        loss = (a * x).sum()
        refused(loss.backward)
        refused(lambda: torch.autograd.grad(loss, x))
        refused(graph.verify)
        refused(graph.report)
        assert x.grad is None


@pytest.mark.parametrize("optimize", MODES)
def test_after_a_freeing_backward_too(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a = x.sin()
        (a * a).sum().backward()
        graph.clear()
        refused(lambda: (a * x).sum().backward())


@pytest.mark.parametrize("optimize", MODES)
def test_its_values_and_all_that_comes_later_are_as_ever(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a = x.sin()
        for _ in range(3):
            graph.clear()
            x.grad = None
            (a.detach() * x.sin()).sum().backward()
            assert x.grad is not None
            assert torch.equal(x.grad, (a * x.cos()).detach())
        del a
        graph.clear()
        assert graph.released is None
        y = x.sin()
    with graph:
        with pytest.raises(ao.GraphMismatchError):
            (y * 2).sum().backward()
        x.sin().sum().backward()


@pytest.mark.parametrize("optimize", MODES)
def test_values_that_are_met_again_do_not_stand_in_the_way(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a, loss = x.sin(), x.exp().sum()
        graph.clear()
        a.register_hook(lambda g: None)
        float(loss)
        new = (a.detach() * x.sin()).sum()
        assert graph.verify().status == "proved"
        assert graph.report().nodes[0] == len(graph)
        (g,) = torch.autograd.grad(new, x, create_graph=True)
        assert torch.equal(g, (x.sin() * x.cos()).detach())
        refused(lambda: torch.autograd.backward([new, (a * x).sum()]))
        assert x.grad is None


@pytest.mark.parametrize("optimize", MODES)
def test_writes_views_and_parts_are_refused(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        whole, base, parts = x.sin(), x.exp(), x.cos().split(1)
        part = base[0]
        part.mul_(2)
        edge = torch.autograd.graph.get_gradient_edge(whole)
        graph.clear()
        whole.mul_(3)
        for t in (whole, base, part, parts[1], whole.view(2, 1), part.reshape(1)):
            with pytest.raises(ao.FreedGraphError, match="was cleared after"):
                t.sum().backward()
        with pytest.raises(ao.FreedGraphError):
            torch.autograd.backward([edge], [torch.ones(2)])
    assert x.grad is None


def test_another_graph_goes_its_usual_way_beside_a_cleared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph() as graph:
        a = x.sin()
        graph.clear()
        assert released_history.innermost()
        with ao.AutogradGraph():
            assert not released_history.innermost()
            with monkeypatch.context() as patched:
                patched.setattr("autograd_opt.engine.backward.execute", pytest.fail)
                x.exp().sum().backward()
    with graph:
        x.exp().sum().backward(retain_graph=True)
        assert not released_history.innermost()
        assert not a.is_leaf


@pytest.mark.parametrize("optimize", MODES)
def test_clearing_each_step_holds_no_more_from_step_to_step(optimize: Any) -> None:
    x = ao.tensor([1.0, 2.0])
    objects, made = [], weakref.WeakSet[Any]()
    with ao.AutogradGraph(optimize=optimize) as graph:
        for step in range(1000):
            loss = x.sin().sum()
            loss.backward()
            made.add(loss)
            graph.clear()
            if step in (499, 999):
                gc.collect()
                objects.append(len(gc.get_objects()))
                assert graph.released is not None
                assert len(graph.released.nodes) == len(made) == 1
    assert objects[1] - objects[0] < 100
    number = graph.number
    assert number in released_history.graphs
    del graph
    gc.collect()
    assert number not in released_history.graphs


def test_losses_kept_over_many_clears_are_let_go_with_their_tensors() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph() as graph:
        losses = []
        for _ in range(600):
            losses.append(x.sum())
            graph.clear()
        assert len(graph.released.nodes) == 600
        for loss in (losses[0], losses[300], losses[-1]):
            with pytest.raises(ao.FreedGraphError, match="was cleared"):
                (loss * 2).backward()
        del losses, loss
        for _ in range(5):
            kept = [x.sum() for _ in range(400)]
            graph.clear()
        assert len(kept) <= len(graph.released.nodes) <= 1200


def test_another_thread_does_not_clear_an_open_graph() -> None:
    x = ao.tensor([1.0, 2.0])
    said: list[str] = []

    def other() -> None:
        try:
            graph.clear()
        except ao.GraphError as error:
            said.append(str(error))

    with ao.AutogradGraph(optimize=True) as graph:
        a = x.sin()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(said) == 1
        assert "another thread" in said[0]
        (a * x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, (x.sin() + x * x.cos()).detach())
    thread = threading.Thread(target=graph.clear)       # of none by now
    thread.start()
    thread.join()
