"""Operations that leave their operand as it is: what is reused and merged behind them, and what must not change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy
import torch

import autograd_opt as ao
from autograd_opt.errors import ArgumentError
from autograd_opt.ops.table import OPS
from autograd_opt.optimizer import merging
from autograd_opt.passes import Pipeline
from autograd_opt.record import hot_operators, identities
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.reading import convert
from autograd_opt.verification.rewrites import identities as proved
from autograd_opt.verification.semantics.evaluate import apply
from autograd_opt.verification.semantics.symbols import Symbols
from tests.differential import compare
from tests.optimizer.counting import kernels_of


def is_operand(vocabulary: Vocabulary, head: Head) -> bool:
    """Does the operator's meaning give back an array of symbols of the result's shape?"""
    shape = vocabulary.types[head.type].shape or ()
    given = np.array(sympy.symbols(f"x:{int(np.prod(shape))}", real=True), dtype=object).reshape(shape)
    found = np.asarray(apply(Symbols(), vocabulary, head, [given], [head.type]))
    return found.shape == given.shape and bool((found == given).all())


X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)
Y = torch.tensor([[2.0, 0.3, -0.6], [-1.2, 0.9, 1.1]], dtype=torch.float64)

SAME = {
    "view": lambda x: x.view(2, 3),
    "view by a method's shape": lambda x: x.view(x.shape),
    "reshape": lambda x: x.reshape(2, -1),
    "squeeze": lambda x: x.squeeze(),
    "unflatten": lambda x: x.unflatten(1, (3,)),
    "expand": lambda x: x.expand(2, 3),
    "broadcast": lambda x: x.broadcast_to(2, 3),
    "permute": lambda x: x.permute(0, 1),
    "permute from the end": lambda x: x.permute(-2, -1),
    "one": lambda x: x * 1,
    "one from the left": lambda x: 1.0 * x,
    "over one": lambda x: x / 1.0,
    "clone": lambda x: x.clone(),
    "cast": lambda x: x.to(x.dtype, copy=True),
    "one after the other": lambda x: (x.view(2, 3) * 1.0).clone(),
}


@pytest.mark.parametrize("name", SAME)
def test_what_follows_is_found_again(name: str) -> None:
    same = SAME[name]
    x = ao.tensor(X)

    def run() -> None:
        with ao.AutogradGraph(optimize=True) as graph:
            again = same(x)
            loss = (x.sin() * again.sin()).sum()
            merged = Pipeline(["cse", "prune"]).run(merging.table_of(graph.tape), [loss._node.index])
            assert loss._node.operands[0].operands[0].index == merged.leader[loss._node.operands[0].operands[1].index]
            loss.backward()

    ran = kernels_of(run)
    assert ran["sin"] == ran["cos"] == 1, ran
    assert torch.equal(x.grad, 2 * X.sin() * X.cos())


@pytest.mark.parametrize("name", SAME)
def test_the_operators_meaning_gives_the_operand(name: str) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph() as graph:
        SAME[name](x)
        program = convert(graph.tape.snapshot(), Vocabulary())
    heads = [program.vocabulary.heads[k] for k in proved.unchanging(program.vocabulary)]
    assert heads
    assert all(is_operand(program.vocabulary, head) for head in heads)


def test_a_meaning_that_gives_something_else_is_seen() -> None:
    x = ao.tensor(X[:, :2])
    with ao.AutogradGraph() as graph:
        x.permute(1, 0), x.sin(), x * 2
        program = convert(graph.tape.snapshot(), Vocabulary())
    found = [head for head in program.vocabulary.heads if head.op in ("permute", "sin", "mul")]
    assert len(found) == 3
    assert not any(is_operand(program.vocabulary, head) for head in found)


@pytest.mark.parametrize("name", SAME)
def test_gradients_are_eagers(name: str) -> None:
    same = SAME[name]
    compare(lambda x, y: same(x * y).exp() * y + (x * y).exp() + same(same(x)), X, Y)
    compare(lambda x, y: torch.autograd.grad((same(x).sin() * x.sin() * y).sum(), x, create_graph=True)[0], X, Y)


@pytest.mark.parametrize("name", SAME)
def test_bits_of_special_values_are_kept(name: str) -> None:
    special = torch.tensor([[math.nan, math.inf, -math.inf], [0.0, -0.0, 5e-324]], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = ao.tensor(special.to(dtype))
        with ao.AutogradGraph(optimize=True):
            first = x.reciprocal()
            second = SAME[name](x).reciprocal()
            assert torch.equal(first.signbit(), second.signbit())
            assert torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))


def test_plus_zero_and_times_zero_are_not_identities() -> None:
    x = ao.tensor([-0.0, math.inf, 1.0])
    with ao.AutogradGraph(optimize=True) as graph:
        a, b, c = 1 / x, 1 / (x + 0.0), (x * 0).sum()
        assert a[0] == -math.inf
        assert b[0] == math.inf
        assert c.isnan()
        assert graph.tape.hits == 0


@pytest.mark.parametrize("retain", [False, True], ids=["last run", "run over a retained graph, without passes"])
@pytest.mark.parametrize("late", [False, True])
def test_a_hook_between_keeps_its_sight(late: bool, retain: bool) -> None:
    seen = {}
    for optimized in (False, True):
        x = ao.tensor(X)
        with ao.AutogradGraph(optimize=optimized):
            middle = x.view(2, 3)
            if not late:
                middle.register_hook(lambda g, k=optimized: seen.__setitem__(k, g.clone()))
            out = middle.view(2, 3)
            if late:
                middle.retain_grad()
            (out.sin() + x.sin()).sum().backward(retain_graph=retain)
            if late:
                seen[optimized] = middle.grad.clone()
    assert torch.equal(seen[False], seen[True])


def test_hooks_at_both_ends_see_their_own() -> None:
    def program(x, y):
        seen = []
        h = x * y
        h.register_hook(lambda g: seen.append(g * 2))
        again = h.view(2, 3) * 1
        again.register_hook(lambda g: seen.append(g * 3))
        (again.sin() + h.sin() * 2).sum().backward()
        assert len(seen) == 2
        return (seen[0].detach() + 10 * seen[1].detach())

    compare(program, X, Y)


def test_a_gradient_asked_for_in_between() -> None:
    def program(x, y):
        middle = (x * y).view(2, 3)
        out = (middle.view(2, 3).exp() + (x * y).exp() * y).sum()
        gm, gx = torch.autograd.grad(out, [middle, x], retain_graph=True)
        out.backward()
        return gm * gx

    compare(program, X, Y)


def test_what_no_grad_made_passes_no_gradient() -> None:
    def program(x, y):
        a = x * 1
        with torch.no_grad():
            b = a.view(2, 3)
        return b * y + x.sin() + b.sin()

    compare(program, X, Y)

    def through(x, y):
        with torch.no_grad():
            a = x.clone()
        return a.view(2, 3) * y + x * y

    compare(through, X, Y)


def test_detached_is_not_the_same() -> None:
    compare(lambda x, y: x.detach().view(2, 3) * y + x * y, X, Y)


def test_writes_make_other_values() -> None:
    def program(x, y):
        h = x * y
        again = h.view(2, 3)
        first = again.sin() + h.sin()
        h.add_(1)
        return first + again.cos() + h.cos()

    compare(program, X, Y)

    def copied(x, y):
        h = x * y
        again = h.clone()
        again.mul_(2)
        return again.sin() + h.sin()

    compare(copied, X, Y)

    def negated(x, y):
        h = x * y
        again = h.view(2, 3) * 1
        h.exp_()
        return again.sin() + h.sin()

    compare(negated, X, Y)


def test_other_strides_are_not_shown() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True):
        turned = x.t()
        first = turned.sin()
        second = turned.contiguous().sin()
        assert first.stride() == (1, 3)
        assert second.stride() == (2, 1)
        assert second.view(-1).shape == (6,)
        (first * 2 + second).sum().backward()
    assert torch.allclose(x.grad, 3 * X.cos())


def test_flushed_denormals_are_noticed() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    try:
        assert not hot_operators.denormals_survive()
        x = ao.tensor([1e-310], dtype=torch.float64)
        with ao.AutogradGraph(optimize=True):
            y = x * 1
            assert y._node.value_number != x._node.value_number
            assert not y._node.same
    finally:
        torch.set_flush_denormal(False)
    assert hot_operators.denormals_survive()


def test_complex_numbers_times_one() -> None:
    z = ao.tensor(torch.tensor([complex(math.inf, 1.0), complex(0.5, -0.0)]))
    with ao.AutogradGraph(optimize=True) as graph:
        y = z * 1
        assert y.imag.isnan().any(), "infinity times the zero imaginary part of 1"
        assert not y._node.same
        assert (z.abs() * 1)._node.same
        assert z.clone()._node.same
        assert graph.tape.hits == 0


def test_a_second_run_over_a_retained_graph() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True):
        h = x * 2
        out = (h.view(2, 3).sin() + h.sin()).sum()
        out.backward(retain_graph=True)
        out.backward(retain_graph=True)
        out.backward()
        with pytest.raises(RuntimeError, match="backward"):
            out.backward()
    assert torch.allclose(x.grad, 12 * (2 * X).cos())


def test_nothing_is_left_alive_by_recognized_values() -> None:
    import gc
    import weakref
    gc.disable()
    try:
        x = ao.tensor(X)
        with ao.AutogradGraph(optimize=True):
            h = x * 2
            again = h.view(2, 3) * 1
            dead = weakref.ref(h.untyped_storage())
            nodes = weakref.ref(again)
            again.sum().backward()
            del h, again
        assert dead() is None
        assert nodes() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["algebraic", "algebraic-real"])
def test_passes_that_were_removed_are_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"no pass named '{name}'\. Registered: .*cse.*prune"):
        ao.AutogradGraph(passes=[name, "cse"])


def test_every_name_is_an_operator_of_the_table_and_is_proved() -> None:
    recorded = {*identities.ROW_MAJOR, *identities.BROADCAST, *identities.COPIES}
    assert {*recorded, "permute", *identities.UNIT} <= set(OPS)
    assert recorded == proved.SAME_TYPE
    assert set(identities.UNIT) == set(proved.UNITS)


@pytest.mark.parametrize("name", SAME)
def test_what_recording_takes_for_the_operand_is_proved_bit_for_bit(name: str) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        y = SAME[name](x)
        assert y._node.same
        assert y._node.value_number == x._node.value_number
        verdict = graph.verify(y.sin().sum(), exact="bitwise")
        assert (verdict.status, verdict.exact) == ("proved", "bitwise")
        assert verdict.stats["merged"] >= 1


NOT_SAME = {
    "another order": lambda x: x.permute(1, 0),
    "another shape": lambda x: x.reshape(3, 2),
    "plus zero": lambda x: x + 0.0,
    "one over": lambda x: 1.0 / (x * 2),
    "another number": lambda x: x * 1.0000001,
    "another type": lambda x: x.to(torch.float32),
    "detached": lambda x: x.detach(),
    "other strides": lambda x: x.t().clone(memory_format=torch.contiguous_format).t(),
}


@pytest.mark.parametrize("name", NOT_SAME)
def test_what_is_not_the_operand_has_a_number_of_its_own(name: str) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True):
        y = NOT_SAME[name](x)
        node = getattr(y, "_node", None)
        assert node is None or node.value_number != x._node.value_number


# What stands on a merged node may still be reached by the run itself.
def shared_with_its_leader(x):
    a = x * 2
    m = -a
    s = m - x * 1
    return (s * 2 - (a * 1).neg() * 3).sin().sum()


def read_by_somebody_else(x):
    p = x * -2.0
    i = x * 2.0
    return (p * (-i * 1)).sum() + i.sin().sum()


def read_later_and_earlier(x):
    i = x * 2.0
    q = i.exp()
    return (q * i * 1).sum() + (-i).sum() + (i * q).sum()


@pytest.mark.parametrize("program", [shared_with_its_leader, read_by_somebody_else, read_later_and_earlier])
def test_what_lies_on_the_way_is_not_freed_early(program):
    x = torch.tensor([0.3, -0.7], requires_grad=True)
    program(x).backward()
    mine = ao.tensor([0.3, -0.7])
    with ao.AutogradGraph(optimize=True):
        loss = program(mine)
        loss.backward()
        torch.testing.assert_close(mine.grad, x.grad)
        with pytest.raises(ao.FreedGraphError):
            loss.backward()
