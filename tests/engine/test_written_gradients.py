"""Gradients of leaves that are special in one way: the short way of writing them leaves these to the general one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import autograd_opt as ao


def both(program: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """What the program returns under torch, and in a graph."""
    found = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=True)):
        torch.manual_seed(0)
        with context:
            found.append(program())
    return found[0], found[1]


def same(program: Callable[[], list[Any]]) -> None:
    expected, found = both(program)
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, Tensor):
            assert (a.dtype, a.layout, a.shape) == (b.dtype, b.layout, b.shape)
            assert torch.equal(a.to_dense(), b.detach().to_dense())
        else:
            assert a == b


def test_hooks_set_before_the_graph_is_opened() -> None:
    results = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=True)):
        seen: list[float] = []
        p, q = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
        p.register_post_accumulate_grad_hook(lambda t, seen=seen: seen.append(t.grad.sum().item()))  # type: ignore[misc]
        q.register_hook(lambda g: g * 10)
        with context:
            (p * 2 + q * 3).sum().backward()
        results.append((p.grad.tolist(), q.grad.tolist(), seen))  # type: ignore[union-attr]
    assert results[0] == results[1]


def test_a_sparse_gradient_that_is_there_already() -> None:
    def program() -> list[Any]:
        p = torch.nn.Parameter(torch.ones(3))
        p.grad = torch.tensor([1.0, 0.0, 2.0]).to_sparse()
        (p * 2).sum().backward()
        return [p.grad]

    same(program)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_recorded_runs_write_into_no_gradient() -> None:
    def program() -> list[Any]:
        p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        p.grad = before = torch.ones(2)
        (p + torch.ones(2)).backward(torch.ones(2), create_graph=True)       # the cotangent as it was given
        first = p.grad
        (p ** 3).sum().backward(create_graph=True)
        return [before, first.detach(), p.grad.detach(), first is before, p.grad is first]

    same(program)


def test_a_gradient_of_another_type() -> None:
    def program() -> list[Any]:
        p = torch.nn.Parameter(torch.ones(3))
        p.grad_dtype = torch.float64
        (p * 2).sum().backward()
        return [p.grad]

    same(program)


def test_a_negated_cotangent_becomes_an_ordinary_gradient() -> None:
    def program() -> list[Any]:
        p = torch.nn.Parameter(torch.ones(3))
        cotangent = torch.complex(torch.ones(3), torch.arange(3.0)).conj().imag
        assert cotangent.is_neg()
        p.reshape(3, 1).reshape(3).backward(cotangent)
        assert p.grad is not None
        return [p.grad, p.grad.resolve_neg()]

    same(program)


def test_no_gradient_shares_memory_with_another() -> None:
    p, q, r, s = (torch.nn.Parameter(torch.ones(3)) for _ in range(4))
    given, longer = torch.ones(3), torch.ones(6)
    with ao.AutogradGraph():
        (p + q).backward(given)
        torch.cat([r, s]).backward(longer)
    for t in (p, q, r, s):
        t.grad.add_(1)  # type: ignore[union-attr]
    assert all(torch.equal(t.grad, torch.full((3,), 2.0)) for t in (p, q, r, s))  # type: ignore[arg-type]
    assert torch.equal(given, torch.ones(3))
    assert torch.equal(longer, torch.ones(6))


def test_a_complex_gradient_is_taken_over_or_copied_as_a_real_one_is() -> None:
    """Of a conjugate, of a transpose, of a part of another's memory; and sums."""
    def program() -> list[Any]:
        x, y, z = (torch.nn.Parameter(torch.randn(3, 3, dtype=torch.complex64)) for _ in range(3))
        w = torch.randn(3, 3, dtype=torch.complex64)
        whole = torch.cat([x, y.mT]) * torch.cat([w, w.mT])
        whole.backward(torch.ones(6, 3, dtype=torch.complex64).conj())
        z.conj().backward(w)
        seen = [(p.grad.stride(), p.grad.resolve_conj()) for p in (x, y, z) if p.grad is not None]
        (x * w).abs().sum().backward()
        return [entry for entries in seen for entry in entries] + [x.grad]

    same(program)
