"""What stands for an index: numbers of other libraries, sequences, masks; read, written, and through views."""

from __future__ import annotations

import collections
import enum
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autograd_opt as ao
from tests.differential import compare

X = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)


class Number:
    """A number by its `__index__` alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Pair:
    """A sequence of no class that is known."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, k: int) -> int:
        return range(2)[k]


class Row(enum.IntEnum):
    SECOND = 1


ALL = slice(None)
INDICES: dict[str, Any] = {
    "np.int64": np.int64(1), "np.uint8": np.uint8(1), "in a tuple": (ALL, np.int64(1)), "two": (np.int64(1), 2),
    "array without axes": np.array(1), "array without axes, in a tuple": (ALL, np.array(1)),
    "mask without axes": np.array(True), "uint8 without axes": np.array(1, dtype=np.uint8),
    "array": np.array([2, 0, 2]), "int32 array": np.array([1], dtype=np.int32), "mask": np.array([True, False, True]),
    "floats": np.array([1.0, 2.0]), "no floats": np.array([]), "matrix": np.array([[0, 1], [1, 2]]),
    "mask of all": np.array([[True, False, True]] * 3), "uint8 array": np.array([0, 1, 1], dtype=np.uint8),
    "np.bool_": np.bool_(True), "np.bool_ in a tuple": (np.bool_(True),), "np.float64": np.float64(1),
    "object": Number(1), "object in a tuple": (Number(1), ALL), "objects in a list": [Number(1)],
    "slice of objects": slice(Number(1), None), "slice of np.int64": slice(np.int64(0), np.int64(2)),
    "enum": Row.SECOND, "enum in a tuple": (Row.SECOND, ALL),
    "empty list": [], "empty list in a tuple": ([],), "empty lists": [[], []],
    "list": [2, 0], "list of floats": [1.0, 1.7], "list of np.int64": [np.int64(2), 0],
    "list of arrays": [np.array([0, 1]), np.array([1, 2])],
    "list of arrays without axes": [np.array(0), np.array(1)], "list of lists": [[0, 1], [1, 2]],
    "list with None": [None], "list with a slice": [slice(0, 2)], "booleans": [True, False, True], "boolean": True,
    "range": range(2), "UserList": collections.UserList([0, 2]), "sequence": Pair(),
    "list of sequences": [Pair(), Pair()],
    "memoryview": memoryview(b"\1"), "number beside a list": (0, [1, 2]), "None beside a list": (None, [0, 2]),
    "float": 1.0, "float in a tuple": (1.0,), "set": {0}, "dict": {0: 1}, "str": "a", "str in a tuple": ("0",),
    "int32 tensor": torch.tensor([1], dtype=torch.int32), "uint8 tensor": torch.tensor(1, dtype=torch.uint8),
    "tensor without axes": torch.tensor(1), "float tensor": torch.tensor([1.0]),
}


def program(use: str, index: Any) -> Callable[[Tensor], Tensor]:
    def read(x: Tensor) -> Tensor:
        part = (x * 2)[index]
        return part * part * (3 if part._is_view() else 5)

    def written_through(x: Tensor) -> Tensor:
        y = x * 2
        y[index].mul_(10)
        return y * y

    def followed(x: Tensor) -> Tensor:
        y = x * 2
        part = y[index]
        y.mul_(10)
        return part * part

    def assigned_number(x: Tensor) -> Tensor:
        y = x * 2
        y[index] = 7.0
        return y * y

    def assigned(x: Tensor) -> Tensor:
        y = x * 2
        y[index] = x[0, 0] * 3
        return y * y

    def assigned_to_constant(x: Tensor) -> Tensor:
        y = torch.zeros(3, 3, dtype=x.dtype)
        y[index] = x[0, 1] * 3
        return y * y

    def constant(x: Tensor) -> Tensor:
        y = torch.ones(3, 3, dtype=x.dtype)
        y[index].mul_(10)
        y[index] = 3.0
        return y * x
    return locals()[use]


@pytest.mark.parametrize("use", ["read", "written_through", "followed", "assigned_number", "assigned",
                                 "assigned_to_constant", "constant"])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
def test_as_torch(index: Any, use: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(program(use, index), X)


def counted(x: Tensor, v: Tensor) -> Tensor:
    y, k = x * 1, torch.tensor(0)
    for _ in range(3):
        y[k] = v[k] * 2
        k += 1
    return y


def counted_pairs(x: Tensor, v: Tensor) -> Tensor:
    y, k = torch.stack([x, x, x]), torch.tensor(0)
    for _ in range(2):
        y[k, 1 - k] = v[k, 0] * 2
        y[k:k + 1, :, k] = 3.0
        k += 1
    return y


def counted_constant(x: Tensor, v: Tensor) -> Tensor:
    y, k = torch.zeros_like(x), torch.tensor(0)
    for _ in range(3):
        y[:, k] = v[0] * x[0]
        k += 1
    return y * y


def masked(x: Tensor, v: Tensor) -> Tensor:
    y, mask = x * 1, torch.tensor(True)
    y[mask] = v * 1
    part = y[mask]
    mask.logical_not_()
    return part * part


@pytest.mark.parametrize("program", [counted, counted_pairs, counted_constant, masked])
def test_a_number_in_a_tensor_is_read_at_the_call(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    compare(program, X, X.flip(0))


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("index", [
    torch.tensor([0]), torch.tensor([True, False, False]), (torch.tensor([0]), ALL)], ids=str)
def test_the_index_of_an_assignment_is_not_written_before_backward(index: Any, optimize: bool) -> None:
    for graph in (lambda: ao.AutogradGraph(optimize=optimize), None):
        x, v = X.clone().requires_grad_(), torch.tensor(5.0, dtype=X.dtype, requires_grad=True)
        tensor = (index[0] if isinstance(index, tuple) else index).clone()
        with graph() if graph is not None else torch.enable_grad():
            y = x * 1
            y[(tensor, *index[1:]) if isinstance(index, tuple) else tensor] = v * 1
            tensor.copy_(tensor.logical_not())
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_bytes_as_a_mask_of_an_assignment() -> None:
    def program(x: Tensor, v: Tensor) -> Tensor:
        y = x * 1
        y[torch.tensor([1, 0, 1], dtype=torch.uint8)] = v[0]
        return y * y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(program, X, X.flip(0))


def casts(t: Tensor) -> list[Tensor]:
    return [torch.as_tensor(t, dtype=torch.float32), torch.as_tensor(t), torch.as_tensor(data=t, dtype=torch.float16),
            torch.as_tensor(t, dtype=torch.int64), torch.as_tensor(t, device="cpu"),
            torch.asarray(t, dtype=torch.float32, requires_grad=True)]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_tensor_made_of_a_tensor_keeps_its_history(optimize: bool) -> None:
    seen = []
    for graph in (None, ao.AutogradGraph(optimize=optimize)):
        x = X.clone().requires_grad_()
        with graph if graph is not None else torch.enable_grad():
            y = x * 3
            made = casts(y)
            sum(t.double().sum() * k for k, t in enumerate(made, 1) if t.requires_grad).backward()
            seen.append((x.grad, [(t.requires_grad, t is y, t.dtype) for t in made]))
    torch.testing.assert_close(seen[1][0], seen[0][0])
    assert seen[1][1] == seen[0][1]
