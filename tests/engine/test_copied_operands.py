"""Operands that torch copies for a product: their copies are recorded, and made once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao


class Copies(TorchDispatchMode):
    """Counts the copies of whole tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.n += func in (torch.ops.aten.clone.default, torch.ops.aten._unsafe_view.default)
        return func(*args, **(kwargs or {}))


def attention(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = ((x @ w[i]).view(2, 5, 2, 3).transpose(1, 2) for i in range(3))
    return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 6)


def turned_product(x: Tensor, w: Tensor) -> Tensor:
    return x.transpose(0, 1) @ w[0]


def turned_linear(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x.transpose(0, 1), w[0], w[1, 0])


def without_bias(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x.transpose(0, 1), w[0])


def of_a_constant(x: Tensor, w: Tensor) -> Tensor:
    return x.transpose(0, 1) @ w[0].detach() + F.linear(x.transpose(0, 1), w[0].detach(), w[1, 0])


def shared_rows(x: Tensor, w: Tensor) -> Tensor:
    rows = x[:1].expand(3, 5, 6)
    return torch.cat([(rows @ w[0]).flatten(), (rows.transpose(1, 2) @ x[0]).flatten()])


PROGRAMS = [attention, turned_product, turned_linear, without_bias, of_a_constant, shared_rows]


def leaves() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 5, 6).requires_grad_(), torch.randn(3, 6, 6).requires_grad_()


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_have_the_bits_of_torch(program: Callable[[Tensor, Tensor], Tensor], optimize: bool) -> None:
    x, w = leaves()
    wanted = program(x, w)
    first = torch.autograd.grad(wanted.square().sum(), [x, w], allow_unused=True)
    with ao.AutogradGraph(optimize=optimize):
        found = program(x, w)
        second = torch.autograd.grad(found.square().sum(), [x, w], allow_unused=True)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()
    for a, b in zip(second, first, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_second_order_is_that_of_torch(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, w = (t.detach().double().requires_grad_() for t in leaves())

    def step() -> tuple[Tensor, ...]:
        first = torch.autograd.grad(program(x, w).sin().sum(), [x, w], create_graph=True, allow_unused=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first if g is not None), [x, w])

    wanted = step()
    with ao.AutogradGraph():
        found = step()
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_attention_copies_no_more_often_than_torch() -> None:
    x, w = leaves()
    with Copies() as eager:
        attention(x, w).sum().backward()
    with ao.AutogradGraph(optimize=False), Copies() as recorded:
        attention(x, w).sum().backward()
    assert recorded.n <= eager.n


def test_the_copy_is_what_a_later_write_does_not_reach() -> None:
    """torch saves its copy, so that a write to the operand is none to what it has saved."""
    def step(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = (x * 1).transpose(0, 1)
        z = y @ w[0]
        y.mul_(2)
        return torch.autograd.grad(z.sin().sum() + y.sum(), [x, w])

    x, w = leaves()
    wanted = step(x, w)
    with ao.AutogradGraph(optimize=False):
        found = step(x, w)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
