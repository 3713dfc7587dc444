"""Runs in which nothing is merged: proved without a rule, by the verdict that a whole proof gives, and by none else."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from dataclasses import replace
from typing import Any

import mutants
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_known import FAMILIES, leaf

import autograd_opt as ao
from autograd_opt.graph.node import Vjp
from autograd_opt.ops.table import OPS
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.checker import checker, unchanged
from autograd_opt.verification.program import adjoint, reading
from autograd_opt.verification.program.adjoint import TRACED
from autograd_opt.verify import Reason, Status, verify


def run(fn: Any, *leaves: Any) -> Any:
    """The verdict of a run, and the one that a whole proof gives."""
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = fn(*leaves)
        loss = loss.real if loss.is_complex() else loss
        anew = verify(graph.tape.snapshot(), [loss.grad_fn], leader=range(len(graph)), anew=True)
        memory_cache.forget()
        loss.backward()
    return graph.verdicts[-1], anew


def program(x: Any) -> Any:
    return ((x * 2.0).sin() * x).sum()


def test_no_rule_is_traced(proofs, monkeypatch):
    monkeypatch.setattr(adjoint, "trace_rule", lambda *a: pytest.fail("a rule is traced"))
    TRACED.clear()
    x = leaf(3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        program(x).backward()
    assert graph.verdicts[-1].require().stats["as written"]
    assert not proofs


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_verdict_of_a_whole_proof(family):
    for fn in FAMILIES[family]:
        found, anew = run(fn, leaf(2, 3), leaf(2, 3))
        if found.stats["merged"] == 0:
            assert found.stats["as written"]
            assert replace(found, stats={}) == replace(anew, stats={})


def test_leaves_outputs_and_intermediates_are_those_of_the_run():
    a, b = leaf(3), leaf(3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        c = a * b
        loss = (c.sin() + a).sum()
        anew = verify(graph.tape.snapshot(), [loss.grad_fn], [0, 1, 2], range(len(graph)), anew=True)
        memory_cache.forget()
        torch.autograd.grad(loss, [c])
    (found,) = graph.verdicts
    assert [g.goal for g in found.goals] == ["gradient of %0", "gradient of %1", "gradient of %2", "value of %5"]
    assert replace(found, stats={}) == replace(anew, stats={})


def test_the_hash_is_that_of_the_rules_of_then():
    first, anew = run(program, leaf(3))
    rule = OPS["sin"].vjps[0]
    OPS["sin"].vjps[0] = Vjp(lambda g, x: g * x, rule.codes, rule.attributes, rule.needs)
    try:
        changed, changed_anew = run(program, leaf(3))
        assert first.original == anew.original
        assert changed.original == changed_anew.original != anew.original
    finally:
        OPS["sin"].vjps[0] = rule


def test_the_hash_is_that_of_the_default_dtype_of_then():
    first, anew = run(lambda x: (x * 2).sin().mean(), leaf(3))
    torch.set_default_dtype(torch.float64)
    try:
        assert first.original == anew.original
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_verdict_is_copied_and_saved_with_its_hash():
    for use in (copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v)), replace,
                lambda v: type(v).from_json(v.to_json())):
        memory_cache.forget()
        found, anew = run(program, leaf(3))
        assert use(found).original == anew.original
    found, anew = run(program, leaf(3))
    assert json.loads(found.to_json())["optimized"] == anew.original
    assert repr(found).count(anew.original) == 2


def test_a_verdict_holds_no_tensor():
    x = leaf(3)
    y = torch.full((3,), 2.0, dtype=torch.float64)
    seen = [weakref.ref(x), weakref.ref(y)]
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        torch.where(y > 1, x, 0.5).mul(y).sum().backward()
    found = graph.verdicts[-1]
    assert found.stats["as written"]
    del x, y, graph
    gc.collect()
    assert [s() for s in seen] == [None, None]
    assert len(found.original) == 64


def test_it_weighs_more_than_a_row_of_what_is_known():
    before, x = memory_cache.PROOFS.nodes, leaf(3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        program(x).backward()
        assert memory_cache.PROOFS.nodes == before + 3 * len(graph)


# ----- what is not seen without a proof -----
def key_of(task: Any, leader: Any, alive: Any = None) -> Any:
    seen = memory_cache.seen(task.nodes, task.roots, task.leaves)
    return memory_cache.key_of(seen, leader, alive, memory_cache.USUAL)


@pytest.mark.parametrize("m", mutants.MUTANTS, ids=lambda m: f"{m.number}")
def test_no_wrong_merge_is_seen_as_none(m):
    try:
        task = m.make()
        nodes, same = task.nodes, list(range(len(task.nodes)))
        roots, leaves = [nodes[r] for r in task.roots], task.leaves

        def answer(*decided: Any) -> Any:
            key = key_of(task, *decided)
            assert key is not None
            return unchanged.answer(key, nodes, roots, leaves)

        if task.leader != same:
            assert answer(task.leader) is None
        assert answer(None) is None
        assert answer(same[:-1]) is None
        assert answer(same, [1] * (len(same) - 1) + [0]) is None
        assert unchanged.answer(None, nodes, roots, leaves) is None
        found = answer(np.array(same))
        assert found is None or found.status is Status.PROVED
    finally:
        mutants.close()


def test_where_no_gradient_is_found_a_proof_says_so(proofs, monkeypatch):
    def joint(x: Any) -> Any:
        return F.conv1d(x, torch.ones(1, 1, 1, dtype=torch.float64))

    x = leaf(1, 1, 1)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        joint(x).backward()       # a rule for all operands may leave some out: its trace tells which
    assert graph.verdicts[-1].status is Status.PROVED
    assert graph.verdicts[-1].stats["as written"]
    assert len(proofs) == 0
    memory_cache.forget()
    monkeypatch.setattr(unchanged.Joint, "operands", lambda *_: ())
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        joint(x).backward()
    assert len(proofs) == 1
    with ao.AutogradGraph(optimize=True) as graph:
        loss = program(leaf(3))
        nodes, same = graph.tape.snapshot(), range(len(graph))
        key = memory_cache.key_of(memory_cache.seen(nodes, [loss.grad_fn], []), same, None, memory_cache.USUAL)
        assert unchanged.answer(key, nodes, [loss.grad_fn], []) is None


def test_what_fails_is_left_to_a_proof(monkeypatch, proofs):
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(unchanged, "kept", broken)
    assert run(program, leaf(3))[0].status is Status.PROVED
    assert len(proofs) == 2
    monkeypatch.setattr(checker, "check", broken)
    memory_cache.forget()
    found, _ = run(program, leaf(3))
    assert (found.status, found.reason) == (Status.UNDECIDED, Reason.FAILED)


class Node:
    op, operands, shape, dtype, device = OPS["sum"], (), (), None, None
    is_leaf, requires_grad, hooks = False, True, None

    def __init__(self, **attributes: Any):
        self.attributes = attributes


def test_what_might_change_is_read_at_once():
    dims = [0, [1, 2]]
    rows = reading.kept([Node(dim=dims, x=slice(1))])
    before = reading.encode(dims)
    dims[1].append(3)
    (found,) = reading.restored(rows)
    assert reading.encode(found.attributes["dim"]) == before
    for changing in ({}, [set()], slice([1])):
        with pytest.raises(TypeError):
            reading.kept([Node(dim=changing)])


@pytest.mark.parametrize("merges", [False, True])
def test_what_a_run_has_released_may_be_dropped_by_the_next(merges):
    """A loss of more than two operands, some of them absent: what stood there is read from what the node saved."""
    w, x = leaf(3), torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        for k in range(3):
            y = x * w
            loss = torch.nn.functional.binary_cross_entropy_with_logits(y, torch.ones_like(y))
            if merges:
                loss = loss + (y + k).sin().sum() * (y + k).sin().sum()
            loss.backward()
            with torch.no_grad():
                w -= 0.1
        assert [str(v.status) for v in graph.verdicts] == ["proved"] * 3
