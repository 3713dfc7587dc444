"""Inference tensors used inside a context: results, flags and errors are those of torch eager."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "view": lambda c, w: [c.view(-1)], "reshape": lambda c, w: [c.reshape(4)], "transpose": lambda c, w: [c.t()],
    "permute": lambda c, w: [c.permute(1, 0)], "an index": lambda c, w: [c[0]], "a slice": lambda c, w: [c[:, 1:]],
    "expand": lambda c, w: [c[0].expand(3, 2)], "squeeze": lambda c, w: [c.unsqueeze(0).squeeze(0)],
    "split": lambda c, w: c.split(1), "unbind": lambda c, w: c.unbind(), "chunk": lambda c, w: c.chunk(2, 1),
    "diagonal": lambda c, w: [c.diagonal()], "narrow": lambda c, w: [c.narrow(0, 0, 1)], "mT": lambda c, w: [c.mT],
    "view_as": lambda c, w: [c.view_as(c)], "detach": lambda c, w: [c.detach()],
    "unfold": lambda c, w: [c.unfold(0, 1, 1)],
    "flatten": lambda c, w: [c.flatten()], "contiguous": lambda c, w: [c.contiguous()], "real": lambda c, w: [c.real],
    "a view of a view, used": lambda c, w: [c.view(-1)[1:].view(-1) + w.view(-1)[1:]],
    "clone": lambda c, w: [c.clone()], "exp": lambda c, w: [c.exp()], "neg": lambda c, w: [-c],
    "sum": lambda c, w: [c.sum()],
    "a sum with a leaf": lambda c, w: [c + w], "a product with a leaf": lambda c, w: [c * w],
    "a product with a number": lambda c, w: [c * 2], "a matrix product": lambda c, w: [c @ w],
    "a product with a view": lambda c, w: [c.view(2, 2) * w], "cat": lambda c, w: [torch.cat([c, w])],
    "where": lambda c, w: [torch.where(c > 0, w, c)], "linear": lambda c, w: [torch.nn.functional.linear(c, w)],
    "under no_grad": lambda c, w: [no_grad(lambda: c * w), no_grad(lambda: c.view(-1))],
    "a write": lambda c, w: [c.add_(1)], "a write of a leaf": lambda c, w: [c.add_(w)],
    "a write to a view": lambda c, w: [c.view(-1).add_(1)],
    "an assignment": lambda c, w: [c.__setitem__(0, 1.0), c][1:],
    "a write into a result": lambda c, w: [(w * 2).add_(c)], "mul_ of a result": lambda c, w: [(w * 2).mul_(c)],
    "copy_ into a result": lambda c, w: [(w * 2).copy_(c)], "requires_grad_": lambda c, w: [c.requires_grad_()],
    "a clone that requires grad": lambda c, w: [c.clone().requires_grad_() * w],
    "inside the mode": lambda c, w: [
        inference(lambda: c * w), inference(lambda: w.view(-1)), inference(lambda: c.add_(1))],
    "a view made inside the mode": lambda c, w: [inference(lambda: w.view(-1)) * 2],
    "a result of the mode, used": lambda c, w: [inference(lambda: w * 2) + w],
    "data": lambda c, w: [c.data], "to": lambda c, w: [c.to(torch.float32), c.to(torch.float64)],
}


def no_grad(f: Callable[[], Any]) -> Any:
    with torch.no_grad():
        return f()


def inference(f: Callable[[], Any]) -> Any:
    with torch.inference_mode():
        return f()


def observed(program: Callable[..., Any], c: Tensor, w: Tensor) -> Any:
    try:
        out = list(program(c, w))
        seen = [(t.requires_grad, t.is_inference(), t.is_leaf, t.tolist()) for t in out]
        for t in out:
            if t.requires_grad and not t.is_inference():
                t.sum().backward()
        return seen, None if w.grad is None else w.grad.tolist()
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        return kind, str(error)[:60]


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inference_tensors(name: str, needs: bool) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with torch.inference_mode():
            c = torch.arange(4.0).view(2, 2).clone().requires_grad_(needs)
        with context:
            seen.append(observed(PROGRAMS[name], c, torch.ones(2, 2, requires_grad=True)))
    assert seen[1:] == [seen[0]] * 2
