"""Calls without a rule of their own, whose derivatives are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.record import torch_nodes
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


SPARSE = torch.eye(3, dtype=torch.float64).to_sparse()
WINDOW = torch.ones(4, dtype=torch.float64)
CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one operand twice": lambda x: torch.linalg.matrix_power(x, 2),
    "several nodes": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "a view of hidden memory": lambda x: torch.linalg.multi_dot([x[0], x, x[1]]),
    "a complex result": lambda x: torch.stft(x.flatten(), 4, window=WINDOW, return_complex=True),
    "a constant without strides": lambda x: torch.sparse.mm(SPARSE, x),
    "a sparse gradient": lambda x: torch.gather(x, 0, torch.tensor([[0, 2, 2]]), sparse_grad=True),
    "a packed network": lambda x: torch.rnn_tanh(
        x.unsqueeze(0), torch.zeros(1, 1, 3, dtype=x.dtype).expand(1, 3, 3).contiguous(),
        [x, x.mT.contiguous()], False, 1, 0.0, True, False, True)[0],
}


@OPTIMIZE
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_differentiated_as_torch_does(name: str, optimize: bool) -> None:
    """Result, how many writes it counts, and gradient, also in the second of two runs."""
    def outcome() -> list[object]:
        x = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        seen: list[object] = []
        for _ in range(2):
            out = CALLS[name](x)
            (g,) = torch.autograd.grad(out.abs().sum(), x)
            seen += [out.detach(), out._version, g.to_dense(), g.layout]
        return seen

    wanted = outcome()
    with ao.AutogradGraph(optimize=optimize):
        found = outcome()
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


class Kernels(TorchDispatchMode):
    """Counts the kernels that torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["one operand twice", "a sparse gradient", "a constant without strides"])
def test_the_nodes_of_a_call_run_once(name: str) -> None:
    """Also where torch's engine has to look at what they make, which is learned from the first of a class."""
    def kernels() -> int:
        out = CALLS[name](torch.rand(3, 3, dtype=torch.float64).requires_grad_()).sum()
        with Kernels() as counted:
            out.backward()
        return counted.count

    wanted = kernels()
    with ao.AutogradGraph():
        kernels()
        assert kernels() <= wanted


def test_results_of_which_one_leads_to_another_come_in_turn() -> None:
    x = torch.rand(3, requires_grad=True)
    below = x.sin()
    above, apart = below.exp(), x.cos()
    assert torch_nodes.stages([above, below]) == [1, 0] == torch_nodes.stages([above, below], False)
    assert torch_nodes.stages([below, apart]) is None
    assert torch_nodes.stages([apart, below, above]) == [0, 1, 2]
    assert torch_nodes.stages([above, x.detach()]) is None
