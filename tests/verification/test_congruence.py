"""Merges proved by the theorem, without sweeps: what a whole proof says of them, and nothing that it does not say."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import mutants
import pass_mutants
import pytest
import torch
from test_checker import random_program
from test_known import FAMILIES, leaf

import autograd_opt as ao
from autograd_opt.graph.node import Vjp
from autograd_opt.ops.table import OPS
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.cache.memory_cache import USUAL
from autograd_opt.verification.checker import congruence
from autograd_opt.verification.counterexample import prime_field
from autograd_opt.verification.program import adjoint
from autograd_opt.verification.program.adjoint import TRACED
from autograd_opt.verification.program.instructions import Malformed
from autograd_opt.verification.program.leaders import followed
from autograd_opt.verification.rewrites import rewrites
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verification.strategies.verifier import asked
from autograd_opt.verify import Status, verify


def key_of(task: Any) -> Any:
    return memory_cache.key_of(memory_cache.seen(task.nodes, task.roots, task.leaves), task.leader, task.alive, USUAL)


def answer(task: Any, how: Any = USUAL) -> Any:
    key = key_of(task)
    return None if key is None else congruence.answer(key, task, how)


def stepped(fn: Any, *leaves: Any) -> Any:
    """The verdict of a run."""
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        fn(*leaves).backward()
        return graph.verdicts[-1]


def merged(fn: Any, *leaves: Any, wanted: Any = None) -> Any:
    """fn returns (loss, a, b): b is merged into a, and whatever has become equal by that stays as it is."""
    nodes, (a, b), root = mutants.recorded(fn, *leaves)
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = list(range(len(nodes)))
    leader[where[id(b)]] = where[id(a)]
    return Task(nodes, [root], wanted, leader, None)


@pytest.fixture(autouse=True)
def _closed():
    rewrites.KNOWN.clear()
    yield
    mutants.close()


def program(x: Any) -> Any:
    return ((x * 2.0).sin() * x.cos() + (x * 2.0).sin()).sum()


# ----- as a whole proof -----
@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_a_whole_proof_says(seed):
    graph, loss = random_program(random.Random(seed), n=14)
    try:
        nodes = graph.tape.snapshot()
        leader = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
        task = Task(nodes, [loss.grad_fn], None, leader, None)
        found = answer(task)
        whole = verify(nodes, [loss.grad_fn], None, leader, anew=True)
        numbers = congruence.numbered(task.recorded, range(len(nodes)))
        assert (found is not None) == all(numbers[i] == numbers[to] for i, to in enumerate(leader))
        if found is None:        # a merge of unlike operations that no certificate names
            return
        assert found.status is whole.status is Status.PROVED
        assert (found.original, found.optimized) == (whole.original, whole.optimized)
        assert [g.goal for g in found.goals] == [g.goal for g in whole.goals]
        for one, other in zip(found.goals, whole.goals, strict=True):
            assert one.exact == other.exact or one.exact == "real"
        assert set(found.trust["lemmas"]) <= set(whole.trust["lemmas"])
        assert set(found.conditions) <= {*whole.conditions, *congruence.conditions((), found.exact == "bitwise")}
    finally:
        graph.__exit__(None, None, None)


def test_only_rules_of_classes_of_several_are_looked_at(monkeypatch):
    traced = []
    trace = adjoint.trace_rule
    monkeypatch.setattr(adjoint, "trace_rule", lambda v, op, *a: traced.append(op.name) or trace(v, op, *a))
    TRACED.clear()
    found = stepped(program, leaf(3))
    assert (found.status, found.engine, found.exact) == (Status.PROVED, "congruence", "real")
    assert sorted(traced) == ["mul", "sin"]
    assert len(found.original) == 64
    assert len(traced) > 2


@pytest.mark.parametrize("family", FAMILIES)
def test_families_twice(family):
    """Each program computed twice, the second time merged: proved here only where a whole proof proves it."""
    for fn in FAMILIES[family]:
        with ao.AutogradGraph(optimize=True) as graph:
            a, b = leaf(2, 3), leaf(2, 3)
            x, y = fn(a, b), fn(a, b)
            loss = (x * y).real if (x * y).is_complex() else x * y
            if loss.grad_fn is None:
                continue
            nodes = graph.tape.snapshot()
            leader = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
            found = answer(Task(nodes, [loss.grad_fn], None, leader, None))
            if found is not None:
                whole = verify(nodes, [loss.grad_fn], None, leader, anew=True)
                assert whole.status is Status.PROVED
                assert (found.original, found.optimized) == (whole.original, whole.optimized)


# ----- nothing wrong -----
@pytest.mark.parametrize("m", mutants.MUTANTS, ids=lambda m: f"{m.number}")
def test_no_wrong_merge_is_proved(m):
    task = m.make()
    found = answer(task)
    assert found is None or not task.merged


@pytest.mark.parametrize("m", pass_mutants.PASS_MUTANTS, ids=lambda m: f"{m.number}")
def test_no_wrong_optimizer_is_proved(m, monkeypatch):
    """The same question, as a run asks it."""
    answers = []

    def both(task: Any, how: Any) -> Any:
        try:
            made = task()
        except Malformed:
            return asked(task, how)
        answers.append(answer(made))
        return asked(lambda: made, how)

    monkeypatch.setattr("autograd_opt.verification.strategies.verifier.asked", both)
    assert m.run().status is not Status.PROVED
    assert answers == [None] * len(answers)


def campaign(programs: int, edits: int, seed: int) -> tuple[int, int, int]:
    """Leaders changed at random: how many were harmful, how many of those proved, how many others proved."""
    rng = random.Random(seed)
    harmful = wrong = right = 0
    for _ in range(programs):
        graph, loss = random_program(rng, n=rng.randint(4, 14))
        try:
            nodes = graph.tape.snapshot()
            honest = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
            for _ in range(edits):
                leader = list(honest)
                for _ in range(rng.randint(1, 3)):
                    j = rng.randrange(1, len(nodes))
                    fitting = [i for i in range(j + 1) if (nodes[i].shape, nodes[i].dtype)
                               == (nodes[j].shape, nodes[j].dtype)]
                    leader[j] = rng.choice(fitting)
                task = Task(nodes, [loss.grad_fn], None, leader, None)
                found = answer(task)
                differs = prime_field.compare(task, task.compared, seed=rng.randrange(10**6)).equal is False
                harmful += differs
                wrong += differs and found is not None
                right += not differs and found is not None
        finally:
            graph.__exit__(None, None, None)
    return harmful, wrong, right


def test_no_harmful_leaders_are_proved():
    harmful, wrong, right = campaign(40, 15, 1)
    assert (wrong, harmful > 200, right > 40) == (0, True, True)


@pytest.mark.long
def test_no_harmful_leaders_of_many_are_proved():
    harmful, wrong, _ = campaign(1500, 20, 2)
    assert wrong == 0
    assert harmful > 10_000


# ----- each premise -----
def twice(f: Any) -> Any:
    """A loss that reads f(x) twice, differently."""
    def fn(x: Any) -> Any:
        u, v = f(x), f(x)
        return (u.exp() * (v * 0.5).exp()).sum(), u, v

    return fn


def test_the_merge_itself_is_proved():
    assert answer(merged(twice(torch.sin), leaf(3))).status is Status.PROVED


@pytest.mark.parametrize("rule", [lambda g, x: g * g, lambda g, x: g * x.cos() + 1.0, lambda g, x: g.abs(),
                                  lambda g, x: x.cos(), lambda g, x: g.exp() * x, lambda g, x: torch.where(g > 0, g, x),
                                  lambda g, x: torch.where(g > 0, g, 0.5 * g), lambda g, x: torch.stack([g, x]).sum(0),
                                  lambda g, x: torch.ones_like(g), lambda g, x: g + torch.rand_like(g),
                                  lambda g, x: x / g, lambda g, x: g.add_(1)])
def test_a_rule_that_is_not_additive_is_left_to_a_whole_proof(rule):
    rules = OPS["sin"].vjps
    sin = rules[0]
    rules[0] = Vjp(rule, (16,), (), sin.needs)
    try:
        premise()
    finally:
        rules[0] = sin


def premise() -> None:
    assert answer(merged(twice(torch.sin), leaf(3))) is None
    assert answer(merged(twice(torch.cos), leaf(3))) is not None        # and where it is not read, it does not matter
    alone = merged(lambda x: ((u := (y := x.sin()).cos()).exp().sum() + (v := y.cos()).sum(), u, v), leaf(3))
    assert answer(alone) is not None


def test_commuted_operands_get_the_same():
    def fn(x: Any, y: Any) -> Any:
        u, v = x * y, y * x
        return (u.exp() * (v * 0.5).exp()).sum(), u, v

    assert answer(merged(fn, leaf(3), leaf(3))) is not None
    assert answer(merged(fn, leaf(2, 3), leaf(1, 3))) is not None
    mul = OPS["mul"]
    other = Vjp(lambda g, x: g * x * 2.0, mul.vjps[1].codes, mul.vjps[1].attributes, mul.vjps[1].needs)
    before = list(mul.vjps)
    mul.vjps[1] = other
    try:
        assert answer(merged(fn, leaf(3), leaf(3))) is None
    finally:
        mul.vjps[:] = before


def test_what_sees_a_cotangent_keeps_its_own():
    def hooked(x: Any) -> Any:
        u, v = x.sin(), x.sin()
        w = x.sin()
        w.register_hook(lambda g: g * g)                # a third, which is not merged
        return (u.exp() * v * w.cos()).sum(), u, v

    assert answer(merged(hooked, leaf(3))) is not None

    def seen(x: Any) -> Any:
        u, v = x.sin(), x.sin()
        v.register_hook(lambda g: g * g)                # one that is merged
        return (u.exp() * v).sum(), u, v

    assert answer(merged(seen, leaf(3))) is None

    def reads(x: Any) -> Any:
        u, w = x.sin(), x.sin()
        w.register_hook(lambda g: g * g)                # not merged, but what reads it is
        return (u.exp() * w.exp()).sum(), u.exp(), w.exp()

    assert answer(merged(reads, leaf(3))) is None

    def behind(x: Any) -> Any:
        u, v = x.sin(), x.sin()
        y = u.exp() * v
        y.register_hook(lambda g: g * g)
        return y.sum(), u, v

    assert answer(merged(behind, leaf(3))) is not None


def test_a_wanted_intermediate_is_alone():
    x = leaf(3)
    nodes, (u, v), root = mutants.recorded(twice(torch.sin), x)
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = list(range(len(nodes)))
    same = list(leader)
    leader[where[id(v)]] = where[id(u)]
    for node in (u, v):
        assert answer(Task(nodes, [root], [0, where[id(node)]], leader, None)) is None
        assert answer(Task(nodes, [root], [0, where[id(node)]], same, None)) is None
    assert answer(Task(nodes, [root], [0, len(nodes) - 1], leader, None)) is not None


def test_nothing_lives_that_did_not_before():
    """A node that a rewrite has replaced has a number that is not its operation's."""
    nodes, (u, v), root = mutants.recorded(twice(torch.sin), leaf(3))
    task = Task(nodes, [root], None, None, None)
    where = {id(n): i for i, n in enumerate(nodes)}
    same = list(range(len(nodes)))
    before = list(same)
    before[where[id(v)]] = where[id(u)]
    numbers = congruence.numbered(task.recorded, before)
    assert congruence.preserved(task, numbers, before, before) is not None
    assert congruence.preserved(task, numbers, before, same) is None


