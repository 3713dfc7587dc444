"""Regions in torch programs compute what the programs compute without them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import autograd_opt as ao
from tests.regions.programs import PROGRAMS


def plain(value: Any) -> Any:
    """A copy to compare: tensors with their kind, containers as lists."""
    if isinstance(value, torch.Tensor):
        assert type(value) in (torch.Tensor, torch.nn.Parameter), type(value)
        return value.detach().clone(), value.requires_grad, value.is_leaf
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    return value


def outcome(name: str, wrap: Any) -> Any:
    """What a program gives, or the class of the error that it ends with."""
    torch.manual_seed(0)
    try:
        return plain(PROGRAMS[name](wrap)), None
    except Exception as error:
        return None, error


def same(a: Any, b: Any, path: str = "") -> None:
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-8, msg=lambda m: f"{path}: {m}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for k in a:
            same(a[k], b[k], f"{path}[{k!r}]")
    else:
        assert a == b, (path, a, b)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"optimize": False}, {"verify": True}],
                         ids=["optimized", "written", "verified"])
def test_a_program_with_regions(name: str, options: dict[str, Any]) -> None:
    expected, failed = outcome(name, lambda f: f)
    found, error = outcome(name, lambda f: ao.optimize(f, **options))
    if failed is not None:
        assert error is not None
        assert isinstance(error, type(failed)), error
    else:
        if error is not None:
            raise error
        same(expected, found)
