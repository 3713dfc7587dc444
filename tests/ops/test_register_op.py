"""Operators of the user's: what is wrong at registration is said there, what a function returns is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, ArgumentTypeError
from autograd_opt.ops.table import BINDERS, CALLS, OPS

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    known = set(OPS)
    yield
    for name in set(OPS) - known:
        del OPS[name], BINDERS[name]
    for called in [c for c, to in CALLS.items() if isinstance(to, str) and to not in OPS]:
        del CALLS[called]


def gradients(op: Any, *operands: Tensor, optimize: bool = False, second: bool = False) -> Any:
    for x in operands:
        x.grad = None
    with ao.AutogradGraph(optimize=optimize):
        loss = (op(*operands) * torch.tensor([1.0, 2.0, 3.0])).sum()
        if second:
            firsts = torch.autograd.grad(loss, operands, create_graph=True)
            loss = sum((g * g).sum() for g in firsts)
        loss.backward()
    return [x.grad for x in operands]


def eager(function: Any, *operands: Tensor, second: bool = False) -> Any:
    copies = [torch.tensor(x.tolist(), requires_grad=True) for x in operands]
    loss = (function(*copies) * torch.tensor([1.0, 2.0, 3.0])).sum()
    if second:
        loss = sum((g * g).sum() for g in torch.autograd.grad(loss, copies, create_graph=True))
    loss.backward()
    return [x.grad for x in copies]


@OPTIMIZE
def test_one_function_makes_several_operators(optimize: bool) -> None:
    def same(x: Tensor) -> Tensor:
        return x * 1.0

    ten = ao.register_op("x", name="ten", pure=True, x=lambda g: g * 10)(same)
    twenty = ao.register_op("x", name="twenty", pure=True, x=lambda g: g * 20)(same)
    x = ao.tensor([1.0, 1.0, 1.0])
    for op, factor in ((ten, 10.0), (twenty, 20.0), (ten, 10.0)):
        assert gradients(op, x, optimize=optimize)[0].tolist() == [factor, 2 * factor, 3 * factor]
    assert gradients(lambda x: ten(x) + twenty(x), x, optimize=optimize)[0].tolist() == [30.0, 60.0, 90.0]


def test_an_operator_of_torchs_own_function_leaves_that_alone() -> None:
    op = ao.register_op("x", name="my_sin", x=lambda g: g * 7)(torch.sin)
    x = ao.tensor([1.0, 1.0, 1.0])
    assert gradients(op, x)[0].tolist() == [7.0, 14.0, 21.0]
    torch.testing.assert_close(gradients(torch.sin, x), eager(torch.sin, x))


def test_an_operator_gives_one_tensor() -> None:
    x = ao.tensor([1.0])
    for k, result in enumerate((lambda x: (x.sin(), x.cos()), lambda x: None, lambda x: 3)):
        op = ao.register_op("x", name=f"several_{k}", x=lambda g: g)(result)
        with ao.AutogradGraph(), pytest.raises(ArgumentTypeError, match=r"several_\d returned .*one tensor.*test_reg"):
            op(x)


# ----- registration -----
def sine(x: Any) -> Any:
    return x.sin()


def rule(g: Any) -> Any:
    return g


REFUSED: dict[str, tuple[Any, str]] = {
    "no signature": (lambda: ao.register_op(None), r"signature is of type NoneType"),
    "a bare decorator": (lambda: ao.register_op(sine), r"signature is of type function, and comes first.*@register_op"),
    "no operand": (lambda: ao.register_op("*, k=1"), "names no operand"),
    "a blank": (lambda: ao.register_op("x y", x=rule), r"'x y' is no name"),
    "twice": (lambda: ao.register_op("x, x", x=rule), r"names 'x' twice"),
    "a keyword": (lambda: ao.register_op("lambda"), r"'lambda' is no name"),
    "a word of rules": (lambda: ao.register_op("ans"), r"'ans' is a word of rules"),
    "an option": (lambda: ao.register_op("name"), r"'name' is a word of rules or of register_op"),
    "no default": (lambda: ao.register_op("x, *, k", x=rule), r"attribute 'k' needs a default, as in 'k=1.0'"),
    "no value": (lambda: ao.register_op("x, *, k=what", x=rule), r"cannot be read \(NameError"),
    "order": (lambda: ao.register_op("k=1, x", x=rule), r"cannot be read .*operands first"),
    "no rules": (lambda: ao.register_op("x"), r"no rule for x: give x=lambda g: ..., or x=None"),
    "one rule of two": (lambda: ao.register_op("x, y", x=rule), r"no rule for y: "),
    "a number": (lambda: ao.register_op("x", name="r", x=3), r"r: x=3 is of type int: a rule is a function"),
    "a joint number": (lambda: ao.register_op("x", joint=3), r"joint=3 is of type int: a rule is a function"),
    "both": (lambda: ao.register_op("x", joint=rule, x=rule), r"joint= is the rule of all operands.*give either"),
    "no g": (lambda: ao.register_op("x", x=lambda x: x), r"first parameter of the rule x= is the cotangent g, not 'x'"),
    "of unknown parameters": (lambda: ao.register_op("x", x=torch.cos), r"x=<built-in .*write x=lambda g"),
    "nothing asked": (lambda: ao.register_op("x", x=lambda: 1), r"cotangent g, and there is none"),
    "an unknown word": (lambda: ao.register_op("x", x=lambda g, z: g)(sine), r"sine: a rule names 'z'"),
    "of another": (lambda: ao.register_op("x", x=rule, y=rule), r"'y' is neither an operand"),
    "of an attribute": (lambda: ao.register_op("x, *, k=1", x=rule, k=rule), r"'k' is an attribute"),
    "an unknown option": (lambda: ao.register_op("x", x=rule, purr=True), r"'purr' is neither .*did you mean 'pure'"),
    "a name": (lambda: ao.register_op("x", name=3, x=rule), r"name=3 is of type int"),
    "an empty name": (lambda: ao.register_op("x", name="", x=rule), r"name='' is empty"),
    "a taken name": (lambda: ao.register_op("x", name="sin", x=rule)(sine), r"'sin' exists already"),
    "yes or no": (lambda: ao.register_op("x", pure="no", x=rule), r"pure='no': choose True or False"),
    "a lone operand": (lambda: ao.register_op("x", commutative=True, x=rule), r"commutative=True is about two"),
    "a meaning": (lambda: ao.register_op("x", meaning="sin", x=rule), r"meaning='sin' is of type str"),
    "no function": (lambda: ao.register_op("x", name="r", x=rule)(3), r"r decorates a function, not 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_registration_is_refused(name: str) -> None:
    register, words = REFUSED[name]
    known = set(OPS)
    with pytest.raises((ArgumentError, ArgumentTypeError), match=rf"(?s){words}.*test_register_op\.py:\d+\]"):
        register()
    assert set(OPS) == known
