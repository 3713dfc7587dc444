"""Whatever is wrong with the input: a stated reason, and what to do about it."""

from __future__ import annotations

import json
import time

import pytest
import sympy
import torch

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, ArgumentTypeError
from autograd_opt.verification.result.verdict import REMEDY
from autograd_opt.verification.strategies import subprocess_limit, sympy_engine, verifier
from autograd_opt.verification.strategies.subprocess_limit import Late, results
from autograd_opt.verify import Budget, Reason, Status, Verification, replay, save, verify


def leaf(*shape):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


def merged(a, b, nodes):
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = list(range(len(nodes)))
    leader[where[id(b._node)]] = where[id(a._node)]
    return leader


def says(v, reason, *words):
    assert v.status is Status.UNDECIDED
    assert v.reason is reason, v
    assert "what to do" in str(v)
    for word in words:
        assert word in str(v), (word, str(v))


def test_every_reason_has_a_remedy():
    assert set(REMEDY) == set(Reason)


def test_a_graph_that_was_cleared():
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (leaf(2) * 2).sum()
        graph.clear()
        says(verify(graph.tape.snapshot(), [loss.grad_fn]), Reason.RELEASED, "cleared", "verify before")


def test_a_graph_whose_values_backward_has_freed():
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(2)
        loss = torch.addcmul(x, x.sin(), x.sin(), value=2.0).sum()
        loss.backward()
        v = verify(graph.tape.snapshot(), [loss.grad_fn])
    assert v.status in (Status.PROVED, Status.UNDECIDED)
    assert v.status is Status.PROVED or v.reason is not None


def test_outputs_without_gradient():
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(2)
        out = (x > 1).sum()
        loss = (x * 2).sum()
        nodes = graph.tape.snapshot()
        found = [n for n in nodes if not n.requires_grad]
        says(verify(nodes, found[-1:]), Reason.NOTHING, "requires grad")
        says(verify(nodes, []), Reason.NOTHING)
        del out, loss


def test_operators_without_a_meaning():
    """A wrong merge behind an operator that nothing here can evaluate."""
    with ao.AutogradGraph() as graph:
        x = leaf(3, 3)
        u, v = x.sin(), x.cos()
        loss = (torch.linalg.svdvals(u) * torch.linalg.svdvals(v)).sum()
        nodes = graph.tape.snapshot()
        found = verify(nodes, [loss.grad_fn], None, merged(u, v, nodes), budget=Budget(seconds=3, sympy_seconds=3))
    says(found, Reason.UNSUPPORTED, "meaning", "merged into")


def test_shapes_too_large_for_explicit_symbols():
    """A wrong merge that only a kernel's arrays could show, at a size that no engine spells out."""
    with ao.AutogradGraph() as graph:
        x = leaf(400, 400)
        u, v = x @ x, x @ x.t()
        loss = (u.tanh() * v).sum()
        nodes = graph.tape.snapshot()
        budget = Budget(elements=1000, sympy_operations=100, seconds=3, sympy_seconds=3)
        start = time.monotonic()
        found = verify(nodes, [loss.grad_fn], None, merged(u, v, nodes), budget=budget)
    assert time.monotonic() - start < 30
    says(found, Reason.TOO_LARGE, "scalar operations", "smaller")


def test_a_certificate_of_another_graph(tmp_path):
    def saved(name, factor):
        with ao.AutogradGraph(optimize=True) as graph:
            x = leaf(3)
            loss = ((x * factor).sin() * (x * factor)).sum()
            return save(tmp_path / name, graph.tape.snapshot(), [loss.grad_fn])

    first, second = saved("a.json", 2.0), saved("b.json", 3.0)
    assert first.original != second.original
    assert replay(tmp_path / "a.json", about=first.original).status is Status.PROVED
    says(replay(tmp_path / "b.json", about=first.original), Reason.FOREIGN, "another graph", "anew")
    raw = json.loads((tmp_path / "a.json").read_text())
    raw["recorded"] = json.loads((tmp_path / "b.json").read_text())["recorded"]
    (tmp_path / "mixed.json").write_text(json.dumps(raw))
    says(replay(tmp_path / "mixed.json"), Reason.FOREIGN, "anew")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 2, "status": "maybe"}'])
