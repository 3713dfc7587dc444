"""What a function can see besides its arguments: closures, globals that it names, modules, plain attributes of objects.

`entries_of` lists it as (dictionary, key, value), to be compared before each call: a plan is for one state.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from autograd_opt.abi import torch_private as private
from autograd_opt.plans.capture import Unrepeatable

MOST_OBJECTS = 2000
"""Objects that are looked into, at most; a function that reaches more is recorded at each call."""
PLAIN = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, torch.memory_format)
LIBRARIES = ("torch", "numpy", "autograd_opt", "math", "builtins", "functools", "itertools", "collections", "typing")
"""Packages whose functions and modules are taken to be as they were."""

Entry = tuple[Any, Any, Any]


class Cell:
    """A closure's cell, read like a list of one."""

    def __init__(self, cell: types.CellType) -> None:
        self.cell = cell

    def __getitem__(self, _: int) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return None


def foreign(name: str | None) -> bool:
    """True if a function or module of this name belongs to a library."""
    return (name or "").split(".")[0] in LIBRARIES


def names_of(code: types.CodeType) -> Iterator[str]:
    """The global names and attributes that code mentions, that of inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)


class Reached:
    """Everything that a function reaches, object by object."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.tensors: list[torch.Tensor] = []
        self.kept: list[Any] = []
        self.seen: set[int] = set()
        self.roots: set[int] = set()

    def collect(self, *roots: Any) -> Reached:
        """Look into `roots` and all that they lead to."""
        waiting = list(roots)
        self.roots = {id(getattr(root, "__func__", root)) for root in roots}     # looked into, wherever they are from
        while waiting:
            one = waiting.pop()
            if id(one) in self.seen or isinstance(one, PLAIN):
                continue
            self.seen.add(id(one))
            self.kept.append(one)  # so that no address is another object's
            if len(self.kept) > MOST_OBJECTS:
                raise Unrepeatable("it reaches too many objects")
            if isinstance(one, torch.Tensor):
                self.tensors.append(one)
            else:
                waiting += self.parts(one)
        return self

    def parts(self, one: Any) -> list[Any]:
        """Note what belongs to an object, and return it."""
        if isinstance(one, functools.partial):
            return [one.func, *one.args, *one.keywords.values()]
        if isinstance(one, types.MethodType):
            return [one.__self__, one.__func__]
        if isinstance(one, types.FunctionType):
            return [] if foreign(one.__module__) and id(one) not in self.roots else self.of_function(one)
        if isinstance(one, dict):
            return self.of_dictionary(one)
        if isinstance(one, (list, tuple, set, frozenset)):
            return self.of_sequence(one)
        if isinstance(one, nn.Module):
            return self.of_module(one)
        if isinstance(one, (type, types.ModuleType, types.BuiltinFunctionType)) or (
            foreign(type(one).__module__) and not isinstance(one, torch.optim.Optimizer)
        ):
            return []
        return self.of_dictionary(one.__dict__) if hasattr(one, "__dict__") else []

    def note(self, where: Any, key: Any, value: Any) -> Any:
        self.entries.append((where, key, value))
        return value

    def of_function(self, one: types.FunctionType) -> list[Any]:
        found = [self.note(Cell(c), 0, Cell(c)[0]) for c in one.__closure__ or ()]
        found += [
            self.note(one.__globals__, name, one.__globals__[name])
            for name in dict.fromkeys(names_of(one.__code__))
            if name in one.__globals__
        ]
        return [*found, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]

    def of_dictionary(self, one: dict[Any, Any]) -> list[Any]:
        self.note(one, None, len(one))
        return [self.note(one, key, value) for key, value in one.items()]

    def of_sequence(self, one: Any) -> list[Any]:
        if isinstance(one, list):
            self.note(one, None, len(one))
            return [self.note(one, k, value) for k, value in enumerate(one)]
        return list(one)

    def of_module(self, one: nn.Module) -> list[Any]:
        if any(one.__dict__.get(name) for name in private.MODULE_HOOKS):
            raise Unrepeatable(f"{type(one).__name__} has hooks")
        return [*self.of_dictionary(one.__dict__), type(one).forward]
