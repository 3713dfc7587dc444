"""Numeric backward runs take from the record what the program has computed already; constants are values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("set_default", [False, True], ids=["with", "set_default_device"])
def test_constants_are_made_where_torch_would_make_them(set_default: bool, optimize: bool) -> None:
    def makes() -> set[str]:
        assert torch.eye(2, device="cpu").is_cpu
        made = [torch.eye(2), torch.zeros(2), torch.linspace(0, 1, 3), torch.hann_window(4), torch.tensor([1.0]),
                torch.nn.Linear(2, 2).weight, torch.full((2,), 1.0) * 2]
        return {t.device.type for t in made}

    @contextmanager
    def chosen() -> Iterator[None]:
        if not set_default:
            with torch.device("meta"):
                yield
            return
        torch.set_default_device("meta")
        try:
            yield
        finally:
            torch.set_default_device(None)

    with ao.AutogradGraph(optimize=optimize):
        assert makes() == {"cpu"}
        with chosen():
            assert makes() == {"meta"}
        assert makes() == {"cpu"}
        assert torch.eye(n=2, m=3).shape == (2, 3)
        with pytest.raises(TypeError):
            torch.eye(2, n=3)
    with chosen(), ao.AutogradGraph(optimize=optimize):
        assert makes() == {"meta"}


# ----- factors of one matrix -----
def large(seed: int = 0) -> Tensor:
    """A matrix whose factors are worth to be found again."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(40, 40, generator=generator, dtype=torch.float64) + 8 * torch.eye(40, dtype=torch.float64)


RIGHT = torch.rand(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SOLVERS: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse": torch.linalg.inv,
    "vector": lambda a: torch.linalg.solve(a, RIGHT[:, 0].to(a.dtype)),
    "matrix": lambda a: torch.linalg.solve(a, RIGHT.to(a.dtype) * 2),
    "right": lambda a: torch.linalg.solve(a, RIGHT.t().to(a.dtype), left=False),
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128], ids=str)
def test_a_matrix_is_factorized_once(name: str, dtype: torch.dtype) -> None:
    solver, a, right = SOLVERS[name], large().to(dtype), RIGHT.to(dtype)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.linalg.solve(x * 1.0, right + 1), solver(x * 1.0)

    x = ao.tensor(a)
    with ao.AutogradGraph(optimize=True):
        found: list[tuple[Tensor, Tensor]] = []
        ran = kernels_of(lambda: found.append(program(x)))
        ours = [t.detach() for t in found[0]]
    theirs = program(a)
    assert ran["_linalg_solve_ex"] == 1
    assert "linalg_inv" not in ran
    assert all(torch.equal(m, t) and m.stride() == t.stride() for m, t in zip(ours, theirs, strict=True))


def test_a_view_elsewhere_whose_base_requires_grad_changes_nothing() -> None:
    base = torch.zeros(3)
    view = base[:2]
    with ao.AutogradGraph():
        base.add_(ao.tensor([1.0, 2.0, 3.0]))
    x = ao.tensor(large())
    with ao.AutogradGraph(optimize=True):
        ran = kernels_of(lambda: (torch.linalg.solve(x * 1.0, RIGHT), torch.linalg.inv(x * 1.0)))
    assert (ran["_linalg_solve_ex"], ran["linalg_inv"]) == (1, 0)
    assert view.tolist() == [1.0, 2.0]


def test_not_after_a_write_nor_for_another_matrix() -> None:
    def program(x: Tensor) -> None:
        a = x * 1.0
        torch.linalg.solve(a, RIGHT)
        a[0, 0] = 3.0
        torch.linalg.inv(a)
        torch.linalg.solve(x * 2.0, RIGHT)

    x = ao.tensor(large())
    with ao.AutogradGraph(optimize=True):
        ran = kernels_of(lambda: program(x))
    assert (ran["_linalg_solve_ex"], ran["linalg_inv"]) == (2, 1)


def test_nor_in_memory_seen_from_outside() -> None:
    x = large().requires_grad_()
    with ao.AutogradGraph(optimize=True):
        torch.linalg.solve(x, RIGHT)
        x.detach().numpy()[0, 0] += 1.0
        assert torch.equal(torch.linalg.inv(x).detach(), torch.linalg.inv(x.detach().clone()))


@pytest.mark.parametrize("right", [RIGHT[:5], RIGHT.float(), RIGHT[:5, 0]], ids=["rows", "type", "vector"])
def test_right_hand_sides_that_do_not_fit_are_torchs_to_refuse(right: Tensor) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.linalg.solve(large(), right)
    x = ao.tensor(large())
    with ao.AutogradGraph(optimize=True):
        torch.linalg.solve(x, RIGHT)
        with pytest.raises(RuntimeError) as ours:
            torch.linalg.solve(x, right)
    assert str(theirs.value) == str(ours.value)


def test_gradients_with_factors_of_another_call() -> None:
    def program(x: Tensor) -> Tensor:
        a = x.exp() + 40 * torch.eye(40, dtype=x.dtype)
        fit = (RIGHT.t() @ torch.linalg.solve(a, RIGHT)).sum()
        inverse = torch.linalg.inv(a)
        return fit + torch.logdet(a) + inverse.diagonal().sum() + torch.linalg.solve(a, RIGHT[:, :1]).sum()

    compare(program, large() / 8, rtol=1e-9)


# ----- an inverse that a run comes by -----
def after(x: Tensor) -> Tensor:
    """A determinant before the inverse: in a backward run its turn is after it."""
    a = x * 1.0
    determinant = torch.logdet(a)
    inverse = torch.linalg.inv(a)
    return determinant * 2 + (inverse * inverse).sum()


def test_a_determinant_reads_an_inverse_that_the_run_comes_by_first() -> None:
    found = kernels(lambda x: after(x).backward())
    assert "linalg_lu_solve" not in found
    assert kernels(lambda x: after(x).backward(), False)["linalg_lu_solve"] == 1
    compare(after, matrix(), rtol=1e-9)


def test_twice_where_the_graph_is_kept() -> None:
    x, y = leaf(), matrix().requires_grad_()
    with ao.AutogradGraph(optimize=True):
        out = after(x)
        for _ in range(2):
            out.backward(retain_graph=True)
    out = after(y)
    for _ in range(2):
        out.backward(retain_graph=True)
    torch.testing.assert_close(x.grad, y.grad)


def test_exact_runs_solve_as_torch_does() -> None:
    x, y = leaf(), matrix().requires_grad_()
    with ao.AutogradGraph(optimize="exact"):
        after(x).backward()
    after(y).backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("size", [4, 5, 30])
def test_an_inverse_has_the_derivative_of_torch_to_the_last_bit(size: int) -> None:
    x = torch.rand(size, size, dtype=torch.float64) + size * torch.eye(size, dtype=torch.float64)
    g = torch.rand_like(x)
    inside, outside = x.clone().requires_grad_(), x.clone().requires_grad_()
    with ao.AutogradGraph(optimize="exact"):
        torch.linalg.inv(inside).backward(g)
    torch.linalg.inv(outside).backward(g)
    assert torch.equal(inside.grad, outside.grad)
