"""Writes through views, by methods and by Functions, below nodes that carry hooks."""

from __future__ import annotations

import pytest
import torch

import autograd_opt as ao
from tests.named import Doubled

VIEWS = {
    "base": lambda b: b,
    "copy": lambda b: b * 1,
    "view": lambda b: b.view(3, 2),
    "transpose": lambda b: b.T,
    "stack": lambda b: torch.stack([b, b]),
    "view of stack": lambda b: torch.stack([b, b]).view(3, 4),
    "split": lambda b: b.split(2, 1)[0],
    "unbind": lambda b: b.unbind(0)[0],
    "unbind of stack": lambda b: torch.stack([b, b]).unbind(0)[0],
    "row": lambda b: b[0].unsqueeze(0),
}
WRITES = {
    "function": Doubled.apply,
    "mul_": lambda w: w.mul_(2),
    "copy_": lambda w: w.copy_(w.detach() * 3),
}


def doubled(cotangents):
    return tuple(None if g is None else g * 2 for g in cotangents)


HOOKS = {
    "none": lambda v: None,
    "pre": lambda v: v.grad_fn.register_prehook(doubled),
    "post": lambda v: v.grad_fn.register_hook(lambda inputs, _: doubled(inputs)),
}


def gradient(leaf, view, write, hook, used):
    """What a program that writes through a view of a view leaves in `leaf.grad`, or the error of it."""
    x = leaf.clone().requires_grad_()
    try:
        b = x * 1
        v = VIEWS[view](b)
        HOOKS[hook](v)
        w = WRITES[write](v[..., :1])
        (w, v, b)[used].sum().backward()
    except RuntimeError as error:
        return str(error).partition(" This view ")[0].partition("\n")[0]
    return x.grad.tolist()


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_passes_the_hooks_that_torch_passes(view, write, hook):
    """The written view's way to its base leads around the views between; views of several are refused, by name."""
    leaf = torch.arange(1.0, 7.0).view(2, 3)
    for used in range(3):
        want = gradient(leaf, view, write, hook, used)
        for optimize in (False, True):
            with ao.AutogradGraph(optimize=optimize):
                got = gradient(leaf, view, write, hook, used)
            assert got == want, (used, optimize)


RESHAPED = {"swapdims_": lambda v: v.swapdims_(1, 0), "transpose_": lambda v: v.transpose_(0, 1),
            "unsqueeze_": lambda v: v.unsqueeze_(0),
            "mul_": lambda v: v.mul_(2)}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("last", RESHAPED)
@pytest.mark.parametrize("first", RESHAPED)
def test_a_hook_joins_those_from_before_another_shape_was_given(first, last, optimize):
    def seen():
        found = []
        v = torch.arange(6.0).reshape(2, 3).requires_grad_() * 1
        for write in (lambda v: v, RESHAPED[first], RESHAPED[last]):
            write(v)
            v.register_hook(lambda g: found.append((tuple(g.shape), g.sum().item())))
        (v * v).sum().backward()
        return found

    expected = seen()
    with ao.AutogradGraph(optimize=optimize):
        assert seen() == expected
