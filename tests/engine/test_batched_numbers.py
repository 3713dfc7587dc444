"""Batched runs (`is_grads_batched=True`) where an operand or an index is one number: as one run for each cotangent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao

Tensor = torch.Tensor
K = torch.tensor(1)
"""An index without an axis."""
Case = tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], tuple[int, ...]]


def written(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z[K] = y
    return z


CASES: dict[str, Case] = {                     # of x and y, and their shapes
    "index_select": (lambda x, y: x.index_select(0, K), (4, 3), (1,)),
    "index_select of a vector": (lambda x, y: x.index_select(0, K), (4,), (1,)),
    "index_add": (lambda x, y: x.index_add(0, K, y), (4, 3), (1, 3)),
    "index_add to a vector": (lambda x, y: x.index_add(0, K, y), (4,), (1,)),
    "index_copy": (lambda x, y: x.index_copy(0, K, y), (4, 3), (1, 3)),
    "index_copy of a number": (lambda x, y: x.index_copy(0, K, y), (4,), ()),
    "index_fill": (lambda x, y: x.index_fill(0, K, y), (4, 3), ()),
    "index_reduce": (lambda x, y: x.index_reduce(0, K, y, "mean"), (4, 3), (1, 3)),
    "index_put": (lambda x, y: x.index_put((K,), y), (4, 3), (3,)),
    "index_put, added": (lambda x, y: x.index_put((K,), y, accumulate=True), (4, 3), (3,)),
    "gather": (lambda x, y: x.gather(0, K), (4,), ()),
    "scatter": (lambda x, y: x.scatter(0, K, y), (4,), ()),
    "scatter_add": (lambda x, y: x.scatter_add(0, K, y), (4,), ()),
    "scatter_reduce": (lambda x, y: x.scatter_reduce(0, K, y, "sum"), (4,), ()),
    "take": (lambda x, y: x.take(K), (4, 3), ()),
    "getitem": (lambda x, y: x[K], (4, 3), ()),
    "getitem of columns": (lambda x, y: x[:, K], (4, 3), ()),
    "getitem of both": (lambda x, y: x[K, torch.tensor([0, 2])], (4, 3), ()),
    "setitem": (written, (4, 3), (3,)),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 1), (4, 3), (3,)),
    "embedding": (lambda x, y: F.embedding(K, x), (4, 3), ()),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, K), (4,), ()),
    "masked_fill": (lambda x, y: x.masked_fill(K > 0, y), (4, 3), ()),
    "where": (lambda x, y: torch.where(K > 0, x, y), (4, 3), ()),
    "reductions of a number": (lambda x, y: y.sum(0) + y.mean(0) + y.amax(0) + y.prod(0) + y.norm(2, 0), (1,), ()),
    "scans of a number": (lambda x, y: y.cumsum(0) + y.cumprod(0) + y.logcumsumexp(0) + y.cummax(0)[0], (1,), ()),
    "picked from a number": (lambda x, y: y.sort(0)[0] + y.max(0)[0] + y.kthvalue(1)[0] + y.topk(1)[0], (1,), ()),
    "indexed number": (lambda x, y: y.gather(0, K * 0) + y.index_fill(0, K * 0, 2.0) + y.scatter(0, K * 0, x[0]),
                       (1,), ()),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_as_one_by_one(name: str, order: int, optimize: bool) -> None:
    function, of_x, of_y = CASES[name]
    with ao.AutogradGraph(optimize=optimize):
        x = torch.rand(of_x, dtype=torch.float64, requires_grad=True)
        y = torch.rand(of_y, dtype=torch.float64, requires_grad=True)
        out, inputs = [function(x, y)], [x, y]
        if order == 2:
            seed = torch.rand(out[0].shape, dtype=torch.float64, requires_grad=True)
            first = torch.autograd.grad(out, inputs, seed, create_graph=True, allow_unused=True)
            out, inputs = [g for g in first if g is not None and g.requires_grad], [x, y, seed]
        rows = [torch.rand(3, *o.shape, dtype=torch.float64) for o in out]
        found = torch.autograd.grad(out, inputs, rows, retain_graph=True, allow_unused=True, is_grads_batched=True)
        singly = [torch.autograd.grad(out, inputs, [row[i] for row in rows], retain_graph=True, allow_unused=True)
                  for i in range(3)]
    for i, g in enumerate(found):
        expected = [each[i] for each in singly]
        if g is None:
            assert expected[0] is None
        else:
            assert torch.allclose(g, torch.stack([e for e in expected if e is not None]))
