"""Calls of users' operators: what a proof reads of them is what their functions and rules get."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.verification.program.attribute_encoding import decode, encode
from autograd_opt.verify import Status

COUNT = itertools.count()
Tensor = torch.Tensor
OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


def choosing(test: Callable[[Any], bool]) -> Any:
    """An operator whose rule is a square of the cotangent for one mode, and linear for the others."""
    def rule(g: Tensor, x: Tensor, *, mode: Any) -> Tensor:
        return g * g if test(mode) else g * x

    return ao.register_op("x, *, mode=None", pure=True, name=f"choosing {next(COUNT)}", x=rule)(
        lambda x, *, mode=None: x * (2 if test(mode) else 3))


def gradient(program: Callable[[Tensor], Tensor], **options: Any) -> tuple[Tensor, Any]:
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    with ao.AutogradGraph(**options) as graph:
        program(x).backward()
        assert x.grad is not None
        return x.grad, graph.verdicts[-1] if options.get("verify") else None


@pytest.mark.parametrize(("mode", "test"), [
    ("größe", lambda m: m == "größe"),
    ("\u20ac\n'\"", lambda m: m == "\u20ac\n'\""),
    ("\ud800", lambda m: m == "\ud800"),
    ([1], lambda m: m == [1]),
    ((1, [2]), lambda m: m == (1, [2])),
    (torch.Size([1]), lambda m: isinstance(m, torch.Size)),
    (10 ** 5000, lambda m: m == 10 ** 5000),
    (-0.0, lambda m: str(m) == "-0.0"),
], ids=["text", "signs", "surrogate", "list", "inner list", "size", "large", "minus zero"])
def test_a_rule_is_traced_with_the_attributes_that_it_gets(mode: Any, test: Any) -> None:
    op = choosing(test)

    def program(x: Tensor) -> Tensor:
        return (op(x * 2, mode=mode) * 3 + op(x * 2, mode=mode).exp()).sum()

    wanted, _ = gradient(program)
    try:
        found, verdict = gradient(program, optimize=True, verify=True)
    except ao.VerificationError:
        return                               # the square is seen: the merge is refuted
    assert verdict.status is not Status.PROVED or verdict.stats["merged"] == 1
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("one", "other"), [
    ([1], (1,)), ((1,), torch.Size([1])), ([1], torch.Size([1])), (((1,), 2), ([1], 2)),
    (slice((1,), 2), slice([1], 2))])
@OPTIMIZE
def test_a_list_is_no_tuple_to_a_function_of_the_users(one: Any, other: Any, optimize: bool) -> None:
    def first(mode: Any) -> Any:
        return first(mode.start) if type(mode) is slice else first(mode[0]) if len(mode) == 2 else type(mode)

    op = ao.register_op("x, *, mode=None", pure=True, name=f"by type {next(COUNT)}", x=lambda g, *, mode: g)(
        lambda x, *, mode=None: x + {list: 1, tuple: 2, torch.Size: 3}[first(mode)])
    x = ao.tensor([0.0, 1.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a, again, b = op(x, mode=one), op(x, mode=one), op(x, mode=other)
        assert torch.equal(a, again)
        assert not torch.equal(a, b)
        assert not graph.explain(a, b).same
        if optimize and type(one) is not slice:
            assert graph.report().merged == 1
            assert graph.verify((a + again * 2 + b).sum()).status is Status.PROVED


def test_a_list_is_a_tuple_to_torch() -> None:
    x = ao.tensor([[0.0, 1.0]])
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (x.sum([0, 1]) * 2 + x.sum((0, 1)).exp()).sum()
        assert graph.report().merged == 1
        assert graph.verify(loss).status is Status.PROVED


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"optimize": True, "verify": True}], ids=len)
def test_a_list_operand_is_what_it_was_at_the_call(count: int, options: Any) -> None:
    signature, rules = ("x, n, v", {"n": None}) if count == 3 else ("x, v", {})
    op = ao.register_op(signature, pure=True, name=f"weighted {next(COUNT)}", v=None, x=lambda g, v: g * v[0], **rules)(
        lambda x, *rest: x * rest[-1][0])

    def program(x: Tensor) -> Tensor:
        v = [1.0]
        rest = (1.0,) if count == 3 else ()
        a = op(x, *rest, v)
        v[0] = 2.0
        b = op(x, *rest, v)
        v[0] = 5.0
        return (a.sin() + b.sin() * (x.exp() + x.exp())).sum()

    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    (x.sin() + (x * 2).sin() * (x.exp() + x.exp())).sum().backward()
    found, _ = gradient(program, **options)
    torch.testing.assert_close(found, x.grad)


@pytest.mark.parametrize("depth", [500, 5_000, 100_000, None], ids=str)
@OPTIMIZE
def test_a_list_within_lists_without_end(depth: int | None, optimize: bool) -> None:
    op = ao.register_op("x, *, mode=None", pure=True, name=f"deep {next(COUNT)}", x=lambda g: g * 2)(
        lambda x, *, mode=None: x * 2)
    mode: list[Any] = []
    if depth is None:
        mode.append(mode)
    for _ in range(depth or 0):
        mode = [mode]
    found, _ = gradient(lambda x: (op(x, mode=mode) + op(x, mode=mode)).sum(), optimize=optimize)
    assert found.tolist() == [4.0] * 3
    while depth and mode:                    # taken apart: Python's own deallocation is deep, too
        mode = mode.pop()


@pytest.mark.parametrize("value", [0, -7, 10 ** 30, -(1 << 64), "größe\ud800\n'", (1, [2.0, (None,)], torch.Size([3]))])
def test_text_of_a_value_is_read_back(value: Any) -> None:
    assert decode(encode(value, typed=True)) == value
    assert encode(decode(encode(value, typed=True)), typed=True) == encode(value, typed=True)


class Penalty(ao.CustomFunction):
    """The identity; each call of its rule adds to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g + ctx.saved_tensors[0].sign()


class Two(ao.CustomFunction):
    """Two results; a rule that tells zeros from nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x.clone(), x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, h: Tensor | None) -> Tensor:
        out = torch.zeros(3, dtype=torch.float64)
        for part, factor in ((g, 1), (h, 2)):
            if part is not None:
                out = out + part * factor + 1
        return out


def test_a_proof_records_nothing() -> None:
    x, t = ao.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    with ao.AutogradGraph(optimize=True) as graph:
        y = x * 2
        t[0] = y[1]
        t[1:] = x[:2] * 3
        loss = (t * y).sin().sum() + (t * y).cos().sum()
        before = len(graph)
        assert graph.verify(loss, anew=True).status is Status.PROVED
        assert len(graph) == before
