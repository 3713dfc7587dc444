"""Merges of unlike operations, as a pass of the user's may make them: proved one by one."""

from __future__ import annotations

import time

import pytest
import torch

import autograd_opt as ao
from autograd_opt.verification.program.leaders import followed
from autograd_opt.verification.rewrites import local, rewrites
from autograd_opt.verify import Budget, Reason, Status, verify


@pytest.fixture(autouse=True)
def _nothing_known():
    rewrites.KNOWN.clear()


def leaf(*shape):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


def verdict(fn, *leaves, **options):
    """fn returns (loss, node, replacement); `node` takes the value of `replacement`."""
    with ao.AutogradGraph(optimize=True) as graph:
        loss, node, replacement = fn(*leaves)
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}

        def position(t):
            handle = getattr(t, "_node", None)
            return where[id(handle)] if handle is not None else next(i for i, n in enumerate(nodes) if n.tensor is t)

        leader = followed(nodes, where)
        leader[position(node)] = position(replacement)
        return verify(nodes, [loss.grad_fn], None, leader, **options)


def both(u, v):
    """A loss that reads two values differently."""
    return (u.exp() * (v * 0.5).exp()).sum()


EVERYWHERE = {
    "transpose twice": lambda x: (both(x, y := x.t().t()), y, x),
    "negate twice": lambda x: (both(x, y := x.neg().neg()), y, x),
    "sums in another order": lambda x: (both(v := x.sin() + (x + 2), u := (x.sin() + x) + 2), u, v),
    "a common factor": lambda x: (both(v := x * (x.sin() + x.cos()), u := x * x.sin() + x * x.cos()), u, v),
    "sum before matmul": lambda x: (both(v := x @ (x.t() + x.sin().t()), u := x @ x.t() + x @ x.sin().t()), u, v),
    "sum before sum": lambda x: (both(v := (x + x.sin()).sum(0), u := x.sum(0) + x.sin().sum(0)), u, v),
    "relu of twice": lambda x: (both(v := x.relu() * 2, u := (x * 2).relu()), u, v),
    "two factors": lambda x: (both(v := x * 6, u := x * 2 * 3), u, v),
    "sigmoid by tanh": lambda x: (both(v := x.sigmoid() * 2 - 1, u := (x * 0.5).tanh()), u, v),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_proved_for_all_sizes(name):
    v = verdict(EVERYWHERE[name], leaf(3, 3))
    assert v.status is Status.PROVED, v
    assert v.engine in ("linear", "rewrite")
    assert v.scope == "all sizes with these broadcasts and branches"
    assert v.culprit is None


def test_a_proof_that_another_thread_finds_meanwhile(monkeypatch):
    """Asked once more, because the answer has come between the look at what is known and the question."""
    asked, ask = [], rewrites.ask
    monkeypatch.setattr(rewrites, "ask", lambda *args: (asked.append(args), ask(*args))[1])
    assert verdict(EVERYWHERE["sigmoid by tanh"], leaf(3)).status is Status.PROVED
    answer, late = ask(*asked[0])
    assert answer.equal
    assert late == ""


def test_large_tensors_cost_no_more_than_small_ones():
    v = verdict(EVERYWHERE["sum before matmul"], leaf(300, 200))
    assert v.status is Status.PROVED


def test_views_are_proved_for_these_shapes():
    v = verdict(lambda x: (both(u := x.reshape(2, 6), w := x.view(12).view(2, 6)), w, u), leaf(3, 4))
    assert (v.status, v.scope) == (Status.PROVED, "these shapes")


def test_one_after_the_other():
    """The second rewrite reads what the first has replaced."""
    with ao.AutogradGraph() as graph:
        x = leaf(2, 3)
        y = x.t().t()
        z = y.neg().neg()
        loss = both(z.exp(), x)
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}
        i, j = where[id(y._node)], where[id(z._node)]
        leader = list(range(len(nodes)))
        leader[i] = leader[j] = 0
        v = verify(nodes, [loss.grad_fn], None, leader)
    assert v.status is Status.PROVED
    assert v.stats["rewrites proved"] == 2


