"""Inputs that a Function marks as dirty: what it must return, versions, gradients and errors, against torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor


def add(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    ctx.mark_dirty(a)
    return a


def not_returned(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    return add(ctx, a, b) + b


def nothing_returned(ctx: Any, a: Tensor, b: Tensor) -> None:
    add(ctx, a, b)


def twice(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    ctx.mark_dirty(a, a)
    return a


def no_tensor(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    ctx.mark_dirty(3)
    return a * b


def none(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    ctx.mark_dirty(None)
    return a * b


def a_list(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    ctx.mark_dirty([a])
    return a


def no_input(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    c = a * b
    ctx.mark_dirty(c)
    return c


def no_input_not_returned(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    ctx.mark_dirty(a * b)
    return a * b


def the_last_call_counts(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    ctx.mark_dirty(b)
    ctx.mark_dirty(a)
    return a


def not_written(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    ctx.mark_dirty(a)
    return a


def both(ctx: Any, a: Tensor, b: Tensor) -> Any:
    a.add_(b)
    b.add_(1)
    ctx.mark_dirty(a, b)
    return a, b


def one_of_both(ctx: Any, a: Tensor, b: Tensor) -> Any:
    return both(ctx, a, b)[0]


def not_differentiable(ctx: Any, a: Tensor, b: Tensor) -> Any:
    add(ctx, a, b)
    ctx.mark_non_differentiable(a)
    return a, b * 2


def a_view_returned(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    return add(ctx, a, b).view(-1)


def not_marked(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    return a.add_(b)


def saved(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    add(ctx, a, b)
    ctx.save_for_backward(a, b)
    return a


BODIES: tuple[Callable[..., Any], ...] = (
    add, not_returned, nothing_returned, twice, no_tensor, none, a_list, no_input, no_input_not_returned,
    the_last_call_counts, not_written, both, one_of_both, not_differentiable, a_view_returned, not_marked, saved,
)


def leaf(n: int = 2) -> Tensor:
    return torch.ones(n, requires_grad=True)


INPUTS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "computed, leaf": lambda: (leaf().clone(), leaf()),
    "computed, computed": lambda: (leaf().clone(), leaf().clone()),
    "leaf, computed": lambda: (leaf(), leaf().clone()),
    "constant, computed": lambda: (torch.ones(2), leaf().clone()),
    "constants": lambda: (torch.ones(2), torch.ones(2)),
    "view, computed": lambda: (leaf(4).clone()[:2], leaf().clone()),
    "view of a constant, computed": lambda: (torch.ones(4)[:2], leaf().clone()),
    "view of a leaf, computed": lambda: (leaf(4)[:2], leaf().clone()),
}


def function(body: Callable[..., Any]) -> Any:
    class Dirty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Any:
            return body(ctx, a, b)

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return g[0], 2 * g[0] + sum(t.sum() for t in ctx.saved_tensors)

    return Dirty


def observed(body: Callable[..., Any], made: tuple[Tensor, Tensor], grad: bool) -> Any:
    a, b = made
    for t in (a, b):
        if t.grad_fn is not None:
            t.retain_grad()
    before = a._version, b._version
    try:
        with nullcontext() if grad else torch.no_grad():
            out = function(body).apply(a, b)
        outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, Tensor)]
        seen = [(o is a, o is b, o.requires_grad, o.tolist()) for o in outs]
        seen.append((a._version - before[0], b._version - before[1], a.requires_grad, a.is_leaf))
        if grad and any(o.requires_grad for o in outs):
            sum(o.sum() for o in outs).backward()
            seen.append((None if b.grad is None else b.grad.tolist(),))
        return seen
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        return kind, str(error)[:40]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_marks(body: Callable[..., Any], inputs: str, grad: bool) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            seen.append(observed(body, INPUTS[inputs](), grad))
    if "INTERNAL ASSERT" not in str(seen[0]):           # torch's own: `retain_grad` of two results of one Function
        assert seen[1:] == [seen[0]] * 2
