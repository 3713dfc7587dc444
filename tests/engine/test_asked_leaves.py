"""What is asked of a leaf, without a derivative that would read it, holds it no longer than torch does."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
ATTRIBUTES = (
    "grad_fn is_leaf requires_grad retains_grad output_nr _version data shape grad dtype device layout T mT real "
    "is_sparse _base _backward_hooks nbytes"
).split()
ASKS: dict[str, Callable[[Tensor], object]] = {
    **{name: lambda t, name=name: getattr(t, name) for name in ATTRIBUTES},  # type: ignore[misc]
    "retain_grad": lambda t: t.retain_grad(), "repr": repr, "len": len, "tolist": lambda t: t.tolist(),
    "detach": lambda t: t.detach(), "numpy": lambda t: t.detach().numpy(), "item": lambda t: t.flatten()[0].item(),
    "==": lambda t: t == t, ">": lambda t: t > 0, "argmax": lambda t: t.argmax(), "//": lambda t: t // 2,
    "sort": lambda t: t.sort(0)[1], "nonzero": lambda t: t.nonzero(), "long": lambda t: t.long(),
    "register_hook": lambda t: t.register_hook(lambda g: g).remove(), "requires_grad_": lambda t: t.requires_grad_(),
    "edge": torch.autograd.graph.get_gradient_edge, "zeros_like": torch.zeros_like, "deepcopy": copy.deepcopy,
    "untyped_storage": lambda t: t.untyped_storage(), "equal": lambda t: torch.equal(t, t),
    "written": lambda t: torch.no_grad()(t.mul_)(2), "other data": lambda t: setattr(t, "data", t.data * 2),
    "grad assigned": lambda t: setattr(t, "grad", torch.ones_like(t)),
    "Parameter": lambda t: torch.nn.Parameter(t.detach()),
    "without a record": lambda t: torch.no_grad()(torch.mul)(t, 2), "backward": lambda t: t.sum().backward(),
}
W = torch.randn(4, 4, requires_grad=True)
LEAVES: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.randn(4, 4, requires_grad=True), "Parameter": lambda: torch.nn.Parameter(torch.randn(4, 4)),
    "view": lambda: torch.randn(4, 4).t().requires_grad_(),
    "computed": lambda: (torch.randn(4, 4) * 2).requires_grad_(),
    "detached": lambda: (W * 2).detach().requires_grad_(),
    "this library's": lambda: ao.tensor(torch.randn(4, 4), requires_grad=True),
}


def held(
    make: Callable[[], Tensor], ask: Callable[[Tensor], object], context: AbstractContextManager[Any]
) -> bool | str:
    """Is the leaf alive once nobody has it but the graph?"""
    with context, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaf = make()
        reference = weakref.ref(leaf)
        try:
            ask(leaf)
        except (RuntimeError, TypeError) as refused:
            return type(refused).__name__
        del leaf
        return reference() is not None


@pytest.mark.parametrize("ask", ASKS)
def test_to_ask_is_not_to_hold(ask: str) -> None:
    for name, make in LEAVES.items():
        as_torch = LEAVES["plain"] if name == "this library's" else make
        expected = held(as_torch, ASKS[ask], nullcontext())
        for optimize in (False, True):
            assert held(make, ASKS[ask], ao.AutogradGraph(optimize=optimize)) == expected, (name, optimize)
