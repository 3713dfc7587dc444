"""Views that torch has made of a leaf outside any context, used inside: the gradient goes to the leaf, as in torch."""

from __future__ import annotations

import contextlib

import pytest
import torch

import autograd_opt as ao

MAKE = {
    "unbind": lambda w: w.unbind()[1], "iter": lambda w: list(w)[2], "select": lambda w: w[1],
    "split": lambda w: w.split(2)[0], "chunk": lambda w: w.chunk(2, 1)[1],
    "tensor_split": lambda w: w.tensor_split(2)[1], "hsplit": lambda w: w.hsplit(2)[0],
    "a view of one of several": lambda w: w.unbind()[1][:1],
}


def outcome(make, write, context):
    w = torch.arange(6.0).reshape(3, 2).clone().requires_grad_()
    view = make(w)
    with torch.no_grad():
        if write == "base written":
            w.add_(1)
        if write == "view written":
            view.add_(1)
    try:
        with context:
            (view * view).sum().backward()
    except RuntimeError:
        return "refused"
    return w.grad.tolist()


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("write", ["unwritten", "base written", "view written"])
@pytest.mark.parametrize("name", MAKE)
def test_as_in_torch(name, write, optimize):
    expected = outcome(MAKE[name], write, contextlib.nullcontext())
    assert expected != "refused" or write != "unwritten"
    assert outcome(MAKE[name], write, ao.AutogradGraph(optimize=optimize)) == expected


def views_of_a_leaf(context):
    """What is said of views made under no_grad, and before their base required grad, after and outside a context."""
    seen = []
    for late in (False, True):
        w = torch.arange(6.0)
        if late:
            view = w[:4]
            w.requires_grad_()
        else:
            w.requires_grad_()
            with torch.no_grad():
                view = w[:4]
        seen.append((view.requires_grad, view.is_leaf, view.grad_fn, repr(view)))
        with context():
            result = view * 2
            made = torch.arange(6.0).requires_grad_() if not late else w
            with torch.no_grad():
                other = made[1:]
        for t in (view, other):
            seen.append((t.requires_grad, t.is_leaf, t.grad_fn, repr(t)))
        seen.append((result.requires_grad, result.is_leaf))
        w.requires_grad_(False)
        seen.append((view.requires_grad, view.is_leaf, repr(view)))
    return seen


@pytest.mark.parametrize("optimize", [False, True])
def test_a_view_requires_grad_with_its_base_after_the_context(optimize):
    assert views_of_a_leaf(lambda: ao.AutogradGraph(optimize=optimize)) == views_of_a_leaf(contextlib.nullcontext)