def test_a_proof_is_remembered_up_to_renaming(monkeypatch):
    fn = EVERYWHERE["transpose twice"]
    assert verdict(fn, leaf(3, 4)).status is Status.PROVED
    monkeypatch.setattr(rewrites, "ask", lambda *a: pytest.fail("asked again"))
    assert verdict(lambda x: fn(x.exp()), leaf(3, 4)).status is Status.PROVED


WRONG = {
    "sum(0) for sum(1)": lambda x: (both(u := x.sum(0), v := x.sum(1)), v, u),
    "A B for B A": lambda x: (both(u := x @ x.sin(), v := x.sin() @ x), v, u),
    "another factor": lambda x: (both(u := x * 6, v := x * 2 * 2), v, u),
    "a sign": lambda x: (both(u := x - x.sin(), v := x.sin() - x), v, u),
    "square of a sum": lambda x: (both(u := x * x + 1, v := (x + 1) * (x + 1)), v, u),
    "0.1 + 0.2": lambda x: (both(u := x * 0.3, v := x * 0.1 + x * 0.2), v, u),
    "maximum for relu": lambda x: (both(u := torch.maximum(x, x * 0), v := x.relu()), v, u),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rewrites_are_refuted(name):
    v = verdict(WRONG[name], leaf(3, 3))
    assert v.status is Status.REFUTED, v
    assert "merged into" in v.culprit


CONDITIONAL = {
    "exp of log": (lambda x: (both(x, v := x.log().exp()), v, x), "exp, log"),
    "log of exp": (lambda x: (both(x, v := x.exp().log()), v, x), "exp, log"),
    "square of hypot": (lambda x: (both(u := x * x + x * x, v := torch.hypot(x, x).square()), v, u), "hypot"),
    "x / x": (lambda x: (both(u := x * 0 + 1, v := x / x), v, u), "div"),
    "a rounding cast": (lambda x: (both(x, v := x.float().double()), v, x), "a cast to float32, a cast to float64"),
    "-0.0": (lambda x: (both(u := x * 0.0, v := x * -0.0), v, u), "a zero with its sign"),
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_what_one_side_only_computes_is_a_condition(name):
    fn, what = CONDITIONAL[name]
    v = verdict(fn, leaf(2, 2))
    assert v.status is Status.UNDECIDED
    assert v.reason is Reason.CONDITION, v
    assert v.message == f"defined and finite: {what}"
    v = verdict(fn, leaf(2, 2), assume=(v.message,))
    assert v.status is Status.PROVED, v
    assert f"defined and finite: {what}" in v.conditions


def hooked(x):
    y = x.t()
    y.register_hook(lambda g: g * 2)
    z = y.t()
    return both(x, z), z, x


def retained(x):
    y = x.t()
    y.retain_grad()
    z = y.t()
    return both(x, z), z, x


def written(x):
    y = x * 1.0
    u = y * 2
    y.add_(1)
    v = y * 2
    return both(u, v), v, u


@pytest.mark.parametrize("fn", [hooked, retained, written])
def test_what_a_rewrite_must_not_pass_over(fn):
    assert verdict(fn, leaf(2, 2)).status is not Status.PROVED


def test_an_intermediate_whose_gradient_is_wanted():
    with ao.AutogradGraph() as graph:
        x = leaf(2, 3)
        y = x.t()
        z = y.t()
        loss = both(x, z)
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}
        leader = list(range(len(nodes)))
        leader[where[id(z._node)]] = 0
        assert verify(nodes, [loss.grad_fn], [0], leader).status is Status.PROVED
        wanted = verify(nodes, [loss.grad_fn], [0, where[id(y._node)]], leader)
    assert wanted.status is not Status.PROVED


def test_a_simplifier_that_hangs_is_ended(monkeypatch):
    def hang(*args):
        while True:
            pass

    monkeypatch.setattr(local, "compare", hang)
    start = time.monotonic()
    budget = Budget(sympy_seconds=0.5)
    v = verdict(EVERYWHERE["a common factor"], leaf(3, 3), budget=budget, engines=("linear", "rewrite"))
    assert time.monotonic() - start < 60
    assert v.reason is Reason.TIMEOUT
    assert "no answer" in v.message
