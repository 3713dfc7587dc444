"""Gradients that are handed out have torch's strides, so that `g.view(-1)` works where it does there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao

Tensor = torch.Tensor
TRANSPOSES: dict[str, Callable[[Tensor], Tensor]] = {
    "t": lambda w: w.t(), "T": lambda w: w.T, "mT": lambda w: w.mT, "H": lambda w: w.H,
    "transpose": lambda w: w.transpose(-1, 0), "permute": lambda w: w.permute(1, 0), "none": lambda w: w.t().t().t(),
    "scaled": lambda w: 2 * w.t(), "twice": lambda w: w.t() * w.t(), "by a constant": lambda w: w.t() * w.detach().t(),
    "chain": lambda w: (w.t() / 2).exp().sin(), "by a row": lambda w: w[:, 0].detach() + w.t(),
    "not at all": lambda w: w.t().contiguous().transpose(1, 1),
}
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda x, w: x @ w, "mm": torch.mm, "linear": lambda x, w: F.linear(w.t(), x),
    "addmm": lambda x, w: torch.addmm(w[0].detach(), x, w),
    "linear, bias": lambda x, w: F.linear(x, w.t(), w[0].detach()),
    "stack": lambda x, w: x.expand(2, *x.shape) @ w, "both": lambda x, w: w.t() @ x.t(),
}


def strides(transpose: str, product: str, dtype: torch.dtype, create_graph: bool) -> list[object]:
    torch.manual_seed(0)
    w = torch.randn(4, 3, dtype=dtype, requires_grad=True)
    x = torch.randn(5, 3, dtype=dtype, requires_grad=True)
    y = PRODUCTS[product](x, TRANSPOSES[transpose](w))
    found = torch.autograd.grad(y, [x, w], torch.randn_like(y.detach()), create_graph=create_graph)
    return [(g.stride(), torch.view_as_real(g.detach() * (1 + 0j)).round(decimals=8).tolist()) for g in found]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("transpose", TRANSPOSES)
def test_of_products_with_a_transpose(transpose: str, product: str, dtype: torch.dtype, create_graph: bool) -> None:
    expected = strides(transpose, product, dtype, create_graph)
    for optimize in (False, True, "exact"):
        with ao.AutogradGraph(optimize=optimize):
            assert strides(transpose, product, dtype, create_graph) == expected


@pytest.mark.parametrize("optimize", [False, True])
def test_a_vector_of_all_gradients_of_a_layer_written_by_hand(optimize: bool) -> None:
    w, b = torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        loss = (torch.ones(5, 3) @ w.T + b).tanh().square().sum()
        flat = torch.cat([g.view(-1) for g in torch.autograd.grad(loss, [w, b], create_graph=True)])
        flat.square().sum().backward()
    assert w.grad is not None


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("cast", [
    lambda t: t.to(torch.bfloat16), lambda t: t.bfloat16(), lambda t: t.to(dtype=torch.bfloat16),
    lambda t: t.float().bfloat16(),
], ids=["to", "method", "named", "twice"])
def test_of_products_with_a_transpose_that_is_cast(cast: Callable[[Tensor], Tensor], optimize: bool) -> None:
    def found() -> list[tuple[int, ...]]:
        w, x = torch.ones(4, 3, dtype=torch.float64, requires_grad=True), torch.ones(5, 3, dtype=torch.bfloat16)
        v = w * 1
        with torch.autocast("cpu"):
            by_autocast = x @ v.float().mT
        return [torch.autograd.grad(y.sum(), v)[0].stride() for y in (x @ cast(v.mT), by_autocast)]

    expected = found()
    with ao.AutogradGraph(optimize=optimize):
        assert found() == expected
