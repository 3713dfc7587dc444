"""Operators with objects of other classes: left to these exactly where torch leaves them, for all kinds of tensors."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import autograd_opt as ao

BINARY = [*"add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split()]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in BINARY},
    **{f"i{name.strip('_')}": getattr(operator, f"i{name.strip('_')}") for name in BINARY},
    **{name: getattr(operator, name) for name in "lt le gt ge eq ne".split()}, "divmod": divmod,
}


def answering(base: type) -> Callable[[], Any]:
    """Objects of a class that has an answer to every operator."""
    def answer(word: str) -> Callable[..., str]:
        return lambda self, other: word
    names = [*(name.strip("_") for name in BINARY), "divmod"]
    body = {f"__{side}{name}__": answer(f"{side}{name}") for name in names for side in ("", "r")}
    body |= {f"__{name}__": answer(name) for name in "lt le gt ge eq ne".split()}
    made: Any = type("Answers", (base,), {**body, "__hash__": lambda self: 1})
    return lambda: made((1.0, 2.0)) if base in (tuple, list) else made(2) if base in (int, float) else made()


OTHERS: dict[str, Callable[[], Any]] = {
    **{f"answering {base.__name__}": answering(base) for base in (object, tuple, list, int, float, dict, str)},
    "object": object, "None": lambda: None, "str": lambda: "a", "tuple": lambda: (1.0, 2.0), "list": lambda: [1.0, 2.0],
    "dict": dict, "ellipsis": lambda: ..., "bool": lambda: True, "int": lambda: 2, "float": lambda: 2.0,
    "complex": lambda: 1j, "float64": lambda: np.float64(2), "float32": lambda: np.float32(2),
    "int64": lambda: np.int64(2), "bool_": lambda: np.bool_(True), "array": lambda: np.array([1.0, 2.0]),
    "array32": lambda: np.array([1, 2], np.float32), "array of ints": lambda: np.array([1, 2]),
    "number in an array": lambda: np.array(2.0),
}
KINDS: dict[str, Callable[[], Any]] = {
    "leaf": lambda: torch.tensor([1.0, 2.0], requires_grad=True), "constant": lambda: torch.tensor([1.0, 2.0]),
    "parameter": lambda: torch.nn.Parameter(torch.tensor([1.0, 2.0])),
    "recorded": lambda: torch.tensor([1.0, 2.0], requires_grad=True) * 1.0,
    "recorded constant": lambda: torch.tensor([1.0, 2.0]) * 1.0, "integers": lambda: torch.tensor([1, 2]),
    "detached": lambda: (torch.tensor([1.0, 2.0], requires_grad=True) * 1.0).detach(),
    "number": lambda: torch.tensor(2.0, requires_grad=True) * 1.0, "truth": lambda: torch.tensor([True, False]),
}


def told(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.dtype, result.requires_grad, result.grad_fn is None
    if isinstance(result, np.ndarray):
        return result.dtype, [told(x) for x in result.flat]
    return tuple(map(told, result)) if isinstance(result, tuple) else (type(result), repr(result)[:60])


def results(kind: str, grad: bool) -> Iterator[tuple[Any, Any]]:
    for other in OTHERS:
        for name, function in OPERATORS.items():
            for turned in (False, True):
                t, x = KINDS[kind](), OTHERS[other]()
                try:
                    with torch.set_grad_enabled(grad):
                        result = told(function(x, t) if turned else function(t, x))
                except Exception as error:
                    result = RuntimeError if isinstance(error, RuntimeError) else type(error)
                yield (other, name, turned), result


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_operators_answer_as_in_torch(kind: str, grad: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = dict(results(kind, grad))
        for context in (contextlib.nullcontext, ao.AutogradGraph, lambda: ao.AutogradGraph(optimize=True)):
            with context():
                mine = dict(results(kind, grad))
            assert {case: (mine[case], theirs[case]) for case in theirs if str(mine[case]) != str(theirs[case])} == {}


@pytest.mark.parametrize("optimize", [False, True])
def test_methods_say_that_they_do_not_know_an_operand(optimize: bool) -> None:
    names = [f"__{side}{name.strip('_')}__" for name in BINARY for side in ("", "r", "i")]

    def said(t: Any) -> dict[str, bool]:
        return {name: getattr(t, name)(object()) is NotImplemented for name in names if hasattr(torch.Tensor, name)}
    theirs = said(torch.ones(2))
    with ao.AutogradGraph(optimize=optimize):
        for make in KINDS.values():
            assert said(make()) == theirs


@pytest.mark.parametrize("optimize", [False, True])
def test_a_write_with_an_unknown_operand_changes_nothing(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = torch.ones(2, requires_grad=True) * 2
        before = len(graph)
        with pytest.raises(TypeError):
            y **= None  # type: ignore[operator]
        assert len(graph) == before
        assert y._version == 0
