"""The entry point on graphs that must be proved, and on input that must be undecided."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, ArgumentTypeError, VerificationError
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Reason, Status, Verification, assert_optimization_proved, replay, save, verify


def leaf(*shape):
    return ao.tensor(torch.randn(shape, dtype=torch.float64))


def attention(q, k, v):
    return (torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v).sum()


def attention_twice(q, k, v):
    w = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
    return (w * (torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v).tanh()).sum()


def seed_1(t1, t2, a):
    _ = t1 + t2
    d = (t1 + t2) * a
    return (t1 + t2 + d).sum()


def seed_2(a, b):
    c = 4 * a + b
    d = c * b + a
    e = c * d + b
    return (e + d * 5.5).sum()


def swish(x):
    return ((x * torch.sigmoid(x)) * (x * torch.sigmoid(x)).tanh()).sum()


def tanh_net(x, w, b):
    y = torch.tanh(x @ w + b) + torch.tanh(x @ w + b) ** 2
    return y.mean()


def kinks(a, b):
    return (a.relu() * torch.maximum(a, b) + a.relu().abs() * torch.clamp(a, -1.0, 1.0)).sum()


PROVED = {
    "seed_1": (seed_1, lambda: (leaf(3), leaf(3), leaf(3))),
    "seed_2": (seed_2, lambda: (leaf(3), leaf(3))),
    "attention": (attention, lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4))),
    "attention_twice": (attention_twice, lambda: (leaf(2, 3, 4), leaf(2, 3, 4), leaf(2, 3, 4))),
    "swish": (swish, lambda: (leaf(5),)),
    "tanh_net": (tanh_net, lambda: (leaf(2, 3), leaf(3, 4), leaf(4))),
    "kinks": (kinks, lambda: (leaf(5), leaf(5))),
}


@pytest.mark.parametrize("name", PROVED)
def test_examples_are_proved(name):
    fn, inputs = PROVED[name]
    v = assert_optimization_proved(fn, *inputs())
    assert v.exact in ("bitwise", "real")
    assert all(g.status is Status.PROVED for g in v.goals)


def test_a_module_with_cross_entropy_called_twice():
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    v = assert_optimization_proved(lambda: F.cross_entropy(net(x), y) + F.cross_entropy(net(x), y) * 2)
    assert any("torch's own derivatives are linear" in c for c in v.conditions)
    assert v.stats["merged"] > 3


def test_second_derivatives():
    x, w = leaf(3), leaf(3)
    with ao.AutogradGraph(optimize=True) as graph:
        y = (torch.tanh(x * w) * (x * w)).sum()
        (g,) = torch.autograd.grad(y, [x], create_graph=True)
        loss = (g * g).sum() + (torch.tanh(x * w) * w).sum()
        graph.verify(loss).require("proved")


def test_bitwise_is_said_only_when_it_holds():
    a, b = leaf(3), leaf(3)
    assert assert_optimization_proved(lambda a, b: (a * b + b).sum(), a, b).exact == "bitwise"
    assert assert_optimization_proved(lambda a, b: ((a * b).sin() * (a * b)).sum(), a, b).exact == "real"
    with pytest.raises(AssertionError, match="over the reals only"):
        assert_optimization_proved(lambda a, b: ((a * b).sin() * (a * b)).sum(), a, b, exact="bitwise")


def test_graph_verify_and_verify_true():
    a, b = leaf(3), leaf(3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = ((a * b).sin() * (a * b)).sum()
        assert graph.verify(loss).status is Status.PROVED
        loss.backward()
    assert a.grad is not None


def test_sympy_alone_proves_small_graphs():
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = leaf(2), leaf(2)
        loss = ((a * b + a) * (a * b + a)).sum()
        # a rewrite without certificate: (ab + a)(ab + a) is not the same node as (ab + a)^2, sympy shows it
        extra = ((a * b + a) ** 2).sum()
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}
        leader = list(range(len(nodes)))
        leader[where[id(extra.grad_fn)]] = where[id(loss.grad_fn)]
        v = verify(nodes, [extra.grad_fn], None, leader, engines=("linear", "sympy"))
        assert v.status is Status.PROVED, v
        assert v.engine == "sympy"
        assert v.scope == "these shapes"


# ----- input that must be undecided, with its reason -----
def recorded(fn, *leaves):
    graph = ao.AutogradGraph(optimize=True)
    graph.__enter__()
    out = fn(*leaves)
    return graph, out


def reason_of(make):
    graph = ao.AutogradGraph(optimize=True)
    with graph:
        return make(graph).reason


def test_a_cleared_graph():
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (leaf(2) * 2).sum()
        node = loss.grad_fn
        graph.clear()
        v = verify(graph.tape.snapshot(), [node])
    assert v.reason is Reason.RELEASED
    assert "verify before" in str(v)


def test_nothing_compared():
    def make(graph):
        a, b = leaf(2), leaf(2)
        loss, other = a.sum(), (b * 2).sum()
        return verify(
            graph.tape.snapshot(), [loss.grad_fn], [b.grad_fn or graph.tape.snapshot().index(other.grad_fn) - 2]
        )

    assert reason_of(make) in (Reason.NOTHING, Reason.MALFORMED)


@pytest.mark.parametrize(("leader", "message"), [([0], "entries"), ([0, 0, 5, 3], "before its followers")])
def test_malformed_leaders(leader, message):
    def make(graph):
        loss = (leaf(2) * leaf(2)).sum()
        v = verify(graph.tape.snapshot(), [loss.grad_fn], None, leader)
        assert message in v.message
        return v

    assert reason_of(make) is Reason.MALFORMED


def test_a_foreign_node():
    def make(graph):
        loss = (leaf(2) * 2).sum()
        nodes = graph.tape.snapshot()
        return verify(nodes[:-1], [loss.grad_fn])

    assert reason_of(make) is Reason.MALFORMED


def test_a_needed_node_pruned():
    def make(graph):
        loss = (leaf(2) * 2).sin().sum()
        nodes = graph.tape.snapshot()
        return verify(nodes, [loss.grad_fn], alive=[1, 0, 1, 1])

    assert reason_of(make) is Reason.PRUNED


def test_merged_draws_are_refuted():
    with ao.AutogradGraph() as graph:
        a = leaf(6)
        u, v = F.dropout(a, 0.5), F.dropout(a, 0.5)
        loss = (u * 2 + v).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(v.grad_fn)] = nodes.index(u.grad_fn)
        assert verify(nodes, [loss.grad_fn], None, leader).status is Status.REFUTED


def test_opaque_merges_are_effects():
    with ao.AutogradGraph() as graph:
        a = leaf(2, 2)
        u, v = torch.linalg.svdvals(a @ a), torch.linalg.svdvals(a @ a)
        loss = (u * 2 + v).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(v.grad_fn)] = nodes.index(u.grad_fn)
        found = verify(nodes, [loss.grad_fn], None, leader)
    assert found.status is Status.UNDECIDED
    assert found.reason is Reason.EFFECT


def test_the_budget_holds():
    def make(graph):
        x = leaf(2)
        for _ in range(200):
            x = (x * 1.5).sin() * (x * 1.5)
        loss = x.sum()
        return verify(
            graph.tape.snapshot(), [loss.grad_fn], budget=Budget(expansions=10, elements=100), engines=("linear",)
        )

    assert reason_of(make) is Reason.BUDGET


def test_an_engine_that_fails_is_undecided(monkeypatch):
    from autograd_opt.verification.checker import checker

    def broken(*args, **kwargs):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(checker, "check", broken)

    def make(graph):
        loss = (leaf(2) * 2).sum()
        return verify(graph.tape.snapshot(), [loss.grad_fn])

    assert reason_of(make) is Reason.FAILED


def test_unknown_engines_and_exactness_are_the_callers_mistake():
    with pytest.raises(ArgumentError, match="engines='magic'"):
        verify([], [], engines=("magic",))
    with pytest.raises(ArgumentError, match="exact"):
        verify([], [], exact="almost")


# ----- verdicts -----
def test_a_verdict_is_no_bool():
    v = Verification(Status.PROVED)
    with pytest.raises(TypeError, match="not true or false"):
        bool(v)
    with pytest.raises(VerificationError, match="undecided"):
        Verification(Status.UNDECIDED, reason=Reason.BUDGET).require("proved")
    assert v.require("proved") is v


def test_saved_verdicts_are_replayed_and_bound_to_their_graphs(tmp_path):
    a, b = leaf(2), leaf(2)
    path = tmp_path / "proof.json"
    with ao.AutogradGraph(optimize=True) as graph:
        loss = ((a * b).sin() * (a * b)).sum()
        first = save(path, graph.tape.snapshot(), [loss.grad_fn])
    assert replay(path).status is Status.PROVED
    again = Verification.from_json(path)
    assert (again.original, again.exact, again.goals) == (first.original, "real", first.goals)
    raw = json.loads(path.read_text())
    raw["recorded"]["operands"][-1] = [0]
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(raw))
    assert replay(damaged).reason is Reason.FOREIGN
    with pytest.raises(ArgumentError, match="damaged"):
        Verification.from_json("{}")
    raw["recorded"]["operands"][-1] = [10**9]
    damaged.write_text(json.dumps(raw))
    with pytest.raises(ArgumentError, match="damaged"):
        replay(damaged)


def test_the_same_structure_has_the_same_hash_and_another_one_has_not():
    def run(c):
        with ao.AutogradGraph(optimize=True) as graph:
            a = leaf(2)
            loss = ((a * c).sin() + a * c).sum()
            return verify(graph.tape.snapshot(), [loss.grad_fn])

    assert run(2.0).original == run(2.0).original
    assert run(2.0).original != run(2.5).original
    assert run(0.0).original != run(-0.0).original
    assert run(2).original != run(2.0).original


def test_counterexamples_are_as_plain_as_they_can_be():
    def text(n):
        with ao.AutogradGraph() as graph:
            x, w, b = leaf(n, n), leaf(n, n), leaf(n)
            u, v = x @ w, x @ w.t()
            loss = (u * 2 + v.sin() + b).sum()
            nodes = graph.tape.snapshot()
            leader = list(range(len(nodes)))
            leader[nodes.index(v._node)] = nodes.index(u._node)
            found = verify(nodes, [loss._node], None, leader)
        assert found.status is Status.REFUTED
        return found.counterexample, str(found.counterexample)

    point, plain = text(3)
    assert "0 in all 3x3" in plain
    assert all(len(row) == 3 for row in point.point["%0"])
    _, large = text(20)
    assert len(large) < 400
    assert "400 numbers, all in .point" in large


def test_it_prints_as_text_html_and_json():
    with ao.AutogradGraph(optimize=True) as graph:
        a = leaf(2)
        loss = (a * 2).sum()
        v = verify(graph.tape.snapshot(), [loss.grad_fn])
    assert str(v).startswith("proved: optimized = original, bit for bit")
    assert "<table>" in v._repr_html_()
    assert json.loads(v.to_json())["status"] == "proved"


# ----- results among the inputs -----
@pytest.mark.parametrize("optimize", [False, True])
def test_a_result_that_is_asked_for_keeps_a_gradient_of_its_own(optimize):
    x, y = leaf(3), leaf(3)
    with ao.AutogradGraph(optimize=optimize) as graph:
        a, b = x.sin(), x.sin()
        loss = (a * y + b * b).sum()
        for inputs in (a, b, [x, a], [a, b]):
            found = graph.verify(loss, inputs=inputs)
            assert found.status is Status.PROVED, found
        assert graph.verify(loss, inputs=a).stats["merged"] == 0
        assert graph.verify(loss, inputs=[x]).stats["merged"] == 1


# ----- what a function returns -----
@dataclass
class Output:
    loss: Any
    rest: Any = None


@pytest.mark.parametrize("wrap", [
    lambda loss: {"loss": loss},
    lambda loss: (loss.detach(), [{"a": (loss,)}]),
    lambda loss: Output(1, rest=[Output(loss)]),
    lambda loss: (loss, loss.argmax(), loss.detach(), "text", None),
    lambda loss: torch.max(loss[None], 0),
], ids=range(5))
def test_an_assertion_looks_at_all_outputs_with_gradients(wrap):
    x = leaf(3)
    v = assert_optimization_proved(lambda x: wrap((x.exp() * x.exp()).sum()), x)
    assert v.stats["merged"] == 1
    assert any(g.goal.startswith("gradient") for g in v.goals)
    with pytest.raises(AssertionError, match="undecided"):
        assert_optimization_proved(lambda x: wrap((x.exp() * x.exp()).sum()), x, exact="bitwise")


@pytest.mark.parametrize(("fn", "what"), [
    (lambda x: None, "NoneType, tensors in it: 0"), (lambda x: {"a": x.detach()}, "dict, tensors in it: 1"),
    (lambda x: (x > 1, x.argmax()), "tuple, tensors in it: 2"),
], ids=range(3))
def test_an_assertion_without_an_output_that_requires_grad_says_so(fn, what):
    with pytest.raises(ArgumentError, match=f"no tensor that requires grad .type {what}.*test_verify.py"):
        assert_optimization_proved(fn, leaf(3))


def test_an_assertion_about_no_function_says_so():
    with pytest.raises(ArgumentTypeError, match=r"fn is of type \w*Tensor: pass the function itself"):
        assert_optimization_proved(leaf(3).sum(), leaf(3))
    with pytest.raises(ArgumentTypeError, match="did you mean 'exact'"):
        assert_optimization_proved(lambda x: x.sum(), leaf(3), exakt="bitwise")


@pytest.mark.parametrize("wanted", [[0], [1], [0, 1]])
def test_a_result_that_is_asked_for_by_its_node_keeps_its_own_gradient(wanted):
    """As a run that captures it does; what stands on it merges no more than there."""
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True) as graph:
        twins = (x * 2).sin(), (x * 2).sin()
        loss = sum((t * 3 + (t + 1).exp()).sum() for t in twins) + (twins[1] ** 3).sum()
        chosen = [twins[k] for k in wanted]
        v = verify(graph.tape.snapshot(), [loss.grad_fn], [t.grad_fn for t in chosen])
        assert v.status is Status.PROVED, v
        assert v.stats["merged"] == 1                    # x * 2, below both
        assert graph.verify(loss, inputs=chosen).status is Status.PROVED
        for t, g in zip(chosen, graph.grad(loss, chosen), strict=True):
            other = 3 * twins[1].detach() ** 2 if t is twins[1] else 0
            assert torch.allclose(g, 3 + (t.detach() + 1).exp() + other)


def test_programs_that_differ_in_anything_have_different_hashes():
    hashes = set()
    for fn in (lambda x: (x * 2, x + x), lambda x: (x * 2.0, x + x), lambda x: (x * 3, x + x),
               lambda x: (x.float() * 2, x + x),
               lambda x: (x * 2, x + x.detach()), lambda x: (-x, x + x)):
        with ao.AutogradGraph() as graph:
            x = ao.tensor(torch.rand(3, dtype=torch.float64))
            a, b = fn(x)
            task = Task(graph.tape.snapshot(), [a._node, b._node], None, None, None)
            hashes.add(task.original.digest())
    assert len(hashes) == 6
