"""Reference cycles through what nodes hold: the collector frees what it frees under torch eager."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, box: Any) -> Tensor:
        ctx.box = box
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # type: ignore[override]
        return g, None


class KeepTwo(Keep):
    @staticmethod
    def forward(ctx: Any, x: Tensor, box: Any) -> Any:  # type: ignore[override]
        ctx.box = box
        return x.clone(), x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:  # type: ignore[override]
        return g + 2 * h, None


class Saver(Keep):
    @staticmethod
    def forward(ctx: Any, x: Tensor, box: Any) -> Tensor:
        ctx.box = box
        out = x.clone()
        ctx.save_for_backward(x, out)
        return out


def leaf() -> Tensor:
    return torch.ones(1, requires_grad=True)


def through_ctx() -> list[Tensor]:
    box: list[Any] = []
    box.append(Keep.apply(leaf(), box))
    return box


def through_saved() -> list[Tensor]:
    box: list[Any] = []
    box.append(Saver.apply(leaf(), box))
    return box


def one_of_two() -> list[Tensor]:
    box: list[Any] = []
    box.append(KeepTwo.apply(leaf(), box)[0])
    return box


def through_a_used_result() -> list[Tensor]:
    box: list[Any] = []
    box.append(Keep.apply(leaf(), box))
    box[0] * 2
    return box


def after_backward() -> list[Tensor]:
    box: list[Any] = []
    box.append(Keep.apply(leaf(), box))
    box[0].sum().backward()
    return box


def through_a_hook() -> list[Tensor]:
    y = leaf() * 2
    y.register_hook(lambda g: y.sum() and None)
    return [y]


def through_a_hook_of_its_node() -> list[Tensor]:
    y = leaf() * 2
    y.grad_fn.register_hook(lambda gi, go: y.sum() and None)  # type: ignore[union-attr]
    return [y]


def through_metadata() -> list[Tensor]:
    y = leaf() * 2
    y.grad_fn.metadata["tensor"] = y  # type: ignore[union-attr]
    return [y]


def through_an_attribute() -> list[Tensor]:
    y: Any = leaf() * 2
    y.me = y
    return [y]


def through_retained_gradient() -> list[Tensor]:
    y: Any = leaf() * 2
    y.retain_grad()
    y.sum().backward()
    y.grad.me = y
    return [y]


def without_a_cycle() -> list[Tensor]:
    return [Keep.apply(leaf(), None)]


FREED = (through_ctx, through_saved, one_of_two, through_a_used_result, after_backward, through_a_hook,
         through_a_hook_of_its_node, through_metadata, through_an_attribute, through_retained_gradient, without_a_cycle)


def alive(make: Callable[[], list[Tensor]]) -> int:
    """How many of ten are left."""
    refs: list[Any] = []
    for _ in range(10):
        refs.extend(torch._C._WeakTensorRef(t) for t in make())  # type: ignore[attr-defined]
    gc.collect()
    return sum(not r.expired() for r in refs)


@pytest.mark.parametrize("make", FREED, ids=lambda f: f.__name__)
def test_cycles_are_freed(make: Callable[[], list[Tensor]]) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            seen.append(alive(make))
    assert max(seen[1:]) <= seen[0]


@pytest.mark.parametrize("optimize", [False, True])
def test_what_is_used_stays(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        box: list[Any] = []
        x = leaf()
        y = Keep.apply(x, box)
        box.append(y)
        z = y * 3
        hooked = []
        z.register_hook(lambda g: hooked.append(z) or None)
        del y, box
        gc.collect()
        z.sum().backward()
    assert x.grad is not None
    assert (x.grad.item(), len(hooked)) == (3, 1)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_long_lived_context_does_not_grow(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        refs = []
        for _ in range(300):
            box: list[Any] = []
            box.append(Keep.apply(leaf(), box))
            box[0].sum().backward()
            refs.append(torch._C._WeakTensorRef(box[0]))  # type: ignore[attr-defined]
            del box
        gc.collect()
        assert not any(not r.expired() for r in refs)
