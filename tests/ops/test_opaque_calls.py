"""Calls without a rule of their own, whose derivatives are torch's."""

from __future__ import annotations

import pytest
import torch

import autograd_opt as ao
from tests.ops.checker import cotangents

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@OPTIMIZE
def test_a_cotangent_that_cannot_be_differentiated_is_no_operand_of_the_product(optimize: bool) -> None:
    """The gradient of a sampled product has a sparse cotangent, by which torch has no derivative."""
    def second(context: ao.AutogradGraph | None) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.rand(3, 3, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
        pattern = torch.eye(3, dtype=torch.float64).to_sparse_csr()
        grad = torch.autograd.grad if context is None else context.grad
        out = torch.sparse.sampled_addmm(pattern, x, y)
        first = grad([out], [x, y], [pattern], create_graph=True)
        return [t.detach() for t in grad(first, [x, y], cotangents(first, 2), allow_unused=True)]

    wanted = second(None)
    with ao.AutogradGraph(optimize=optimize) as graph:
        torch.testing.assert_close(second(graph), wanted)
    assert any(bool(t.any()) for t in wanted)


@OPTIMIZE
@pytest.mark.parametrize("factor", [0, 2])
def test_a_loss_of_the_phase_of_singular_vectors_is_refused_as_torch_does(factor: int, optimize: bool) -> None:
    x = torch.randn(3, 2, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with pytest.raises(RuntimeError, match="up to multiplication by") as wanted:
        torch.autograd.grad(torch.linalg.svd(x, False)[factor].real.sum(), x)
    with ao.AutogradGraph(optimize=optimize) as graph:
        loss = torch.linalg.svd(x, False)[factor].real.sum()
        with pytest.raises(RuntimeError, match="up to multiplication by") as found:
            graph.grad(loss, x)
        assert str(found.value).partition("\n")[0] == str(wanted.value).partition("\n")[0]
        (right,) = graph.grad(torch.linalg.svd(x, False)[factor].abs().sum(), x)
    torch.testing.assert_close(right, torch.autograd.grad(torch.linalg.svd(x, False)[factor].abs().sum(), x)[0])
