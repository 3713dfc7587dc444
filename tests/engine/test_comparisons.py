"""`a < b` of two tensors: which of them Python asks first, and whose axes the result follows."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from autograd_opt import AutogradGraph

Tensor = torch.Tensor
SIGNS = ("<", "<=", ">", ">=", "==", "!=")
CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda c: c, "parameter": lambda c: torch.nn.Parameter(c), "leaf": lambda c: c.requires_grad_(),
}


def written(sign: str, turned: bool, text: str = "{}") -> Any:
    """A function of a result and something else, whose source compares them."""
    return eval("lambda r, c: " + text.format(f"c {sign} r" if turned else f"r {sign} c"))


def compared(compare: Callable[[Tensor, Tensor], Tensor], kind: str) -> tuple[tuple[int, ...], object, object]:
    """What comes of a result and a constant whose axes lie otherwise: strides, values, and draws by its axes."""
    torch.manual_seed(0)
    result = torch.randint(3, (3, 4)).double().requires_grad_() * 1
    c = CONSTANTS[kind](torch.randint(3, (4, 3)).double().t())
    found = compare(result, c)
    drawn = torch.rand_like(found, dtype=torch.float64)
    return found.stride(), found.tolist(), drawn.tolist()


# `c == r` of a plain c asks r, of the more special class, the same as `r == c`: nobody can tell which was meant
TOLD = [(sign, kind, turned) for sign in SIGNS for kind in CONSTANTS for turned in (False, True)
        if kind == "parameter" or not turned or sign not in ("==", "!=")]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(("sign", "kind", "turned"), TOLD)
def test_axes_lie_as_torch_has_them(sign: str, kind: str, turned: bool, optimize: bool) -> None:
    compare = written(sign, turned)
    expected = compared(compare, kind)
    with AutogradGraph(optimize=optimize):
        assert compared(compare, kind) == expected


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_in_a_condition(sign: str) -> None:
    """Python has an instruction of its own for `if a < b`, in some versions."""
    for turned in (False, True):
        decide = written(sign, turned, "'yes' if {} else 'no'")
        for value in (1.0, 2.0, 3.0):
            expected = decide(2.0, value)
            with AutogradGraph():
                assert decide(torch.tensor(2.0, requires_grad=True) * 1, torch.tensor(value)) == expected


@pytest.mark.parametrize("function", [operator.lt, operator.ge, torch.lt, Tensor.__lt__, min])
def test_by_functions(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A comparison that no instruction of the source says computes the same values."""
    a, c = torch.tensor(1.0), torch.tensor(2.0)
    for pair in ((a, c), (c, a)):
        expected = function(*pair)
        with AutogradGraph():
            result = pair[0].clone().requires_grad_() * 1
            assert torch.equal(function(result, pair[1]).detach(), expected)
            result = pair[1].clone().requires_grad_() * 1
            assert torch.equal(function(pair[0], result).detach(), expected)


def into(name: str, context: Any) -> Any:
    """What comes of a function with `out=`, an operand of which requires grad: a value, or a refusal."""
    w = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    function = getattr(torch, name)
    with context:
        x = w * 2
        others = () if name in UNARY else (w,)
        out = torch.empty(()).long() if name.startswith("arg") else torch.zeros(3, dtype=torch.bool)
        try:
            result = function(x, *others, out=out)
        except (RuntimeError, TypeError) as refusal:
            return "TypeError" if isinstance(refusal, TypeError) else "RuntimeError"
        return result is out, out.tolist(), out.requires_grad


UNARY = ("logical_not", "signbit", "isposinf", "isneginf", "argmax", "argmin", "sin", "isnan")


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", [*UNARY, *"gt lt ge le eq ne logical_and logical_or logical_xor mul maximum".split()])
def test_into_given_memory(name: str, optimize: bool) -> None:
    """Functions without a derivative write into `out`, whatever requires grad; others are refused, as in torch."""
    assert into(name, AutogradGraph(optimize=optimize)) == into(name, contextlib.nullcontext())
