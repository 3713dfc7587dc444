"""Hooks on saved tensors that fail, nest and release."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.autograd import Function, grad
from torch.autograd.graph import (
    saved_tensors_hooks,
)

from tests.engine.behaviour import caught, group

Tensor = torch.Tensor
saved = group("saved tensors: hooks that fail, nest, and release")


@saved("")
def a_pack_hook_that_raises(new):
    """An error while packing reaches the caller; the next operation works."""
    x = new(1.0, 2.0)

    def pack(t: Tensor) -> Any:
        raise KeyError("full")

    def program() -> Any:
        with saved_tensors_hooks(pack, lambda t: t):
            return x * x

    error = caught(program)
    (x * x).sum().backward()
    return error, x.grad


@saved("")
def an_unpack_hook_that_raises(new):
    """An error while unpacking reaches the caller; a second try with a hook that works is right."""
    x, fails = new(1.0, 2.0), [True]

    def unpack(t: Tensor) -> Tensor:
        if fails[0]:
            raise KeyError("lost")
        return t

    with saved_tensors_hooks(lambda t: t.clone(), unpack):
        y = (x * x * 2).sum()
    error = caught(lambda: y.backward(retain_graph=True))
    fails[0] = False
    x.grad = None
    y.backward()
    return error, x.grad


@saved("")
def nested_pairs(new):
    """Only the innermost pair of hooks is called."""
    x, seen = new(1.0, 2.0), []
    with saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t), \
            saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t * 1):
        y = x.exp()
    z = y * 3
    z.sum().backward()
    return sorted(seen), x.grad


@saved("")
def hooks_switched_off(new):
    """disable_saved_tensors_hooks refuses a pair and lets everything else work."""
    x = new(1.0, 2.0)

    def program() -> Any:
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"), \
                saved_tensors_hooks(lambda t: t, lambda t: t):
            return x * x

    error = caught(program)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        (x * x).sum().backward()
    return error, x.grad


@saved("")
def saved_on_the_cpu(new):
    """save_on_cpu, with second order."""
    x = new(1.0, 2.0)
    with torch.autograd.graph.save_on_cpu():
        y = (x.exp() * x).sum()
    (g,) = grad(y, x, create_graph=True)
    return g, grad(g.sum(), x)


@saved("")
def what_is_released(new):
    """Saved values die with backward, and with the graph."""
    x = new(1.0, 2.0)

    class Marked(Function):
        @staticmethod
        def forward(ctx, x):
            extra = x * 2
            refs.append(weakref.ref(extra))
            ctx.save_for_backward(extra)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    refs: list[Any] = []
    y, z = Marked.apply(x), Marked.apply(x * 1)
    y.sum().backward(retain_graph=True)
    kept = refs[0]() is not None
    y.sum().backward()
    after = refs[0]() is not None
    before = refs[1]() is not None
    del z
    return kept, after, before, refs[1]() is not None


@saved("test_saved_tensor_hooks_extra_enter_during_bw_no_leak")
def hooks_entered_by_an_unpack_hook(new):
    """An unpack hook that installs hooks of its own, which end with it"""
    seen = []

    def unpack(t):
        with saved_tensors_hooks(lambda v: v, lambda v: v):
            seen.append("unpacked")
            return t * 1.0

    x = new.randn(3)
    with saved_tensors_hooks(lambda v: v, unpack):
        y = x.sin() * x
    y.sum().backward()
    packs = []
    with saved_tensors_hooks(lambda v: packs.append(1) or v, lambda v: v):
        x.exp()
    return x.grad, len(seen) > 0, len(packs) > 0


@saved("")
def operands_are_saved_in_the_order_of_their_names(new):
    """A counting hook sees the saved values in torch's order: `other` before `self`, `end` before `input`."""
    a, b, c = new((1.0, 2.0), (3.0, 4.0)), new((0.5, 0.25), (2.0, 1.5)), new((5.0, 6.0), (7.0, 8.0))

    def packed(function: Any, *operands: Tensor) -> list[str]:
        seen: list[str] = []

        def pack(t: Tensor) -> Tensor:
            seen.append(next((n for n, x in zip("abc", (a, b, c), strict=True) if torch.equal(t, x)), "result"))
            return t

        with saved_tensors_hooks(pack, lambda t: t):
            function(*operands)
        return seen

    functions = [torch.mul, torch.div, torch.mm, torch.pow, torch.atan2, torch.maximum, torch.hypot, torch.xlogy,
                 torch.nn.functional.mse_loss, torch.cdist, lambda x, y: x.clone().mul_(y)]
    return [packed(f, a, b) for f in functions], packed(torch.lerp, a, b, c), packed(torch.addcmul, a, b, c), \
        packed(torch.addmm, a, b, c)


@saved("")
def a_packed_result_below_a_write_where_other_memory_was_shown(new):
    """What a pack hook has made of a result is not asked where it lies, though some memory is seen outside."""
    x, other = new((1.0, 2.0), (3.0, 5.0)), torch.zeros(2)
    other.data.add_(1)
    with saved_tensors_hooks(lambda t: (t.detach() * 2,), lambda packed: packed[0] / 2):
        y = x.std()
    y.sin_()
    (y * 4).backward()
    return x.grad


test_saved_hooks = saved.check()
