"""Cells of recurrent networks are recorded operation by operation, with torch's bits where kernels round alike.

torch computes gates in place in a part of a matrix: the vector kernels of some processors round such memory otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autograd_opt as ao

CELLS: dict[str, Callable[..., torch.nn.Module]] = {
    "gru": torch.nn.GRUCell, "lstm": torch.nn.LSTMCell, "tanh": torch.nn.RNNCell,
    "relu": lambda *sizes, **options: torch.nn.RNNCell(*sizes, nonlinearity="relu", **options),
}


def unrolled(name: str, bias: bool, dtype: torch.dtype, batched: bool) -> list[Any]:
    """States, names of their functions, first gradients, and for double precision second ones."""
    torch.manual_seed(0)
    cell = CELLS[name](3, 4, bias=bias, dtype=dtype)
    inputs = torch.randn(3, *((2, 3) if batched else (3,)), dtype=dtype).requires_grad_()
    state: Any = None
    for x in inputs:
        state = cell(x, state)
    states = state if isinstance(state, tuple) else (state,)
    names = [t.grad_fn.name() for t in states]
    loss = sum(t.square().sum() for t in states)
    leaves = [inputs, *cell.parameters()]
    second = dtype is torch.float64
    found = torch.autograd.grad(loss, leaves, create_graph=second)
    again = torch.autograd.grad(sum(g.square().sum() for g in found), leaves) if second else ()
    return [names, *(t.detach() for t in (*states, *found, *again))]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_cells_are_those_of_torch(name: str, bias: bool, dtype: torch.dtype, batched: bool, optimize: bool) -> None:
    expected = unrolled(name, bias, dtype, batched)
    with ao.AutogradGraph(optimize=optimize):
        found = unrolled(name, bias, dtype, batched)
    assert found[0] == expected[0]
    states = 2 if name == "lstm" else 1
    rounding = 2 * torch.finfo(dtype).eps
    for a, b in zip(found[1:1 + states], expected[1:1 + states], strict=True):
        torch.testing.assert_close(a, b, rtol=rounding, atol=rounding)
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    for a, b in zip(found[1 + states:], expected[1 + states:], strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_cell_is_recorded_as_its_operations() -> None:
    cell = torch.nn.GRUCell(3, 4)
    with ao.AutogradGraph() as graph:
        cell(torch.ones(2, 3))
        names = [node.op.name for node in graph.dag.nodes()]
    assert "linear" in names
    assert not any(name.startswith("opaque") for name in names)


@pytest.mark.parametrize("wrong", [
    lambda w: torch.gru_cell(torch.ones(2, 3), torch.ones(2, 5), *w),
    lambda w: torch.gru_cell(torch.ones(2, 2), torch.ones(2, 4), *w),
    lambda w: torch.lstm_cell(torch.ones(2, 3), (torch.ones(2, 4),), *w),
])
def test_sizes_that_do_not_fit_are_refused_in_torchs_words(wrong: Callable[[list[Tensor]], Any]) -> None:
    weights = [p.detach().requires_grad_() for p in torch.nn.GRUCell(3, 4).parameters()]
    with pytest.raises((RuntimeError, IndexError)) as expected:
        wrong(weights)
    with ao.AutogradGraph(), pytest.raises((RuntimeError, IndexError)) as found:
        wrong(weights)
    assert str(expected.value) in str(found.value)
