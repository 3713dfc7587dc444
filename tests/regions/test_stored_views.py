"""Views that a region takes without gradients, stored or returned beside its results; results of torch's classes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda t: t[0], lambda t: t[:, 1], lambda t: t.reshape(-1), lambda t: t.t(), lambda t: t[1:].unsqueeze(0),
    lambda t: t.detach(),
]


def program(seed: int) -> Callable[..., Any]:
    """A function of `x` and `w` that stores some of its tensors, and views of them, in a list, and returns others."""
    chosen = random.Random(seed)
    kinds = ["view", "view", "read", "store", "give", "step"]
    steps = [(chosen.choice(kinds), chosen.randrange(99), chosen.choice(VIEWS)) for _ in range(chosen.randrange(3, 9))]

    def run(x: torch.Tensor, w: torch.Tensor, stored: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        tensors, views, given = [x, x * w], [], []
        for kind, which, view in steps:
            if kind == "view":
                with torch.no_grad():
                    views.append(view(tensors[which % len(tensors)]))
            elif kind == "read" and views:
                with torch.no_grad():
                    views[which % len(views)].sin()
            elif kind == "step":
                tensors.append(tensors[which % len(tensors)] * w - 1)
            elif kind in ("store", "give"):
                among = tensors[1:] + views
                (stored if kind == "store" else given).append(among[which % len(among)])
        return (tensors[-1].sum(), *given)

    return run


def outcome(run: Callable[..., Any]) -> list[Any]:
    x, w = (torch.arange(1.0, 7).double().reshape(2, 3).requires_grad_() for _ in range(2))
    seen = []
    for _ in range(3):
        stored: list[torch.Tensor] = []
        loss, *given = run(x, w, stored)
        for t in [loss, *given, *stored]:
            seen.append((t.tolist(), t.grad_fn is None, t.grad_fn is None or t.requires_grad))
        loss.backward()
        seen.append([None if t.grad is None else t.grad.tolist() for t in (x, w)])
    return seen


@pytest.mark.parametrize("seed", range(120))
def test_gradients_and_stored_tensors_are_those_of_torch(seed: int) -> None:
    run = program(seed)
    assert outcome(ao.optimize(run)) == outcome(run)


def described(result: Any) -> Any:
    """The classes and values of a nested result."""
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.requires_grad
    items = result.items() if isinstance(result, dict) else enumerate(result)
    return type(result), [(key, described(item)) for key, item in items]


@pytest.mark.parametrize("function", [
    lambda x: x.topk(2), torch.sort, lambda x: {"best": x.max(0)}, lambda x: torch.linalg.svd(x.diag()),
    lambda x: (x.min(0), x.cummax(0)), lambda x: torch.linalg.slogdet(x.diag())])
def test_results_of_torchs_own_classes(function: Callable[..., Any]) -> None:
    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    expected, given = function(x), ao.optimize(function)(x)
    assert described(given) == described(expected)
