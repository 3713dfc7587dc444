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


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.narrow(0, 0, 1), y.narrow(0, 0, 1)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return g.expand(2, 2), h.expand(2, 2)


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


BASES: dict[str, Callable[[], torch.Tensor]] = {
    "constant": lambda: torch.ones(2, 2),
    "constant of a computation": lambda: torch.ones(2, 2) * 2,
    "leaf": lambda: torch.ones(2, 2, requires_grad=True),
    "result": lambda: torch.ones(2, 2, requires_grad=True) * 2,
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda b: b.view_as(b),
    "view of a view": lambda b: b.view_as(b).view_as(b),
    "one of many": lambda b: b.unbind()[0],
    "view of one of many": lambda b: b.unbind()[0].view(2),
    "a Jacobian": lambda b: torch.func.jacrev(torch.sin)(b),
    "part of a Jacobian": lambda b: torch.func.jacfwd(torch.sin)(b)[0],
    "one of two Jacobians": lambda b: torch.func.jacrev(lambda t, q: t * q, (0, 1))(b, b * 2)[1],
    "of a Function": Same.apply,
    "of a Function's pair": lambda b: Pair.apply(b, torch.ones(2, 2, requires_grad=True) * 3)[0],
}
WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "a number": lambda v: v.add_(1),
    "a tensor that requires grad": lambda v: v.copy_(torch.full_like(v, 3.0).requires_grad_()),
    "an operator": lambda v: v.__imul__(torch.full_like(v, 3.0).requires_grad_()),
    "random": lambda v: v.normal_(),
    "turned": lambda v: v.unsqueeze_(0),
    "turned under no_grad": lambda v: (torch.no_grad()(v.unsqueeze_)(0), v.mul_(2)),
    "a Function's": lambda v: Scaled.apply(v),
}


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 2


def written_or_refused(base: str, view: str, mode: Any, write: str) -> str:
    """The whole refusal, without the place; or whether the written view requires grad."""
    b = BASES[base]()
    with mode():
        v = VIEWS[view](b)
    try:
        WRITES[write](v)
    except RuntimeError as refused:
        return str(refused).partition(" [at ")[0]
    return str(v.requires_grad)


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad])
@pytest.mark.parametrize("view", VIEWS)
def test_every_write_that_torch_refuses_is_refused_in_its_words(mode: Any, view: str) -> None:
    differ = []
    for base in BASES:
        for write in WRITES:
            wanted = written_or_refused(base, view, mode, write)
            for optimize in (False, True):
                with ao.AutogradGraph(optimize=optimize):
                    said = written_or_refused(base, view, mode, write)
                if write == "turned under no_grad" and "Jacobian" in view:      # which node, torch says after the turn
                    said, wanted = (words.partition(" is a view")[2] or words for words in (said, wanted))
                if said.removesuffix(" Use torch.no_grad() to update it, or write to a clone()") != wanted:
                    differ.append((base, write, said[:100], wanted[:100]))
    assert not differ, "\n".join(map(str, differ))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("then", [lambda y: y, lambda y: y.view(2), lambda y: y[0]], ids=["itself", "view", "part"])
def test_a_view_that_became_a_leaf_is_refused_for_how_it_was_made(mode: Any, then: Any) -> None:
    def said(base: torch.Tensor) -> str:
        with mode():
            view = base.view(2)
        view.requires_grad_()
        return first_words(lambda: then(view).div_(2))

    for factor in (1.0, torch.ones(2, requires_grad=True)):
        wanted = said(torch.zeros(2) * factor)
        for optimize in (False, True):
            with ao.AutogradGraph(optimize=optimize):
                assert said(torch.zeros(2) * factor) == wanted


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


@pytest.mark.parametrize("optimize", [False, True])
def test_a_view_of_hidden_memory_computed_of_one_of_several_results(optimize: bool) -> None:
    """The memory is of the call's own making: what the Function returned is not written."""
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            ctx.save_for_backward(x)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return g * 2 + h * 3

    def program() -> list[Any]:
        x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
        seen: list[Any] = []
        _, second = Both.apply(x)
        second.register_hook(lambda g: seen.append(g.tolist()))
        slope = torch.func.grad(lambda t: t.prod())(second)
        slope.mul_(2.0)
        slope.sum().backward()
        return [slope.tolist(), x.grad.tolist(), seen]

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected
