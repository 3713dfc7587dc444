"""Inside a context, a tensor that torch has computed shows torch's history, until a write moves it to the graph's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao


def shown(t: torch.Tensor) -> tuple[Any, ...]:
    return t.is_leaf, None if t.grad_fn is None else t.grad_fn.name(), t.requires_grad, t.retains_grad, t.output_nr


def program(inside: Any) -> list[Any]:
    a = torch.ones(3, requires_grad=True)
    y = a * 2
    y.retain_grad()
    tensors = [a, y, y[:2], y.detach(), a.view(3, 1), torch.stack([a, a]).unbind(0)[1], a.expand(2, 3)]
    found: list[Any] = [[shown(t) for t in tensors]]
    with inside:
        found.append([shown(t) for t in tensors])
        used = [t * 2 for t in tensors if t.requires_grad]
        found.append([shown(t) for t in tensors])
        with torch.no_grad():
            found.append([shown(t) for t in tensors])
        assert y.grad_fn is not None
        y.grad_fn.register_hook(lambda _, cotangents: found.append(cotangents[0].tolist()))
        sum(t.sum() for t in used).backward()  # type: ignore[union-attr]
        y.mul_(3)
        found.append([shown(t) for t in tensors])
        y.detach_()
        found.append([shown(t) for t in tensors])
    return [*found, a.grad]


@pytest.mark.parametrize("optimize", [False, True])
def test_torch_s_history_is_shown(optimize: bool) -> None:
    expected, found = program(nullcontext()), program(ao.AutogradGraph(optimize=optimize))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_what_was_read_before_detach_in_place_keeps_its_gradient(written: bool, optimize: bool) -> None:
    def run(inside: Any) -> list[Any]:
        a = torch.ones(3, requires_grad=True)
        y = a * 2
        seen: list[float] = []
        y.register_hook(lambda g: seen.append(g.sum().item()))
        with inside:
            z = (y * 3).sum() + (y[1:] * 5).sum()
            if written:
                y.mul_(2)
                z = z + (y * 4).sum()
            y.detach_()
            (z + (y.exp() * a).sum()).backward(retain_graph=True)
            y.mul_(7)
            z.backward()
        return [a.grad, y, y.requires_grad, y.is_leaf, y.grad_fn is None, written or seen]

    for one, other in zip(run(ao.AutogradGraph(optimize=optimize)), run(nullcontext()), strict=True):
        torch.testing.assert_close(one, other)
