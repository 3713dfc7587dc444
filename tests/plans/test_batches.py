"""Kernels of one kind that a plan runs as one: what is computed is what each computes by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.plans.memory import Buffers

Tensor = torch.Tensor
COUNT = 9


def rows(x: Tensor) -> list[Tensor]:
    """Matrices of one shape that do not lie together."""
    return [torch.sin(x * (k + 1)) for k in range(COUNT)]


def ensemble(x: Tensor, w: Tensor) -> list[Tensor]:
    """The same network with other weights, layer by layer."""
    return [torch.tanh(x @ torch.sin(w * k)) @ torch.cos(w * k) for k in range(1, COUNT)]


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "products": lambda x, w: [r @ (r + 1) for r in rows(x)],
    "products with one operand in common": lambda x, w: [r @ w for r in rows(x)],
    "products of one operand in common": lambda x, w: [w.t() @ r for r in rows(x)],
    "products with a vector added": lambda x, w: [torch.addmm(w[0], r, w) for r in rows(x)],
    "products added to others": lambda x, w: [torch.addmm(r, r + 1, w, beta=0.5, alpha=2) for r in rows(x)],
    "products of turned operands": lambda x, w: [(r + 1).t() @ r for r in rows(x)],
    "sums over the first axis": lambda x, w: [r.sum(0) for r in rows(x)],
    "sums over the last axis, kept": lambda x, w: [r.sum(-1, keepdim=True) for r in rows(x)],
    "sums over both": lambda x, w: [r.sum((0, 1)) for r in rows(x)],
    "chains": ensemble,
    "of two kinds": lambda x, w: [r @ w for r in rows(x)] + [r[:2].sum(0) for r in rows(x)],
    "results of which some are returned": lambda x, w: [(r @ w).sum(1) for r in rows(x)][::2] + [rows(x)[1] @ w],
}


def same(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5 if a.dtype == torch.float32 else 1e-12, atol=1e-6)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_compute_what_each_computes(name: str, dtype: torch.dtype) -> None:
    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        return [t * 1.5 for t in FUNCTIONS[name](x, w)]

    repeated = ao.compile(function)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, w = (torch.randn(4, 4, generator=generator, dtype=dtype) for _ in range(2))
        same(repeated(x, w), function(x, w))
    (kind,) = repeated.report().kinds
    assert sum(kind.kernels.values()) <= 6, kind.kernels


def test_a_hessian_row_by_row() -> None:
    """As many kernels as one row has, whatever the number of rows."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()

    def hessian(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
        return torch.stack([torch.autograd.grad(e, x, retain_graph=True)[0].flatten() for e in g.flatten()])

    repeated = ao.compile(hessian)
    for seed in range(3):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        same(repeated(x), hessian(x))
    (kind,) = repeated.report().kinds
    assert not kind.reason
    assert max(kind.kernels.values()) <= 8, kind.kernels


def test_no_batches_where_bits_count() -> None:
    repeated = ao.compile(lambda x, w: [r @ w + 1 for r in rows(x)], exact=True)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(2):
        for found, expected in zip(repeated(x, w), [r @ w + 1 for r in rows(x)], strict=True):
            assert torch.equal(found, expected)
    (kind,) = repeated.report().kinds
    assert kind.kernels["mm.default"] == COUNT


def test_few_and_large_kernels_are_no_batch() -> None:
    few = ao.compile(lambda x: [(x * k) @ x + 1 for k in (2.0, 3.0)])
    large = ao.compile(lambda x: [(x * k) @ x + 1 for k in (2.0, 3.0, 4.0, 5.0, 6.0)])
    for function, x, count in ((few, torch.randn(4, 4), 2), (large, torch.randn(200, 200), 5)):
        function(x)
        function(x)
        (kind,) = function.report().kinds
        assert kind.kernels["mm.default"] == count


def test_memory_of_which_a_row_is_still_read_is_not_used_again() -> None:
    """What is written into one row in place is read later than the batch that made the rows."""
    buffers, like = Buffers(), torch.empty(1)
    rows = buffers.take((3, 4), like, number=0, last=2)
    buffers.use(rows[1], 9)
    assert buffers.take((12,), like, number=5, last=6).data_ptr() != rows.data_ptr()
    assert buffers.take((12,), like, number=10, last=11).data_ptr() == rows.data_ptr()
