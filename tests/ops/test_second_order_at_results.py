"""What a second derivative sends to results that a first one has read comes to these results, as in torch.

torch saves results for derivatives (`tanh`'s, the factors of `svd`): a derivative of the derivative goes on at them,
where `retain_grad` and hooks see it.  Each entry of torch's own database is asked, with all results kept and with the
last one alone.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import autograd_opt as ao
from tests.opinfo_runner import leaves_of, tensors
from tests.opinfo_sweep import entries

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

CASES = {"real, all": (torch.float64, False, 2), "real, last": (torch.float64, True, 1),
         "complex": (torch.complex128, False, 1)}
"""Type of the operands, is the last result kept alone, and samples of an entry."""
ROUNDED = {"nn.functional.rms_norm"}
"""Entries with a sample of one element, whose second derivative is the rounding of a difference."""


def squares(t: torch.Tensor) -> torch.Tensor:
    """A number to differentiate, which no phase of an eigenvector changes."""
    size = (t * t.conj()).real if t.is_complex() else t * t
    return size.square().sum() if t.is_complex() else (size / 3 + t * t.detach().cos()).sum()


def gradients(context: Any, op: Any, sample: Any, last: bool) -> list[torch.Tensor | None]:
    """The gradients of the results and of the leaves after a second derivative; none where torch has none."""
    torch.manual_seed(0)
    x, args, kwargs = tree_map(
        lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t,
        (sample.input, sample.args, sample.kwargs))
    leaves = leaves_of((x, *args), kwargs)
    with context:
        results = [t for t in tensors(op.op(x, *args, **kwargs)) if t.requires_grad]
        if not results or any(t.layout is not torch.strided for t in (*results, *leaves)):
            return []
        if last:
            del results[:-1]
        for t in results:
            t.retain_grad()
        first = torch.autograd.grad(sum(map(squares, results)), leaves, create_graph=True, allow_unused=True)
        parts = [(g * g.conj()).real.sum() for g in first if g is not None and g.requires_grad]
        if parts:
            torch.autograd.backward(parts)
        return [t.grad for t in (*results, *leaves)]


def compare(op: Any, sample: Any, last: bool) -> bool:
    """Compare with torch in both modes; False where torch refuses the sample."""
    try:
        expected = gradients(contextlib.nullcontext(), op, sample, last)
    except RuntimeError:
        return False
    for optimize in (False, True):
        found = gradients(ao.AutogradGraph(optimize=optimize), op, sample, last)
        for k, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert (one is None) == (other is None), (optimize, k)
            if one is not None:
                torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-8, equal_nan=True, check_stride=False,
                                           msg=f"gradient {k}, optimize={optimize}")
    return bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_as_torch(case: str) -> None:
    (dtype, last, most), compared, wrong = CASES[case], 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in entries(dtype, 2):
            torch.manual_seed(1)
            samples = op.sample_inputs("cpu", dtype, requires_grad=True)
            for k, sample in enumerate(itertools.islice(samples, most)):
                try:
                    compared += op.full_name not in ROUNDED and compare(op, sample, last)
                except Exception as error:
                    wrong.append(f"{op.full_name} {k}: {error}")
    assert not wrong, "\n".join(wrong)
    assert compared > 300


FUNCTIONS = {
    "two nodes of torch's": lambda f, t: ((t * f.sum()).tanh(), t.exp()),
    "one reads the other": lambda f, t: (lambda s: (s, (s * f).sigmoid()))(t.tanh()),
    "a view of the other": lambda f, t: (lambda s: (s, s[:1]))((t * f).sigmoid()),
    "one without a gradient": lambda f, t: ((t * f).tanh(), (t > 0).to(t.dtype)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("order", [2, 3])
def test_a_call_with_several_results(name: str, optimize: bool, order: int) -> None:
    """Results of `torch.vmap`, which torch differentiates whole."""
    def run(context: Any) -> list[torch.Tensor | None]:
        w = torch.tensor([[0.3, 0.5], [0.2, -0.7]], dtype=torch.float64, requires_grad=True)
        f = torch.tensor([0.2, 0.4], dtype=torch.float64, requires_grad=True)
        with context:
            x = w * 1.5
            results = torch.vmap(lambda t: FUNCTIONS[name](f, t))(x)
            kept = [t for t in (x, *results) if t.requires_grad]
            for t in kept:
                t.retain_grad()
            loss = (results[0] * results[1]).sum()
            for _ in range(order - 1):
                loss = (torch.autograd.grad(loss, w, create_graph=True)[0] ** 2).sum()
            loss.backward()
            return [t.grad for t in (*kept, w, f)]

    expected = run(contextlib.nullcontext())
    for one, other in zip(expected, run(ao.AutogradGraph(optimize=optimize)), strict=True):
        torch.testing.assert_close(other, one)
