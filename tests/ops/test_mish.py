"""`mish` has torch's bits forward and backward, in short types as well, where its formula step by step loses digits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_bits(dtype: torch.dtype) -> None:
    x = torch.linspace(-12, 12, 500).to(dtype).requires_grad_()
    seed = torch.linspace(-1, 2, 500).to(dtype)
    expected = torch.autograd.grad(F.mish(x), x, seed)
    with ao.AutogradGraph():
        assert torch.equal(torch.autograd.grad(F.mish(x), x, seed)[0], expected[0])


def test_four_derivatives() -> None:
    def fourth() -> torch.Tensor:
        x = torch.tensor([-80, -30, -3, -1.5, 0, 0.7, 3, 19, 21, 30, 80], dtype=torch.float64, requires_grad=True)
        y = F.mish(x)
        for _ in range(4):
            y, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.detach()

    expected = fourth()
    with ao.AutogradGraph(optimize=True):
        assert torch.allclose(fourth(), expected)