def test_a_damaged_file(tmp_path, text):
    path = tmp_path / "proof.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="verify the graph anew"):
        replay(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="there is no file"):
        replay(tmp_path / "nothing.json")


def test_a_verification_without_its_graph():
    with pytest.raises(ArgumentError, match="without its graph"):
        replay(Verification(Status.PROVED))


# ----- limits that hold -----
def test_the_checker_looks_at_the_clock_however_long_its_sums_are():
    """Many merged twins, one of them wrong, above a long chain: each step handles as many terms as there are twins."""
    with ao.AutogradGraph() as graph:
        y = leaf(2)
        for _ in range(400):
            y = -(y * 0.5)
        twins = [y.sin() for _ in range(1500)]
        loss = sum(t * float(k + 1) for k, t in enumerate(twins)).sum() + (y.cos() * 3).sum()
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}
        leader = list(range(len(nodes)))
        for t in twins[1:]:
            leader[where[id(t._node)]] = where[id(twins[0]._node)]
        cosine = next(i for i, n in enumerate(nodes) if n.op.name == "cos")
        leader[cosine] = where[id(twins[0]._node)]
        start = time.thread_time()
        v = verify(nodes, [loss._node], None, leader, engines=("linear",), budget=Budget(seconds=0.05))
    assert v.reason is Reason.BUDGET, v
    assert "seconds" in str(v)
    assert time.thread_time() - start < 10


def forever(*args, **kwargs):
    while True:
        pass


def test_a_child_that_hangs_is_ended():
    start = time.monotonic()
    with pytest.raises(Late, match="no answer in"):
        list(results(forever, [1], 0.3))
    assert time.monotonic() - start < 10


def test_a_child_that_dies_or_fails_is_reported():
    with pytest.raises(Late, match="ended without an answer"):
        list(results(lambda _: __import__("os")._exit(3), [1], 20))
    with pytest.raises(Late, match="ZeroDivisionError"):
        list(results(lambda n: 1 / n, [0], 20))
    assert list(results(lambda n: n + 1, [1, 2], 20)) == [2, 3]


@pytest.mark.parametrize("name", ["simplify", "expand", "together"])
def test_a_simplifier_that_hangs_is_undecided_in_time(monkeypatch, name):
    monkeypatch.setattr(sympy, name, forever)
    with ao.AutogradGraph() as graph:
        x = leaf(2)
        u, v = x.sin(), x.cos()
        loss = (u * 2 + v * x).sum()
        nodes = graph.tape.snapshot()
        start = time.monotonic()
        found = verify(nodes, [loss.grad_fn], None, merged(u, v, nodes),
                       budget=Budget(seconds=2, sympy_seconds=0.5), engines=("linear", "rewrite", "sympy"))
    assert time.monotonic() - start < 30
    assert found.status is Status.UNDECIDED
    assert found.reason is Reason.TIMEOUT, found
    assert "no answer" in str(found)


def test_every_call_of_sympy_on_a_users_graph_has_a_limit():
    """The engines that meet a graph reach sympy through `limited`, or count operations."""
    import inspect

    from autograd_opt.verification.rewrites import rewrites
    from autograd_opt.verification.strategies import expressions

    assert "results(" in inspect.getsource(sympy_engine.compare)
    assert "results(" in inspect.getsource(rewrites.ask)
    assert "budget=limit" in inspect.getsource(expressions.expression)
    assert "kill()" in inspect.getsource(subprocess_limit.results)


