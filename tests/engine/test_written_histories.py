"""Tensors that torch has computed before a context, and views of them, written and read inside."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

import autograd_opt as ao
from tests.late_base import late_base

BASES = {
    "product": lambda w: w * 2, "view": lambda w: (w * 2).view(2, 6), "turned": lambda w: (w * 2).t(),
    "part": lambda w: (w * 2)[1:], "flat": lambda w: (w * 2).flatten(), "copy": lambda w: (w * 2).t().contiguous(),
}
VIEWS = {
    "rows": lambda h: h[:2], "row": lambda h: h[0], "flat": lambda h: h.reshape(-1),
    "turned": lambda h: h.mT if h.dim() > 1 else h[1:],
    "itself": lambda h: h, "second": lambda h: h[:2][1:], "expanded": lambda h: h.unsqueeze(0),
}
WRITES = {
    "mul_": lambda t, w: t.mul_(3), "add_": lambda t, w: t.add_(w.sum()), "part": lambda t, w: t[:1].mul_(w.mean()),
    "item": lambda t, w: t.__setitem__(0, w[0, 0]), "fill": lambda t, w: t.fill_(2.0),
    "copy_": lambda t, w: t.copy_(w[0, 1] * t),
    "silent": lambda t, w: t.detach().mul_(2), "iadd": lambda t, w: t.__iadd__(1.0),
}


def gradient(base, views, acts, context, errors=None):
    """The gradient of `w`, and the values, of a program that reads and writes what was made before the context.

    `errors` is told what was refused, in words.
    """
    w = torch.arange(1.0, 13).reshape(3, 4).requires_grad_()
    h = BASES[base](w)
    tensors = [h, *[VIEWS[v](h) for v in views]]
    total, seen = 0.0, []
    with context:
        for kind, which, write in acts:
            t = tensors[which % len(tensors)]
            try:
                if kind == "read":
                    total = total + (t * t).sum()
                else:
                    WRITES[write](t, w)
            except (RuntimeError, IndexError) as error:
                seen.append("refused")
                if errors is not None:
                    errors.append(repr(error))
        seen += [t.tolist() for t in tensors]
        if isinstance(total, torch.Tensor):
            try:
                total.backward()
            except (RuntimeError, IndexError):
                seen.append("no backward")
    return seen, None if w.grad is None else w.grad.tolist()


def program(seed):
    chosen = random.Random(seed)
    acts = [(chosen.choice(["read", "write"]), chosen.randrange(3), chosen.choice(list(WRITES)))
            for _ in range(chosen.randrange(1, 6))]
    views = [chosen.choice(list(VIEWS)) for _ in range(2)]
    return chosen.choice(list(BASES)), views, [*acts, ("read", chosen.randrange(3), "")]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_gradients_are_those_of_torch(seed, optimize):
    what, errors = program(seed), []
    found = gradient(*what, ao.AutogradGraph(optimize=optimize), errors)
    assert found == gradient(*what, contextlib.nullcontext()), (what, errors)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_a_base_elsewhere_that_came_to_require_grad_changes_nothing(seed, optimize):
    alive = late_base()
    test_gradients_are_those_of_torch(seed, optimize)
    assert alive[0].requires_grad
