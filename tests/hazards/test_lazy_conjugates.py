"""Handlers of dispatch modes compute lazy conjugates and negatives, which torch switches off in them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
A = torch.complex(torch.linspace(-1, 1, 9).reshape(3, 3).sin(), torch.linspace(0, 2, 9).reshape(3, 3).cos())
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "times a number": lambda a: a.conj() * 2, "copied": lambda a: a.conj().clone(), "adjoint": lambda a: a.mH @ a,
    "laid out": lambda a: a.mH.contiguous(), "joined": lambda a: torch.cat([a.conj(), a]),
    "padded": lambda a: torch.nn.functional.pad(a.conj(), (1, 1)), "of two": lambda a: a.conj() + a.conj(),
    "imaginary": lambda a: a.conj().imag * 2 + a.imag, "einsum": lambda a: torch.einsum("ij,kj->ik", a, a.conj()),
    "pinv": torch.linalg.pinv, "lu": lambda a: torch.linalg.solve(a @ a.mH + torch.eye(3), a.mH),
    "hfft": lambda a: torch.fft.hfft(a, n=5), "vdot": lambda a: torch.vdot(a[0], a[1]),
}


def seen(program: Callable[[Tensor], Tensor]) -> list[Tensor]:
    a = A.clone().requires_grad_()
    out = program(a * 1)
    out.abs().sum().backward()
    assert a.grad is not None
    return [out.detach().resolve_conj().resolve_neg(), a.grad]


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans(name: str) -> None:
    wanted = seen(PROGRAMS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = ao.compile(PROGRAMS[name])
        for _ in range(3):
            torch.testing.assert_close(seen(compiled), wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_watched(name: str, tmp_path: Path) -> None:
    wanted = seen(PROGRAMS[name])
    found: list[Any] = []
    with ao.explain():
        found.append(seen(PROGRAMS[name]))
    torch.testing.assert_close(found[0], wanted)
    for context in (nullcontext(), torch.no_grad()):            # without gradients more is made of other operators
        with context:
            wanted = [PROGRAMS[name](A).detach()]
        with ao.AutogradGraph() as graph, graph.profile(tmp_path / "trace.json"), context:
            found = [PROGRAMS[name](A).detach()]
        torch.testing.assert_close(found, wanted)


def test_a_real_argument_that_is_a_lazy_negative_is_of_another_kind() -> None:
    @ao.compile
    def doubled(t: Tensor) -> Tensor:
        return t * 2 + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in (A.imag, A.imag, A.imag, A.conj().imag, A.conj().imag, A.conj().imag):
            torch.testing.assert_close(doubled(t), t * 2 + 1)


def test_empty_operands_are_repeated() -> None:
    compiled = ao.compile(lambda t: (t * 2).sin().exp())
    for _ in range(3):
        assert compiled(torch.ones(1, 0, 3)).shape == (1, 0, 3)
