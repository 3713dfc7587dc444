"""Refusals name what the user did: the mode that a view was made in, and the thread of a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


def first_words(write: Callable[[], object]) -> str:
    """The first sentence of the refusal."""
    with pytest.raises(RuntimeError) as caught:
        write()
    return str(caught.value).partition(".")[0]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("which", ["view", "base"])
def test_the_mode_that_a_view_was_made_in_is_named(mode: Any, which: str) -> None:
    def said() -> str:
        base = torch.ones(4, requires_grad=True) * 2
        with mode():
            view = base.view(2, 2)
        if which == "view":
            return first_words(lambda: view.mul_(3))
        base.mul_(3)
        return first_words(lambda: view.grad_fn)

    wanted = said()
    with ao.AutogradGraph():
        assert said() == wanted


def test_the_context_of_a_function_is_a_node() -> None:
    seen = []

    class Asks(Same):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append(isinstance(ctx, torch.autograd.graph.Node))
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            seen.append(isinstance(ctx, torch.autograd.graph.Node))
            return g

    for context in (nullcontext(), ao.AutogradGraph()):
        with context:
            Asks.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert seen == [True] * 4


def test_backward_in_another_thread_is_refused_for_that_reason() -> None:
    said: list[str] = []

    with ao.AutogradGraph():
        x = torch.ones(2, requires_grad=True)
        loss = (x * 3).sum()

        def work() -> None:
            with pytest.raises(ao.errors.OutsideGraphError) as caught:
                loss.backward()
            said.append(str(caught.value))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        loss.backward()
    assert "thread" in said[0]
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]
