"""In-place writes inside a repeated call: each is the operator that returns what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor


def written(write: Callable[[Tensor], Any], make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], list[Tensor]]:
    """A function that writes a value of its own, once where it is read and once where it is returned."""

    def function(x: Tensor) -> list[Tensor]:
        y = make(x)
        write(y)
        z = y * 1.5
        write(y)
        return [y, z]

    return function


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "power of a number": lambda y: y.pow_(2),
    "power of a tensor": lambda y: y.pow_(torch.tensor(2.0)),
    "power in float64": lambda y: y.float_power_(3),
    "power in float64 of a tensor": lambda y: y.float_power_(torch.tensor(3.0)),
    "times a power of two": lambda y: y.ldexp_(torch.tensor(2)),
    "floor of a quotient": lambda y: y.floor_divide_(torch.tensor(0.3)),
    "sum with a number of another dtype": lambda y: y.add_(torch.tensor(1.0 / 3.0, dtype=torch.float64)),
    "comparison": lambda y: y.gt_(1),
    "comparison with a tensor": lambda y: y.le_(torch.tensor(4.0)),
    "logical operator": lambda y: y.logical_not_(),
    "sign": lambda y: y.sub_(3).sign_(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("make", [lambda x: (x * 2).sum(), lambda x: x * 2], ids=["number", "vector"])
def test_writes_as_operators(write: str, make: Callable[[Tensor], Tensor]) -> None:
    function = written(WRITES[write], make)
    for exact in (False, True):
        compiled = ao.compile(function, exact=exact)
        for k in range(4):
            x = torch.tensor([1.0, 2.0], dtype=torch.float64 if "float64" in write else torch.float32) + k
            torch.testing.assert_close(compiled(x), function(x), rtol=1e-6, atol=1e-6)
        assert not compiled.report().kinds[0].reason


COPIES: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "viewed and written": lambda x: [a := x * 2, b := x * 2, b.view(9).mul_(3), b.exp(), a + b.add_(1)],
    "the first one written": lambda x: [a := x * 2, b := x * 2, a.view(9).mul_(3), b.exp(), a.add_(1)],
    "of other strides": lambda x: [a := x.t() * 2, b := x.t() * 2, b[1:].mul_(3), a.exp(), b.add_(1)],
    "of a view": lambda x: [a := (x * 2).t(), b := (x * 2).t(), b[1:].mul_(3), a.exp(), b.add_(1)],
    "expanded": lambda x: [x.sum(0).expand(3, 3) * 1, b := x.sum(0).expand(3, 3), (b * 1)[1:].mul_(3), b.exp(), b + 1],
}


@pytest.mark.parametrize("case", COPIES)
@pytest.mark.parametrize("results", [[0, 1, 3], [3], [2, 4]])
def test_writes_into_repeated_computations(case: str, results: list[int]) -> None:
    def function(x: Tensor) -> list[Tensor]:
        found = COPIES[case](x)
        return [found[k] for k in results]

    compiled = ao.compile(function)
    for k in range(4):
        x = torch.arange(9.0).view(3, 3) * 0.1 + k
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-6)
