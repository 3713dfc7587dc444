"""Operands of several dtypes where torch promotes them: results and gradients in the types that torch gives them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autograd_opt as ao

V, M = torch.tensor([0.5, -1.25, 2.0]), torch.arange(1.0, 10.0).reshape(3, 3)
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "outer": torch.outer, "outer turned": lambda a, b: torch.outer(b, a), "ger": torch.ger,
    "einsum of vectors": lambda a, b: torch.einsum("i,j->ij", a, b),
    "einsum of a number": lambda a, b: torch.einsum("i,->i", a, b.sum()),
    "einsum of three": lambda a, b: torch.einsum("i,j,k->ijk", a, b, a),
    "kron": torch.kron, "inner": lambda a, b: torch.inner(a, b.sum()), "power": lambda a, b: a.abs() ** b,
    "power of a number": lambda a, b: a.abs().sum() ** b, "atan2": torch.atan2, "where": lambda a,
    b: torch.where(a > 0, a, b),
    "cat": lambda a, b: torch.cat([a, b]), "stack": lambda a, b: torch.stack([a, b]), "lerp": lambda a,
    b: a * 0.5 + b * 0.5,
    "addcmul": lambda a, b: torch.addcmul(a, a, b), "maximum": torch.maximum, "fmod": torch.fmod,
    "mse_loss": F.mse_loss, "smooth_l1_loss": F.smooth_l1_loss, "cosine": lambda a, b: F.cosine_similarity(a, b, dim=0),
    "xlogy": lambda a, b: torch.xlogy(a, b.abs()), "dist": torch.dist, "tensordot": lambda a,
    b: torch.tensordot(a, b, 0),
    "sum": lambda a, b: (a + b).sum(dtype=torch.bfloat16), "cumsum": lambda a,
    b: (a + b).cumsum(0, dtype=torch.bfloat16),
}
PAIRS = [(torch.float32, torch.float64), (torch.int64, torch.float32), (torch.bfloat16, torch.float64),
         (torch.float64, torch.bfloat16)]


def outcome(function: Callable[[Tensor, Tensor], Tensor], types: tuple[torch.dtype, torch.dtype], graph: Any) -> Any:
    """Results, gradients, or the error."""
    a, b = ((V + k).to(dtype).requires_grad_(dtype.is_floating_point) for k, dtype in enumerate(types))
    try:
        with graph():
            y = function(a, b)
            torch.manual_seed(0)
            y.backward(torch.randn(y.shape, dtype=torch.float64).to(y.dtype))
    except RuntimeError as error:
        return error
    return y.detach(), a.grad, b.grad


@pytest.mark.parametrize("types", PAIRS, ids=lambda t: f"{t[0]} and {t[1]}".replace("torch.", ""))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_torch(name: str, types: tuple[torch.dtype, torch.dtype]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = outcome(FUNCTIONS[name], types, nullcontext)
        for optimize in (False, True):
            found = outcome(FUNCTIONS[name], types, lambda: ao.AutogradGraph(optimize=optimize))  # noqa: B023
            if isinstance(wanted, Exception):
                assert isinstance(found, Exception)
                continue
            assert not isinstance(found, Exception), found
            torch.testing.assert_close(found, wanted)


def test_sums_of_a_lower_precision_are_not_summed_again_in_it() -> None:
    torch.manual_seed(0)
    x, r = torch.rand(1000, requires_grad=True), torch.rand(1000).bfloat16()
    exact = r.double().flip(0).cumsum(0).flip(0)
    with ao.AutogradGraph():
        (x.cumsum(0, dtype=torch.bfloat16) * r).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), exact, rtol=1e-5, atol=1e-3)
