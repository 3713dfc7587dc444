"""Contractions of several operands: gradients along the path that contracts them."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao

CHAINS = {
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "ij,jk,kl,lm->": [(2, 3), (3, 4), (4, 5), (5, 2)],
    "ai,bi,ci,di->abcd": [(2, 3)] * 4,
    "ij,kl,k->i": [(2, 3), (4, 5), (4,)],
    "ijq,jk,kl->il": [(2, 3, 2), (3, 4), (4, 5)],
    "abc,ai,bj,ck->ijk": [(2, 3, 4), (2, 5), (3, 5), (4, 5)],
    "ij->j": [(2, 3)],
}


def operands(equation: str) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in CHAINS[equation]]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("equation", CHAINS)
def test_gradients_are_those_of_torch(equation: str, optimize: bool) -> None:
    xs = operands(equation)
    wanted = torch.autograd.grad(torch.einsum(equation, *xs).square().sum(), xs)
    with ao.AutogradGraph(optimize=optimize):
        found = torch.autograd.grad(torch.einsum(equation, *xs).square().sum(), xs)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("path", [[0, 1, 0, 1, 0, 1], [2, 3, 0, 1, 0, 1], [0, 3, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1]])
def test_any_path_gives_the_same(path: list[int]) -> None:
    xs = operands("abc,ai,bj,ck->ijk")
    def step() -> Tensor:
        return torch._VF.einsum("abc,ai,bj,ck->ijk", xs, path=path).square().sum()  # type: ignore[attr-defined]
    wanted = torch.autograd.grad(step(), xs)
    with ao.AutogradGraph():
        found = torch.autograd.grad(step(), xs)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("equation", CHAINS)
def test_the_second_order_is_that_of_torch(equation: str) -> None:
    xs = operands(equation)

    def step() -> tuple[Tensor, ...]:
        first = torch.autograd.grad(torch.einsum(equation, *xs).square().sum(), xs, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), xs)  # type: ignore[arg-type]
    wanted = step()
    with ao.AutogradGraph():
        found = step()
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_random_pairs_of_operands(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    letters = "abcdef"[:draw.randint(2, 5)]
    terms = ["".join(draw.sample(letters, draw.randint(1, len(letters)))) for _ in range(2)]
    out = "".join(draw.sample(sorted(set("".join(terms))), draw.randint(0, len(set("".join(terms))))))
    size = {c: draw.choice([1, 2, 3, 4]) for c in letters}
    dtype = draw.choice([torch.float64, torch.complex128])
    xs = [torch.randn([size[c] for c in term], dtype=dtype) for term in terms]
    if draw.random() < 0.5 and xs[0].dim() > 1:
        xs[0] = xs[0].mT.contiguous().mT
    for x in xs:
        x.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        y = torch.einsum(f"{terms[0]},{terms[1]}->{out}", *xs)
        weights = torch.arange(1, y.numel() + 1, dtype=torch.float64).view(y.shape)
        return torch.autograd.grad((y.sin() * weights).sum().abs(), xs)

    wanted = step()
    with ao.AutogradGraph():
        found = step()
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_work_grows_with_the_number_of_operands_and_not_with_its_square() -> None:
    class Contractions(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            counts[-1] += func in (torch.ops.aten.einsum.default, torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
            return func(*args, **(kwargs or {}))

    counts = []
    for n in (4, 8, 16):
        xs = [torch.randn(3, 3, requires_grad=True) for _ in range(n)]
        letters = [chr(ord("a") + k) for k in range(n + 1)]
        equation = ",".join(a + b for a, b in itertools.pairwise(letters)) + f"->{letters[0]}{letters[-1]}"
        counts.append(0)
        with ao.AutogradGraph(), Contractions():
            torch.einsum(equation, *xs).sum().backward()
    assert counts == [3 * (n - 1) for n in (4, 8, 16)]


def test_a_verdict_over_a_chain() -> None:
    xs = operands("ij,jk,kl->il")
    with ao.AutogradGraph() as graph:
        loss = (torch.einsum("ij,jk,kl->il", *xs) * torch.einsum("ij,jk,kl->il", *xs)).sum()
        verdict = graph.verify(loss)
    assert verdict.status == "proved"
