"""Results that are no tensors: a repetition returns the objects of the call that was recorded, where that is right."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from autograd_opt.abi.torch_private import tree_flatten
from autograd_opt.plans.capture import Unrepeatable
from autograd_opt.plans.objects import of_library
from autograd_opt.plans.state import PLAIN

CONSTANT = (*PLAIN, enum.Enum, range, type(...), types.ModuleType, np.generic, np.dtype)
"""Classes of objects that are the same at each call if they are equal."""


def nodes_of(structure: Any) -> list[Any]:
    """The containers and leaves of arguments or results."""
    found: list[Any] = []

    def is_leaf(x: Any) -> bool:
        found.append(x)
        return False

    tree_flatten(structure, is_leaf=is_leaf)
    return found


def is_constant(x: Any) -> bool:
    """True if an object is the same at each call."""
    if isinstance(x, types.BuiltinFunctionType):
        return isinstance(x.__self__, (type, types.ModuleType, type(None)))
    return isinstance(x, CONSTANT) or (isinstance(x, (type, types.FunctionType)) and of_library(x.__module__))


def check(result: Any, arguments: Any, reached: Iterable[Any]) -> None:
    """Refuse a result with objects that each call makes anew, or with containers that the program has already."""
    known = {id(x) for x in (*reached, *nodes_of(arguments))}
    leaves, _ = tree_flatten(result)
    insides = {id(x) for x in leaves}
    for x in nodes_of(result):
        if id(x) not in insides:
            if id(x) in known and not isinstance(x, tuple):
                raise Unrepeatable(f"it returns a {type(x).__name__} that there was before")
        elif not (isinstance(x, torch.Tensor) or id(x) in known or is_constant(x)):
            raise Unrepeatable(f"it returns an object of the class {type(x).__name__}")