def test_what_is_dropped_and_needed_is_not_proved():
    nodes, _, root = mutants.recorded(twice(torch.sin), leaf(3))
    n = len(nodes)
    assert answer(Task(nodes, [root], None, list(range(n)), [1] * n)) is not None
    assert answer(Task(nodes, [root], None, list(range(n)), [1, 0] + [1] * (n - 2))) is None


def test_several_outputs_are_left_to_a_whole_proof():
    def fn(x: Any) -> Any:
        u, v = x.split(1)[0], x.split(1)[0]
        return (u.exp() * (v * 0.5).exp()).sum()

    assert stepped(fn, leaf(2, 3)).status is Status.PROVED


def test_only_what_is_asked_for():
    task = merged(twice(torch.sin), leaf(3))
    assert answer(task, how=USUAL._replace(exact="bitwise")) is None
    assert answer(task, how=USUAL._replace(engines=("structural",))) is None


def test_the_hashes_are_those_of_the_rules_of_then():
    x = leaf(3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = program(x)
        whole = graph.verify(loss, anew=True)
        loss.backward()
    found = graph.verdicts[-1]
    sin = OPS["sin"].vjps[0]
    OPS["sin"].vjps[0] = Vjp(lambda g, x: g * x, sin.codes, sin.attributes, sin.needs)
    try:
        TRACED.clear()
        assert (found.original, found.optimized) == (whole.original, whole.optimized)
    finally:
        OPS["sin"].vjps[0] = sin
    assert replace(found).original == whole.original


# ----- nodes that are their operands -----
VIEWS_AND_COPIES = {
    "view": lambda x: x.view(x.shape), "reshape": lambda x: x.reshape(x.shape), "contiguous": lambda x: x.contiguous(),
    "expand": lambda x: x.expand(x.shape), "permute": lambda x: x.permute(0), "times one": lambda x: x * 1.0,
}


@pytest.mark.parametrize("name", VIEWS_AND_COPIES)
def test_a_node_that_is_its_operand_is_merged_into_it(name):
    def fn(x: Any) -> Any:
        y = x.sin()
        z = VIEWS_AND_COPIES[name](y)
        return (z * 2.0).sum(), y, z

    found = answer(merged(fn, leaf(3)))
    assert (found.status, found.engine, found.exact) == (Status.PROVED, "congruence", "bitwise")


def test_sums_that_meet_at_an_operand_may_round_differently():
    def fn(x: Any) -> Any:
        y = x.sin()
        z = y.view(3)
        return ((z * 2.0).exp() + z.cos() + y.tan()).sum(), y, z

    assert answer(merged(fn, leaf(3))).exact == "real"
    assert verify(*[getattr(merged(fn, leaf(3)), k) for k in ("nodes", "roots", "leaves", "leader")]).exact == "real"


def test_a_node_without_a_gradient_is_not_its_operand():
    def fn(x: Any) -> Any:
        y = x.sin()
        with torch.no_grad():
            z = y.view(3)
        return (z * x).sum(), y, z

    task = merged(fn, leaf(3))
    assert answer(task) is None
    assert asked(lambda: task, USUAL).status is not Status.PROVED


def test_a_hook_on_a_node_that_is_its_operand_keeps_it():
    def fn(x: Any) -> Any:
        y = x.sin()
        z = y.view(3)
        z.register_hook(lambda g: g * 2)
        return (y.exp() + z).sum(), y, z

    task = merged(fn, leaf(3))
    assert answer(task) is None
    assert asked(lambda: task, USUAL).status is not Status.PROVED


def test_a_scalar_that_is_expanded_to_itself_is_its_operand():
    def fn(x: Any) -> Any:
        y = x.sum()
        z = y.expand(())
        return z.exp() + y.sin(), y, z

    assert answer(merged(fn, leaf(3))).status is Status.PROVED
