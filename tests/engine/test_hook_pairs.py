"""Saved-tensor hooks entered and left in odd places: what stays on torch's stack, and who is asked, against torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import autograd_opt as ao

Tensor = torch.Tensor


class Hooks(saved_tensors_hooks):
    """Counts what it packs."""

    def __init__(self, unpack: Any = None):
        self.packed = 0
        super().__init__(self.count, unpack or (lambda t: t))

    def count(self, t: Tensor) -> Tensor:
        self.packed += 1
        return t


def leaf() -> Tensor:
    return torch.ones(3, requires_grad=True)


def entered_in_unpack() -> Any:
    inner = Hooks()
    with Hooks(lambda t: (inner.__enter__(), t)[1]):
        leaf().sin().sum().backward()
    leaf().sin()
    return inner.packed


def entered_in_unpack_of_two_operations() -> Any:
    inner = Hooks()
    with Hooks(lambda t: (inner.__enter__(), t)[1]):
        leaf().sin().cos().sum().backward()
    leaf().sin()
    return inner.packed


def left_in_unpack() -> Any:
    outer = Hooks()
    with outer, Hooks(lambda t: (outer.__exit__(), t)[1]):
        leaf().sin().sum().backward()
        leaf().sin()
    return outer.packed


def entered_in_a_tensor_hook() -> Any:
    inner, y = Hooks(), leaf() * 2
    y.register_hook(lambda g: inner.__enter__())
    (y * y).sum().backward()
    leaf().sin()
    return inner.packed


def left_in_a_tensor_hook() -> Any:
    outer, y = Hooks(), leaf() * 2
    with outer:
        y.register_hook(lambda g: outer.__exit__())
        y.sum().backward()
        leaf().sin()
    return outer.packed


def entered_in_a_leaf_hook() -> Any:
    inner, x = Hooks(), leaf()
    x.register_hook(lambda g: inner.__enter__())
    x.sum().backward()
    leaf().sin()
    return inner.packed


def entered_in_a_post_accumulate_hook() -> Any:
    inner, x = Hooks(), leaf()
    x.register_post_accumulate_grad_hook(lambda t: inner.__enter__())
    x.sum().backward()
    leaf().sin()
    return inner.packed


def entered_in_backward_of_a_function() -> Any:
    inner = Hooks()

    class Enters(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            inner.__enter__()
            return g

    Enters.apply(leaf()).sum().backward()
    leaf().sin()
    return inner.packed


def entered_in_forward_of_a_function() -> Any:
    inner = Hooks()

    class Enters(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            inner.__enter__()
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            return g

    Enters.apply(leaf())
    leaf().sin()
    return inner.packed


def entered_in_pack() -> Any:
    inner = Hooks()
    outer = saved_tensors_hooks(lambda t: (inner.__enter__(), t)[1], lambda t: t)
    outer.__enter__()
    leaf().sin()
    leaf().sin()
    return inner.packed


def an_error_in_unpack() -> Any:
    inner = Hooks()

    def unpack(t: Tensor) -> Tensor:
        inner.__enter__()
        raise ValueError("no")

    with suppress(ValueError), Hooks(unpack):
        leaf().sin().sum().backward()
    leaf().sin()
    return inner.packed


def an_error_in_pack() -> Any:
    def pack(t: Tensor) -> Tensor:
        raise ValueError("no")

    with suppress(ValueError), saved_tensors_hooks(pack, lambda t: t):
        leaf().sin()
    leaf().sin()


def left_in_another_order() -> Any:
    a, b = Hooks(), Hooks()
    a.__enter__()
    b.__enter__()
    a.__exit__()
    leaf().sin()
    return a.packed, b.packed


def the_same_pair_twice() -> Any:
    a = Hooks()
    with a, a:
        leaf().sin()
    return a.packed


def inside_another_run() -> Any:
    inner, y = Hooks(), leaf() * 2

    def hook(g: Tensor) -> None:
        inner.__enter__()
        leaf().sin().sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    leaf().sin()
    return inner.packed


def entered_in_unpack_of_a_recorded_run() -> Any:
    inner, x = Hooks(), leaf()
    with Hooks(lambda t: (inner.__enter__(), t)[1]):
        y = x.sin().cos()
    torch.autograd.grad(y.sum(), x, create_graph=True)
    leaf().sin()
    return inner.packed


def entered_in_a_tensor_hook_of_a_recorded_run() -> Any:
    inner, x = Hooks(), leaf()
    y = x * 2
    y.register_hook(lambda g: inner.__enter__())
    torch.autograd.grad((y * y).sum(), x, create_graph=True)
    leaf().sin()
    return inner.packed


def entered_in_a_prehook_of_a_recorded_run() -> Any:
    inner, x = Hooks(), leaf()
    y = x.sin()
    y.grad_fn.register_prehook(lambda g: (inner.__enter__(), None)[1])
    y.grad_fn.register_hook(lambda g, o: (x.cos(), None)[1])
    torch.autograd.grad((y * y).sum(), x, create_graph=True)
    leaf().sin()
    return inner.packed


def asked_by_a_later_hook_of_the_node() -> Any:
    inner, x = Hooks(), leaf()
    y = x.sin()

    def later(g: Any, o: Any) -> None:
        with torch.enable_grad():
            x.cos()

    y.grad_fn.register_prehook(lambda g: (inner.__enter__(), None)[1])
    y.grad_fn.register_hook(later)
    y.sum().backward()
    leaf().sin()
    return inner.packed


PROGRAMS = (
    entered_in_unpack_of_a_recorded_run, entered_in_a_tensor_hook_of_a_recorded_run,
    entered_in_a_prehook_of_a_recorded_run, asked_by_a_later_hook_of_the_node,
    entered_in_unpack, entered_in_unpack_of_two_operations, left_in_unpack, entered_in_a_tensor_hook,
    left_in_a_tensor_hook, entered_in_a_leaf_hook, entered_in_a_post_accumulate_hook,
    entered_in_backward_of_a_function, entered_in_forward_of_a_function, entered_in_pack, an_error_in_unpack,
    an_error_in_pack, left_in_another_order, the_same_pair_twice, inside_another_run,
)


def observed(program: Callable[[], Any]) -> Any:
    """What the program says, and how many pairs it leaves."""
    try:
        seen = program()
    except Exception as error:
        seen = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    left = 0
    empty = saved_tensors_hooks(lambda t: t, lambda t: t)
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:  # type: ignore[attr-defined]
        empty.__exit__()
        left += 1
    return seen, left


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_pairs(program: Callable[[], Any]) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            seen.append(observed(program))
    assert seen[1:] == [seen[0]] * 2


@pytest.mark.parametrize("optimize", [False, True])
def test_pairs_across_the_ends_of_a_context(optimize: bool) -> None:
    first, second = Hooks(), Hooks()
    first.__enter__()
    with ao.AutogradGraph(optimize=optimize):
        leaf().sin()
        first.__exit__()
        leaf().sin()
        second.__enter__()
    leaf().sin()
    with ao.AutogradGraph(optimize=optimize):
        leaf().sin()
    second.__exit__()
    assert (first.packed, second.packed) == (1, 2)
