"""Arrays of NumPy made from tensors: allowed and refused exactly where torch does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

import autograd_opt as ao

WAYS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray, "numpy": lambda x: x.numpy(), "array": np.array, "__array__": lambda x: x.__array__(),
    "with dtype": lambda x: np.asarray(x, np.float64), "method": lambda x: x.__array__(np.dtype("float64")),
    "ufunc": np.sin,
    "forced": lambda x: x.numpy(force=True),
    "there and back": lambda x: torch.from_numpy(np.asarray(x)),
    "of two": lambda x: np.maximum(x, np.ones(2)), "stack": lambda x: np.stack([x, x]), "sum": np.sum,
    "mean": np.mean, "as tensor": lambda x: torch.as_tensor(np.asarray(x) * 2),
}
KINDS: dict[str, Callable[[], Any]] = {
    "leaf": lambda: torch.ones(2, requires_grad=True), "recorded": lambda: torch.ones(2, requires_grad=True) * 2,
    "constant": lambda: torch.ones(2), "computed": lambda: torch.ones(2) * 2,
    "detached": lambda: (torch.ones(2, requires_grad=True) * 2).detach(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "data": lambda: (torch.ones(2, requires_grad=True) * 2).data,
    "view": lambda: (torch.ones(3, requires_grad=True) * 2)[1:],
}


def told(call: Callable[[], Any]) -> Any:
    try:
        r = call()
    except RuntimeError as error:
        return str(error).partition(" [at ")[0]
    except TypeError:
        return TypeError
    return type(r).__name__ == "ndarray", r.tolist(), str(r.dtype).rpartition(".")[2], getattr(r, "requires_grad", None)


def inside_function(way: str, kind: str) -> Any:
    found = []

    class Through(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            found.append(told(lambda: WAYS[way](x)))
            return torch.from_numpy(np.asarray(x) * 2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            found.append(told(lambda: WAYS[way](g)))
            return torch.from_numpy(np.asarray(g) * 2)

    x = KINDS[kind]()
    y = Through.apply(x)
    found.append((y.requires_grad, y.tolist()))
    if y.requires_grad:
        found.append(torch.autograd.grad(y.sum(), x)[0].tolist())
    return found


@pytest.mark.filterwarnings("ignore:__array")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_arrays(way: str, kind: str) -> None:
    def all_places() -> list[Any]:
        found = [told(lambda: WAYS[way](KINDS[kind]()))]
        with torch.no_grad():
            found.append(told(lambda: WAYS[way](KINDS[kind]())))
        x = KINDS[kind]()
        with torch.no_grad():
            found.append(told(lambda: WAYS[way](x)))
        return [*found, inside_function(way, kind)]
    theirs = all_places()
    for context in (ao.AutogradGraph, lambda: ao.AutogradGraph(optimize=True)):
        with context():
            assert all_places() == theirs


@pytest.mark.parametrize("optimize", [False, True])
def test_a_write_to_the_array_is_seen(optimize: bool) -> None:
    for context in (contextlib.nullcontext, lambda: ao.AutogradGraph(optimize=optimize)):
        with context():
            x = torch.ones(2, requires_grad=True)
            with torch.no_grad():
                y = x * 2
                array = np.asarray(y)
                first = (y + 1).tolist()
                array[0] = 5
                assert first == [3.0, 3.0]
                assert (y + 1).tolist() == [6.0, 3.0]
