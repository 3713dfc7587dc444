"""Calls that give views of their operands, recorded whole: a later write of the operand reaches them, as in torch."""

from __future__ import annotations

import contextlib

import pytest
import torch

import autograd_opt as ao


def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x[0]


class Pair(torch.nn.Module):
    def forward(self, x):
        return pair(x)


VIEWS = {
    "einsum": lambda a: torch.einsum("ij->ji", a), "einsum of any axes": lambda a: torch.einsum("...ij->...ji", a),
    "einsum of the same": lambda a: torch.einsum("ij->ij", a),
    "einsum without an arrow": lambda a: torch.einsum("ba", a),
    "einsum of a diagonal": lambda a: torch.einsum("ii->i", a),
    "einsum by lists": lambda a: torch.einsum(a, [0, 1], [1, 0]),
    "vmap": lambda a: torch.vmap(pair)(a)[1], "jvp": lambda a: torch.func.jvp(lambda y: y[0], (a,), (a.detach(),))[0],
    "vjp": lambda a: torch.func.vjp(lambda y: (y.sum(), y[0]), a, has_aux=True)[2],
    "grad": lambda a: torch.func.grad(lambda y: (y.sum(), y[0]), has_aux=True)(a)[1],
    "jacrev": lambda a: torch.func.jacrev(lambda y: (y.sum(), y[0]), has_aux=True)(a)[1],
}


def gradient(view, context):
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with context:
        a = w * 1
        v = view(a)
        a.mul_(3)
        (v * v).sum().backward()
    return v.tolist(), w.grad.tolist()


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_reaches_the_view(name, optimize):
    view = VIEWS[name]
    assert gradient(view, ao.AutogradGraph(optimize=optimize)) == gradient(view, contextlib.nullcontext())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("optimize", [False, True])
def test_a_write_reaches_the_view_that_a_script_gives(optimize):
    for function in (torch.jit.script(pair), torch.jit.script(Pair()), torch.jit.trace(pair, torch.ones(2, 2))):
        expected = gradient(lambda a, f=function: f(a)[1], contextlib.nullcontext())
        assert gradient(lambda a, f=function: f(a)[1], ao.AutogradGraph(optimize=optimize)) == expected


@torch.jit.script
def add_into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x


def test_a_script_that_writes_a_gradient_into_a_constant_is_refused():
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(), pytest.raises(ao.errors.UnsupportedError, match="return the new value"):
        add_into(torch.zeros(3), w)
