"""A root that has another shape since it was computed: its cotangent is summed to the shape of then, or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
CHANGES: dict[str, Callable[[Tensor], object]] = {
    "t_": lambda v: v.t_(), "unsqueeze_ first": lambda v: v.unsqueeze_(0), "unsqueeze_ last": lambda v: v.unsqueeze_(2),
    "squeeze_": lambda v: v.squeeze_(), "other data": lambda v: setattr(v, "data", torch.ones(4)),
    "larger data": lambda v: setattr(v, "data", torch.ones(5, 2, 3)),
    "smaller data": lambda v: setattr(v, "data", torch.ones(3)),
}
ROOTS: dict[str, Callable[[Tensor], Tensor]] = {
    "of one operation": lambda w: w * 2, "of a view": lambda w: w[:1] * 2, "of two": lambda w: w * 1.5 + w,
    "a sum": lambda w: w.sum(0, keepdim=True), "of a transform": lambda w: torch.vmap(lambda t: t * 2)(w),
}
RUNS: dict[str, Callable[[Tensor, Tensor], Tensor | None]] = {
    "grad": lambda v, w: torch.autograd.grad(v, [w], torch.ones_like(v))[0],
    "batched": lambda v, w: torch.autograd.grad(v, [w], torch.ones(2, *v.shape), is_grads_batched=True)[0],
    "backward": lambda v, w: (v.backward(torch.ones_like(v)), w.grad)[1],
}


def outcome(make: Any, change: Any, run: Any) -> Any:
    w = torch.arange(6.0).reshape(2, 3).requires_grad_()
    v = make(w)
    with torch.no_grad():
        change(v)
    try:
        gradient = run(v, w)
    except RuntimeError as refused:
        return str(refused).partition(" [at ")[0]
    return None if gradient is None else gradient.tolist()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("change", CHANGES)
def test_as_in_torch(change: str, run: str) -> None:
    for root, make in ROOTS.items():
        wanted = outcome(make, CHANGES[change], RUNS[run])
        for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph(optimize=True)):
            with context:
                assert outcome(make, CHANGES[change], RUNS[run]) == wanted, root