# ----- options -----
@pytest.mark.parametrize(("option", "value", "error", "message"), [
    ("engines", None, ArgumentTypeError, "engines=None: choose a sequence of words"),
    ("engines", 3, ArgumentTypeError, "engines=3: choose a sequence of words"),
    ("engines", [3], ArgumentError, "engines=3: choose"),
    ("engines", "linear", ArgumentTypeError, "is text"),
    ("engines", [], ArgumentError, "engines=.*: name at least one of 'structural'"),
    ("engines", ["lin"], ArgumentError, "did you mean 'linear'"),
    ("budget", 5, ArgumentTypeError, "choose a Budget"),
    ("assume", "divisors", ArgumentTypeError, "is text"),
    ("assume", 3, ArgumentTypeError, "assume=3: choose a sequence of words"),
    ("assume", [3], ArgumentTypeError, "choose a sequence of words"),
    ("seed", "a", ArgumentTypeError, "choose a whole number"),
    ("seed", 1.5, ArgumentTypeError, "choose a whole number"),
    ("seed", -1, ArgumentError, "choose a whole number"),
    ("anew", "yes", ArgumentTypeError, "choose True or False"),
    ("save", 3, ArgumentTypeError, "save=3 is of type int: choose text or a pathlib.Path"),
    ("exact", "bit", ArgumentError, "did you mean 'bitwise'"),
])
@pytest.mark.parametrize("optimize", [False, True])
def test_options_of_a_wrong_type_are_refused_before_anything_is_proved(optimize, option, value, error, message):
    with ao.AutogradGraph(optimize=optimize) as graph:
        x = leaf(2)
        loss = (x.sin() * x.sin()).sum()
        with pytest.raises(error, match=rf"{message}.*test_bad_input"):
            graph.verify(loss, **{option: value})
        assert graph.verify(loss).status is Status.PROVED


def test_nothing_is_proved_for_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(2)
        loss = (x.sin() * x.sin()).sum()
        monkeypatch.setattr(verifier, "decide", None)
        with pytest.raises(ArgumentError, match=r"save=.*there is no folder .*gone'; make it first"):
            graph.verify(loss, save=tmp_path / "gone" / "v.json")
        with pytest.raises(ArgumentError, match=r"save=.* is a folder: name a file in it"):
            graph.verify(loss, save=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArgumentError, match=r"path=.*there is no folder"):
        Verification(Status.UNDECIDED).to_json(tmp_path / "gone" / "v.json")


@pytest.mark.parametrize("value", [-1, float("nan"), "1"])
def test_a_budget_that_is_none_is_shown_where_it_was_made(value):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=r"seconds=.*at .*test_bad_input.py:\d+\]"):
        Budget(seconds=value)


@pytest.mark.parametrize(("change", "words"), [
    ({"leader": "abcde"}, "leader is of type str"), ({"leader": [0, 1.7, 1, 3, 4]}, "leader is no sequence of whole"),
    ({"leader": 3}, "leader is of type int"), ({"alive": "x"}, "alive is of type str"),
    ({"leaves": 3}, "leaves is of type int"), ({"roots": 3}, "roots is of type int"),
    ({"roots": "b"}, "roots is of type"),
])
def test_arguments_of_a_wrong_type_are_malformed_and_no_failure(change, words):
    with ao.AutogradGraph() as graph:
        x = ao.tensor([1.0, 2.0])
        loss = (x.sin() * x.sin()).sum()
        given = {"nodes": graph.tape.snapshot(), "roots": [loss.grad_fn]}
        assert verify(**given, leader=[0, 1, 1, 3, 4]).status is Status.PROVED
        says(verify(**{**given, **change}), Reason.MALFORMED, words)
        says(verify(**{**given, "roots": loss.grad_fn}), Reason.MALFORMED,
             "roots is of type SumBackward0, not a sequence")
        with pytest.raises(ArgumentTypeError, match=r"nodes is of type NoneType: pass the list"):
            verify(**{**given, "nodes": None})
