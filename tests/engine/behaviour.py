"""Behaviours of torch.autograd as small programs, run under torch and inside graphs, compared.

A program gets `new`, which makes leaves, and returns what a user can observe: tensors,
flags, texts, errors.  torch's own observation is the expectation; inside a graph, with and
without optimization and with leaves of both kinds, the program must observe the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.abi.torch_private import VERSION
from autograd_opt.graph.tensor import CustomTensor

Tensor = torch.Tensor
Program = Callable[..., Any]
MODES = {
    "written": (False, "plain"), "written-custom": (False, "custom"),
    "optimized": (True, "plain"), "optimized-custom": (True, "custom"),
}
"""Name of a mode -> (optimize, kind of leaves)."""


@dataclass(frozen=True)
class Caught:
    """An exception, as an observation: its type and the start of its text."""

    type: type
    text: str


@dataclass
class Behaviour:
    """One program and what it is about."""

    group: str
    torch_test: str
    program: Program
    tolerance: float = 1e-6
    gap: str = ""
    """Why this library does not do as torch does, where it does not."""

    @property
    def name(self) -> str:
        return self.program.__name__

    @property
    def text(self) -> str:
        return (self.program.__doc__ or self.name.replace("_", " ")).strip().splitlines()[0]


@dataclass
class Group:
    """The behaviours of one module; `@group("torch_test")` adds one."""

    name: str
    members: list[Behaviour] = field(default_factory=list)

    def __call__(self, torch_test: str, gap: str = "", tolerance: float = 1e-6) -> Callable[[Program], Program]:
        def add(program: Program) -> Program:
            self.members.append(Behaviour(self.name, torch_test, program, tolerance, gap))
            return program
        return add

    def check(self) -> Any:
        """The test function of the module: every program in every mode."""
        cases = [pytest.param(b, m, id=f"{b.name}-{m}", marks=[pytest.mark.xfail(reason=b.gap)] if b.gap else [])
                 for b in self.members for m in MODES]

        @pytest.mark.parametrize(("member", "mode"), cases)
        def test(member: Behaviour, mode: str) -> None:
            compare(member.program, mode, member.tolerance)

        return test


GROUPS: list[Group] = []


def group(name: str) -> Group:
    """A new group, known to the table of the documentation."""
    assert all(known.name != name for known in GROUPS), f"two groups {name!r}: the table would mix them"
    made = Group(name)
    GROUPS.append(made)
    return made


class Leaves:
    """Makes leaves of one kind, double precision where nothing else is said."""

    def __init__(self, kind: str):
        self.kind = kind

    def __call__(self, *data: Any, grad: bool = True, dtype: torch.dtype = torch.float64) -> Tensor:
        """A leaf with these values (a nested list, or numbers)."""
        values = data[0] if len(data) == 1 and isinstance(data[0], (list, Tensor)) else list(data)
        return self.wrap(torch.as_tensor(values, dtype=dtype), grad)

    def randn(self, *size: int, grad: bool = True, dtype: torch.dtype = torch.float64) -> Tensor:
        """A leaf of normal random numbers."""
        return self.wrap(torch.randn(*size, dtype=dtype), grad)

    def scalar(self, value: float, grad: bool = True) -> Tensor:
        """A zero-dimensional leaf."""
        return self.wrap(torch.tensor(value, dtype=torch.float64), grad)

    def wrap(self, values: Tensor, grad: bool = True) -> Tensor:
        if self.kind == "custom":
            return ao.tensor(values, requires_grad=grad)
        return values.detach().clone().requires_grad_(grad)


REWORDED = {
    "grad requires non-empty inputs.": "`inputs` argument to `grad()` cannot be empty.",
    "One of the differentiated Tensors appears": "The differentiated Tensor at index 0 appears",
    "Output 0 of UnbindBackward0 is a view": "Output 0 of Unbind is a view",
    "An input that has been returned as-is": "A input that has been returned as-is",
}
"""How errors of torch 2.12 begin, and how torch has worded them since 2.13, where each is a RuntimeError."""


def worded(error: Exception) -> tuple[type, str]:
    """The class of an error and its text, as torch has had them since 2.13."""
    text = " ".join(str(error).split())
    for old, new in REWORDED.items() if VERSION < (2, 13) else ():
        if text.startswith(old):
            return RuntimeError, new + text.removeprefix(old)
    return type(error), text


def caught(action: Callable[[], Any], letters: int = 30) -> Any:
    """The exception that `action` raises; what it returns where it raises none."""
    try:
        return action()
    except Exception as error:
        kind, text = worded(error)
        return Caught(kind, text[:letters])


def messages(action: Callable[[], Any]) -> list[type]:
    """The categories of the warnings that `action` gives."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            action()
        finally:
            torch.set_warn_always(False)
    return [w.category for w in seen]


