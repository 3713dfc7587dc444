"""Numeric backward runs take from the record what the program has computed already; constants are values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import autograd_opt as ao
from tests.differential import compare
from tests.optimizer.counting import kernels_of

Tensor = torch.Tensor
ADVANCE = 16 << 20
"""Bytes that may be held for reuse before a repeat has been seen."""


def matrix() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 4, generator=generator, dtype=torch.float64) + 4 * torch.eye(4, dtype=torch.float64)


def leaf() -> Tensor:
    return ao.tensor(matrix())


def kernels(program: Callable[[Tensor], object], optimize: bool = True) -> dict[str, int]:
    x = leaf()
    with ao.AutogradGraph(optimize=optimize, allowance=ADVANCE):
        return dict(kernels_of(lambda: program(x)))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_the_rule_of_sin_reads_a_cosine_that_is_alive(name: str) -> None:
    def program(x: Tensor) -> object:
        other = x.cos() if name == "sin" else x.sin()
        getattr(x, name)().sum().backward()
        return other

    assert kernels(program, False).get({"sin": "cos", "cos": "sin"}[name]) == 2
    assert kernels(program)[{"sin": "cos", "cos": "sin"}[name]] == 1


def test_not_one_that_was_written() -> None:
    def program(x: Tensor) -> Tensor:
        c = x.cos()
        y = x.sin() * 1.0
        c.mul_(3.0)
        return y + c.detach()

    compare(program, torch.rand(5, dtype=torch.float64))


def test_nor_one_of_an_operand_that_was_written() -> None:
    def program(x: Tensor) -> Tensor:
        z = x * 1.0
        c = z.cos()
        z = z.clone()
        z.mul_(2.0)
        return z.sin() + c.detach() * 0

    compare(program, torch.rand(5, dtype=torch.float64))


def test_nor_one_seen_through_numpy() -> None:
    def program(x: Tensor) -> Tensor:
        c = x.cos().detach()
        y = x.sin()
        c.numpy()[:] = 7.0
        return y

    compare(program, torch.rand(5, dtype=torch.float64))


def test_a_determinant_reads_the_inverse() -> None:
    def program(x: Tensor, touch: bool) -> None:
        inverse = torch.linalg.inv(x)
        y = torch.logdet(x) + inverse.detach().sum()
        if touch:
            inverse.zero_()
        y.backward()

    assert "linalg_lu_solve" not in kernels(lambda x: program(x, False))
    assert kernels(lambda x: program(x, True))["linalg_lu_solve"] == 1
    gradients = []
    for touch in (False, True):
        x = leaf()
        with ao.AutogradGraph(optimize=True):
            program(x, touch)
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_solving_back_factorizes_nothing() -> None:
    found = kernels(lambda x: torch.linalg.solve(x, x[0]).sum().backward())
    assert found["_linalg_solve_ex"] == 1
    assert found["linalg_lu_solve"] == 1


@pytest.mark.parametrize("program", [
    lambda a, b: torch.linalg.solve(a, b), lambda a, b: torch.linalg.solve(a, b.t(), left=False),
    lambda a, b: torch.linalg.solve(a.t(), b[:, 0]), lambda a, b: torch.linalg.solve(torch.stack([a, a.t()]), b),
    lambda a, b: torch.logdet(a @ a.t()) * b, lambda a, b: torch.slogdet(a.t())[1] * b,
    lambda a, b: torch.logdet(torch.stack([a @ a.mT, a.mT @ a])).sum() + b,
], ids=["left", "right", "vector", "stack", "logdet", "slogdet", "logdets"])
@pytest.mark.parametrize("complex_", [False, True])
def test_factors_of_every_layout(program: Callable[..., Tensor], complex_: bool) -> None:
    a, b = matrix(), torch.rand(4, 2, dtype=torch.float64)
    if complex_:
        a, b = torch.complex(a, a.flip(1) / 3), torch.complex(b, b.flip(0))
    compare(lambda a, b: program(a, b).abs(), a, b, rtol=1e-6, atol=1e-7)


def test_a_singular_matrix_is_refused_as_in_torch() -> None:
    compare(lambda x: torch.linalg.solve(x * 0, x), torch.rand(3, 3))


def test_constants_made_twice_are_one_value() -> None:
    def program(x: Tensor) -> None:
        def term() -> Tensor:
            return (x + torch.eye(4, dtype=x.dtype) * torch.linspace(0, 1, 4, dtype=x.dtype)).exp()
        (term() * term()).sum().backward()

    found = kernels(program)
    assert found["eye"] == found["linspace"] == found["exp"] == 1
    assert kernels(program, False)["exp"] == 2


def test_and_two_objects() -> None:
    with ao.AutogradGraph(optimize=True):
        a, b = torch.eye(3), torch.eye(3)
        b.add_(1)
        assert torch.equal(a, torch.diag(torch.ones(3)))
        assert torch.eye(3).dtype == torch.float32
        assert torch.eye(3, dtype=torch.float64).dtype == torch.float64
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.eye(3).dtype == torch.float64
        finally:
            torch.set_default_dtype(before)
        assert torch.equal(torch.linspace(0, 1, 2), torch.tensor([0.0, 1.0]))
        assert torch.equal(torch.linspace(0, 1, steps=3), torch.tensor([0.0, 0.5, 1.0]))


def test_constants_asked_to_require_grad_are_leaves() -> None:
    with ao.AutogradGraph(optimize=True):
        a, b = torch.eye(2, requires_grad=True), torch.eye(2, requires_grad=True)
        (a * 2).sum().backward()
        assert a.grad is not None
        assert b.grad is None
