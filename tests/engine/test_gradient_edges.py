"""Gradient edges: what a cotangent for one may be, and edges as roots and inputs, against torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.autograd.graph import get_gradient_edge as edge

import autograd_opt as ao

Tensor = torch.Tensor


def grad(root: Any, x: Any, g: Any = None, **options: Any) -> Any:
    return torch.autograd.grad(root, x, g, **options)


def backward(root: Any, x: Tensor, g: Any = None, **options: Any) -> Any:
    torch.autograd.backward(root, g, **options)
    return [x.grad]


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x * 2, x.sum()

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return a * 2 + b


ONES = torch.ones(2)
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "the right shape": lambda x: grad(edge(x * 3), x, ONES),
    "another shape": lambda x: grad(edge(x * 3), x, torch.ones(5, 2)),
    "a shape that would broadcast": lambda x: grad(edge(x * 3), x, torch.ones(1)),
    "a number's shape": lambda x: grad(edge(x * 3), x, torch.ones(())),
    "another dtype": lambda x: grad(edge(x * 3), x, ONES.double()),
    "a complex one": lambda x: grad(edge(x * 3), x, ONES.to(torch.complex64)),
    "of a complex result": lambda x: grad(edge(x * 1j), x, ONES),
    "no tensor": lambda x: grad(edge(x * 3), x, (1.0,)),
    "none, of two numbers": lambda x: grad(edge(x * 3), x),
    "none, of one": lambda x: grad(edge((x * 3).sum()), x),
    "none, of one in a row": lambda x: grad(edge((x * 3)[:1]), x),
    "several, one wrong": lambda x: grad([edge(x * 3), edge(x * 2)], x, [torch.ones(3), ONES]),
    "an edge and a tensor": lambda x: grad([edge(x * 3), x * 2], x, [ONES, ONES]),
    "an edge and a tensor, cast": lambda x: grad([edge(x * 3), x * 2], x, [ONES.double(), ONES.double()]),
    "backward": lambda x: backward(edge(x * 3), x, ONES),
    "backward, another shape": lambda x: backward(edge(x * 3), x, torch.ones(3)),
    "backward, another dtype": lambda x: backward(edge(x * 3), x, ONES.half()),
    "backward with inputs": lambda x: backward(edge(x * 3), x, ONES, inputs=[x]),
    "backward with an edge as input": lambda x: backward(edge(x * 3), x, ONES, inputs=[edge(x)]),
    "a leaf's edge": lambda x: grad(edge(x), x, ONES),
    "an edge as input": lambda x: grad((x * 3).sum(), edge(x)),
    "an inner edge as input": lambda x: [y := x * 3, *grad((y * y).sum(), edge(y))][1:],
    "both ends are edges": lambda x: [y := x * 3, *grad(edge(y * y), edge(y), ONES)][1:],
    "an output of a split": lambda x: grad(edge(x.split(1)[1]), x, torch.ones(1)),
    "an output of a split, another shape": lambda x: grad(edge(x.split(1)[1]), x, ONES),
    "values of a sort": lambda x: grad(edge(x.sort().values), x, ONES),
    "values of a sort, another shape": lambda x: grad(edge(x.sort().values), x, torch.ones(3)),
    "an output of a Function": lambda x: grad(edge(Two.apply(x)[0]), x, ONES),
    "the other output of a Function": lambda x: grad(edge(Two.apply(x)[1]), x),
    "an output of a Function, another shape": lambda x: grad(edge(Two.apply(x)[1]), x, ONES),
    "an output of a Function, cast": lambda x: grad(edge(Two.apply(x)[0]), x, ONES.double()),
    "batched": lambda x: grad(edge(x * 3), x, torch.eye(2), is_grads_batched=True),
    "batched, another shape": lambda x: grad(edge(x * 3), x, torch.ones(2, 3), is_grads_batched=True),
    "batched, cast": lambda x: grad(edge(x * 3), x, torch.eye(2).double(), is_grads_batched=True),
    "create_graph": lambda x: grad(grad(edge(x ** 3), x, ONES, create_graph=True)[0].sum(), x),
    "create_graph, another shape": lambda x: grad(edge(x ** 3), x, torch.ones(1, 2), create_graph=True),
    "what requires no grad": lambda x: grad(edge(x.detach()), x, ONES),
    "a written view": lambda x: [y := x * 3, y[0].mul_(2), *grad(edge(y), x, ONES)][2:],
}


def observed(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return [(g.shape, g.dtype, g.tolist()) if isinstance(g, Tensor) else g for g in program(x)]
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        return kind, str(error).split(" [at")[0].split(", not for one of shape")[0][:110]


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_edges(name: str, custom: bool) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            values = torch.tensor([2.0, 1.0])
            x = ao.tensor(values, requires_grad=True) if custom and seen else values.requires_grad_()
            seen.append(observed(PROGRAMS[name], x))
    assert seen[1:] == [seen[0]] * 2


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_a_hook_of_several_leaves_where_a_leaf_is_root_and_target(written, optimize):
    """A write without a record does not make the leaf another node."""
    def program():
        seen = []
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        torch.autograd.graph.register_multi_grad_hook([x, y], lambda gradients: seen.append(len(gradients)))
        if written:
            x.data[...] = 0.25
        gradient, = torch.autograd.grad(x, x, torch.ones(3), retain_graph=True)
        return gradient.tolist(), seen

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected
