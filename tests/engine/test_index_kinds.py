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
    "list": [2, 0], "list of floats": [1.0, 1.7], "list of np.int64": [np.int64(2), 0], "list of arrays": [np.array([0, 1]), np.array([1, 2])],
    "list of arrays without axes": [np.array(0), np.array(1)], "list of lists": [[0, 1], [1, 2]],
    "list with None": [None], "list with a slice": [slice(0, 2)], "booleans": [True, False, True], "boolean": True,
    "range": range(2), "UserList": collections.UserList([0, 2]), "sequence": Pair(), "list of sequences": [Pair(), Pair()],
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
