"""Derivatives at bounds and ties are the installed torch's, for every order of operand and bounds, NaN among them."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

VALUES = [-1.0, 0.0, 1.0, 2.0, float("nan")]
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "two tensors": lambda x, a, b: x.clamp(a, b), "lower tensor": lambda x, a, b: x.clamp(a) + 0 * b,
    "upper tensor": lambda x, a, b: x.clamp(max=a) + 0 * b, "two numbers": lambda x, a, b: x.clamp(0, 1) + 0 * (a + b),
    "lower number": lambda x, a, b: x.clamp(min=0) + 0 * (a + b),
    "upper number": lambda x, a, b: x.clamp(max=1) + 0 * (a + b),
    "clamp_min": lambda x, a, b: torch.clamp_min(x, a) + torch.clamp_min(x, 0) + 0 * b,
    "clamp_max": lambda x, a, b: torch.clamp_max(x, a) + torch.clamp_max(x, 1) + 0 * b,
    "fmax": lambda x, a, b: torch.fmax(x, a) + 0 * b, "fmin": lambda x, a, b: torch.fmin(x, a) + 0 * b,
    "maximum": lambda x, a, b: torch.maximum(x, a) + 0 * b, "minimum": lambda x, a, b: torch.minimum(x, a) + 0 * b,
    "relu6": lambda x, a, b: torch.nn.functional.relu6(x) + 0 * (a + b),
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_order(call: Callable[[Any, Any, Any], Any], optimize: bool) -> None:
    found = []
    for context in (torch.enable_grad(), ao.AutogradGraph(optimize=optimize)):
        operands = [torch.tensor(c, requires_grad=True) for c in zip(*itertools.product(VALUES, repeat=3), strict=True)]
        with context:
            out = call(*operands)
            found.append([*torch.autograd.grad(out, operands, torch.linspace(0.5, 1.5, out.numel()))])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
