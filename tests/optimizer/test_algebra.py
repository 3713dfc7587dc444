"""Values recognized in other words: what is reused and merged, and everything that must not change."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt import optimize, recorder, words
from autograd_opt.errors import ArgumentError
from autograd_opt.passes import RULES, Pipeline
from tests.differential import compare
from tests.optimizer.counting import kernels_of

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)
Y = torch.tensor([[2.0, 0.3, -0.6], [-1.2, 0.9, 1.1]], dtype=torch.float64)

SAME = {
    "t": lambda x: x.t().t(),
    "T": lambda x: x.T.T,
    "transpose": lambda x: x.transpose(0, 1).mT,
    "permute": lambda x: x.permute(1, 0).permute(1, 0),
    "movedim": lambda x: x.movedim(0, 1).transpose(-1, -2),
    "three axes": lambda x: x.unsqueeze(0).permute(2, 0, 1).permute(1, 2, 0).squeeze(0),
    "identity": lambda x: x.permute(0, 1),
    "view": lambda x: x.view(6).view(2, 3),
    "reshape": lambda x: x.reshape(3, 2).flatten().unflatten(0, (2, 3)),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "itself": lambda x: x.view(2, 3),
    "expand": lambda x: x.expand(2, 3),
    "negated": lambda x: -x.neg(),
    "one": lambda x: x * 1,
    "one from the left": lambda x: 1.0 * x,
    "over one": lambda x: x / 1.0,
    "minus zero": lambda x: x - 0,
    "plus negative zero": lambda x: x + -0.0,
    "minus one twice": lambda x: (x * -1) * -1.0,
    "clone": lambda x: x.clone(),
    "cast": lambda x: x.to(x.dtype, copy=True),
}
@pytest.mark.parametrize("name", SAME)
def test_what_follows_is_found_again(name: str) -> None:
    same = SAME[name]
    x = ao.tensor(X)

    def run() -> None:
        with ao.AutogradGraph(optimize=True) as graph:
            again = same(x)
            loss = (x.sin() * again.sin()).sum()
            merged = Pipeline(["algebraic", "cse", "prune"]).run(optimize.table_of(graph.tape), [loss._node.index])
            assert loss._node.operands[0].operands[0].index == merged.leader[loss._node.operands[0].operands[1].index]
            loss.backward()

    ran = kernels_of(run)
    assert ran["sin"] == ran["cos"] == 1, ran
    assert torch.equal(x.grad, 2 * X.sin() * X.cos())


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


@pytest.mark.parametrize("passes", [["algebraic-real", "cse", "prune"], None])
@pytest.mark.parametrize(("function", "merges"), [
    (lambda x: ((x * 0.1 * 0.2).sin() + (x * (0.1 * 0.2)).sin()).sum(), False),
    (lambda x: ((x + 0.1 + 0.2).sin() + (x + (0.1 + 0.2)).sin()).sum(), False),
    (lambda x: ((x * 0.1 * 4.0).sin() + (x * 0.4).sin()).sum(), True),
    (lambda x: ((x + 0.25 - 1.0).sin() + (x - 0.75).sin()).sum(), True),
], ids=["a rounded product", "a rounded sum", "a product", "a sum"])
def test_numbers_that_would_be_rounded_are_not_put_together(function: Any, merges: bool, passes: Any) -> None:
    x, u = ao.tensor(X), X.clone().requires_grad_()
    with ao.AutogradGraph(optimize=passes is None, passes=passes, verify=True) as graph:
        loss = function(x)
        assert graph.report(loss).merged == 2 * (merges and passes is not None)
        assert graph.verify(loss).status == "proved"
        loss.backward()
    function(u).backward()
    torch.testing.assert_close(x.grad, u.grad)


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
            middle = x.t()
            if not late:
                middle.register_hook(lambda g, k=optimized: seen.__setitem__(k, g.clone()))
            out = middle.t()
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
        again = -h.neg()
        again.register_hook(lambda g: seen.append(g * 3))
        (again.sin() + h.sin() * 2).sum().backward()
        assert len(seen) == 2
        return (seen[0].detach() + 10 * seen[1].detach())

    compare(program, X, Y)


def test_a_gradient_asked_for_in_between() -> None:
    def program(x, y):
        middle = (x * y).t()
        out = (middle.t().exp() + (x * y).exp() * y).sum()
        gm, gx = torch.autograd.grad(out, [middle, x], retain_graph=True)
        out.backward()
        return gm.t() * gx

    compare(program, X, Y)


def test_what_no_grad_made_passes_no_gradient() -> None:
    def program(x, y):
        a = -x
        with torch.no_grad():
            b = -a
        return b * y + x.sin() + b.sin()

    compare(program, X, Y)

    def through(x, y):
        with torch.no_grad():
            a = -x
        return (-a) * y + x * y

    compare(through, X, Y)


def test_detached_is_not_the_same() -> None:
    compare(lambda x, y: x.detach().t().t() * y + x * y, X, Y)


def test_writes_make_other_values() -> None:
    def program(x, y):
        h = x * y
        again = h.t().t()
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
        again = -h.neg()
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
        assert not recorder.denormals_survive()
        x = ao.tensor([1e-310], dtype=torch.float64)
        with ao.AutogradGraph(optimize=True) as graph:
            y = x * 1
            assert y._node.value_number != x._node.value_number
            assert not graph.tape.algebra
    finally:
        torch.set_flush_denormal(False)
    assert recorder.denormals_survive()


def test_complex_numbers_times_one() -> None:
    z = ao.tensor(torch.tensor([complex(math.inf, 1.0), complex(0.5, -0.0)]))
    with ao.AutogradGraph(optimize=True) as graph:
        y = z * 1
        assert y.imag.isnan().any(), "infinity times the zero imaginary part of 1"
        assert y._node.word() == (0, 0)
        assert not y._node.by_rule
        assert (z.real * 1)._node.word() != (0, 0)
        assert (-z.neg())._node.by_rule
        assert graph.tape.hits == 0


def test_a_second_run_over_a_retained_graph() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True):
        h = x * 2
        out = (h.t().t().sin() + h.sin()).sum()
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
            again = -h.neg()
            dead = weakref.ref(h.untyped_storage())
            nodes = weakref.ref(again)
            again.sum().backward()
            del h, again
        assert dead() is None
        assert nodes() is None
    finally:
        gc.enable()


# ----- real arithmetic, by name -----
REAL = ["algebraic-real", "cse", "prune"]
EQUAL_REALS = {
    "common factor": (lambda x, y: (x * y + x * y.exp()).sin() + (x * (y + y.exp())).sin(), 1),
    "reassociated": (lambda x, y: ((x + y) + x.exp()).sin() + (x.exp() + y + x).sin(), 1),
    "log of exp": (lambda x, y: x.exp().log().sin() + x.sin() * y, 1),
    "minus itself": (lambda x, y: (x - x) + y, 1),
    "times zero": (lambda x, y: y + x * 0, 1),
    "added and taken away": (lambda x, y: ((x + y) - y).sin() + x.sin(), 1),
    "matmul": (lambda x, y: (x @ y.t() + x @ x.t()).sin() + (x @ (y.t() + x.t())).sin(), 1),
}


@pytest.mark.parametrize("name", EQUAL_REALS)
def test_real_arithmetic(name: str) -> None:
    program, least = EQUAL_REALS[name]
    plain = [t.clone().requires_grad_() for t in (X, Y)]
    program(*plain).sum().backward()
    leaves = [ao.tensor(t) for t in (X, Y)]
    with ao.AutogradGraph(passes=REAL) as graph:
        loss = program(*leaves).sum()
        loss.backward()
        result = graph.runs[-1]
        assert len(result.rewrites) >= least
    for mine, theirs in zip(leaves, plain, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        assert torch.allclose(mine.grad, theirs.grad)


def test_an_erased_operand_has_a_gradient_of_zeros_and_its_hook_is_called() -> None:
    x, y = ao.tensor(X), ao.tensor(Y)
    seen = []
    with ao.AutogradGraph(passes=REAL):
        h = x.exp()
        h.register_hook(lambda g: seen.append(g.clone()))
        h.retain_grad()
        (y.sin() + (h - h)).sum().backward()
        assert torch.equal(h.grad, torch.zeros_like(X))
    assert len(seen) == 1
    assert not seen[0].any()
    assert torch.equal(x.grad, torch.zeros_like(X))
    assert torch.allclose(y.grad, Y.cos())


def test_a_captured_node_keeps_its_own_cotangent() -> None:
    for passes in (REAL, None):
        x, y = ao.tensor(X), ao.tensor(Y)
        with ao.AutogradGraph(True, passes=passes):
            middle = (x + y)
            out = ((middle + x.exp()).sin() + (x.exp() + y + x).sin()).sum()
            g = torch.autograd.grad(out, [middle, x])
        a, b = X.clone().requires_grad_(), Y.clone().requires_grad_()
        middle = a + b
        out = ((middle + a.exp()).sin() + (a.exp() + b + a).sin()).sum()
        for mine, theirs in zip(g, torch.autograd.grad(out, [middle, a]), strict=True):
            assert torch.allclose(mine, theirs)


def test_unknown_words_name_the_nearest() -> None:
    with pytest.raises(ArgumentError, match="'algebraic'"):
        ao.AutogradGraph(passes=["algebrac"])
    with pytest.raises(ArgumentError, match="did you mean 'exact'"):
        ao.AutogradGraph(optimize="exakt")


def test_every_word_is_an_operator_of_the_table() -> None:
    from autograd_opt.ops.table import OPS
    from autograd_opt.passes.rules import SYMBOLS
    assert set(words.TENSORS) | set(words.NUMBERS) <= set(OPS)
    assert {s for s, _ in words.TENSORS.values()} | {s for s, _ in words.NUMBERS.values()} <= set(SYMBOLS)
    assert len(RULES) > 30


# What a merge by a rule passes by may still be reached by the run itself.
def shared_with_its_leader(x):
    a = x * 2
    m = -a
    s = m - x
    return (s * 2 - a.neg() * 3).sin().sum()


def read_by_somebody_else(x):
    p = x * -2.0
    i = x * 2.0
    return (p * -i).sum() + i.sin().sum()


def read_later_and_earlier(x):
    i = x * 2.0
    q = i.exp()
    return (q * -i.neg()).sum() + (-i).sum() + (i * q).sum()


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
