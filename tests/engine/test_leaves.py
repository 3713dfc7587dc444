"""Leaves of every kind, met for the first time: what is asked of a plain Parameter, and what of the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import autograd_opt as ao

EXPOSED = 512
MEMORY = np.ones(4, dtype=np.float32)

KINDS: dict[str, Callable[[], Tensor]] = {
    "parameter": lambda: torch.nn.Parameter(torch.ones(4)),
    "tensor": lambda: torch.ones(4, requires_grad=True),
    "of numpy": lambda: torch.from_numpy(MEMORY.copy()).requires_grad_(),
    "parameter of numpy": lambda: torch.nn.Parameter(torch.from_numpy(MEMORY.copy())),
    "view": lambda: torch.ones(2, 4)[0].requires_grad_(),
    "constant": lambda: torch.ones(4),
    "frozen": lambda: torch.nn.Parameter(torch.ones(4), requires_grad=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_described_as_they_are(kind: str) -> None:
    t = KINDS[kind]()
    with ao.AutogradGraph(optimize=True) as graph:
        y = t * 2
        z = t * 2
        node = graph.tape.node(0)
        assert (node.shape, node.dtype, node.device) == (t.shape, t.dtype, t.device)
        assert node.is_leaf
        assert node.requires_grad == t.requires_grad
        assert node.tensor is t
        assert bool(node.flags & EXPOSED) == kind.endswith("numpy")
        assert (graph.tape.hits == 1) == (not kind.endswith("numpy"))
        if t.requires_grad:
            (y + z).sum().backward()
    assert t.grad is None or t.grad.tolist() == [4.0] * 4
    assert (t.grad is None) == (not t.requires_grad)


def test_memory_of_numpy_is_read_anew() -> None:
    memory = MEMORY.copy()
    w = torch.nn.Parameter(torch.from_numpy(memory))
    with ao.AutogradGraph(optimize=True):
        first = w * 2
        memory[0] = 5
        second = w * 2
    assert first.tolist() == [2.0] * 4
    assert second.tolist() == [10.0, 2.0, 2.0, 2.0]


def test_other_data_between_two_graphs() -> None:
    w = torch.nn.Parameter(torch.ones(2))
    for data in (torch.ones(2), torch.ones(3, 2, dtype=torch.float64)):
        w.data, w.grad = data, None
        with ao.AutogradGraph(optimize=True) as graph:
            (w * 3).sum().backward()
            assert graph.tape.node(0).shape == data.shape
            assert graph.tape.node(0).dtype is data.dtype
        grad: Tensor | None = w.grad
        assert grad is not None
        assert torch.equal(grad, torch.full_like(data, 3))


def test_a_dead_constant_leaves_its_place() -> None:
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        c = torch.full((2,), 3.0)
        y = x * c
        assert len(graph.tape.leaf_items()) == 2
        del y, c
        assert [t is x for _, t in graph.tape.leaf_items()] == [True]