def observe(program: Program, kind: str, context: Any) -> Any:
    torch.manual_seed(0)
    with context:
        return frozen(program(Leaves(kind)))


def frozen(x: Any) -> Any:
    """An observation that outlives its graph."""
    if isinstance(x, CustomTensor) or (isinstance(x, Tensor) and x.layout is torch.strided):
        return [x.requires_grad, x.detach().clone().resolve_conj().resolve_neg()]
    if isinstance(x, (list, tuple)):
        return [frozen(e) for e in x]
    if isinstance(x, dict):
        return {k: frozen(v) for k, v in x.items()}
    return x


def compare(program: Program, mode: str, tolerance: float = 1e-6) -> None:
    """Assert that the program observes in `mode` what it observes under torch."""
    optimize, kind = MODES[mode]
    expected = observe(program, "plain", nullcontext())
    assert expected is not None, "a program must return what it observes"
    mine = observe(program, kind, ao.AutogradGraph(optimize=optimize))
    same(mine, expected, "observation", tolerance)


def same(mine: Any, theirs: Any, where: str, tolerance: float) -> None:
    """Assert equality, tensors by shape, dtype and value, errors by type and start of the text."""
    if isinstance(theirs, Caught):
        assert isinstance(mine, Caught), f"{where}: torch raises {theirs}, here {mine!r}"
        assert issubclass(mine.type, theirs.type), f"{where}: {mine.type} is no {theirs.type}"
        assert theirs.text in mine.text or mine.text in theirs.text, f"{where}: {mine.text!r} is not {theirs.text!r}"
    elif isinstance(theirs, Tensor):
        assert isinstance(mine, Tensor), f"{where}: torch has a tensor, here {mine!r}"
        with torch._C.DisableTorchFunction():
            assert mine.shape == theirs.shape, f"{where}: shape {mine.shape} is not {theirs.shape}"
            assert mine.dtype == theirs.dtype, f"{where}: {mine.dtype} is not {theirs.dtype}"
            close = torch.allclose(mine.as_subclass(Tensor), theirs.as_subclass(Tensor), tolerance, tolerance * 1e-3,
                                   equal_nan=True)
            assert close, f"{where}:\n{mine}\nis not torch's\n{theirs}"
    elif isinstance(theirs, list):
        assert isinstance(mine, list), f"{where}: {mine!r} is not {theirs!r}"
        assert len(mine) == len(theirs), f"{where}: {mine!r} is not {theirs!r}"
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            same(a, b, f"{where}[{i}]", tolerance)
    elif isinstance(theirs, dict):
        assert mine.keys() == theirs.keys(), f"{where}: {mine.keys()} are not {theirs.keys()}"
        for k in theirs:
            same(mine[k], theirs[k], f"{where}[{k!r}]", tolerance)
    elif isinstance(theirs, float):
        both_nan = mine != mine and theirs != theirs
        assert both_nan or math.isclose(mine, theirs, rel_tol=tolerance, abs_tol=tolerance * 1e-3), where
    else:
        assert mine == theirs, f"{where}: {mine!r} is not torch's {theirs!r}"
