"""Random edits of optimized programs and of leaders: what changes a value is never proved.

Whether an edit is harmful is decided by evaluation modulo a prime at other points than the
verifier's, that is by code the checker does not share.
"""

from __future__ import annotations

import random

import pytest
from test_checker import random_program

from autograd_opt.verification.counterexample import prime_field
from autograd_opt.verification.program.instruction_names import MERGED
from autograd_opt.verification.program.leaders import followed
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Status

EDITS = ("operand", "swap", "drop", "head", "merge", "goal")


def edited(task, rng):
    """Edit the optimized program once, in place; the kind of edit, or None where it did nothing."""
    p, v = task.optimized, task.vocabulary
    kind = rng.choice(EDITS)
    candidates = [k for k in range(len(p.heads)) if p.operands[k]]
    k = rng.choice(candidates)
    type_of = lambda i: v.heads[p.heads[i]].type
    same = [i for i in range(k) if type_of(i) == type_of(k)]
    if kind == "operand" and len(same) > 1:
        places = list(p.operands[k])
        slot = rng.randrange(len(places))
        fitting = [i for i in range(k) if type_of(i) == type_of(places[slot]) and i != places[slot]]
        if not fitting:
            return None
        places[slot] = rng.choice(fitting)
        p.operands[k] = tuple(places)
    elif kind == "swap" and len(p.operands[k]) == 2:
        p.operands[k] = p.operands[k][::-1]
    elif kind == "drop":
        fitting = [o for o in p.operands[k] if type_of(o) == type_of(k)]
        if not fitting:
            return None
        p.heads[k] = v.head(MERGED, (), type_of(k))
        p.operands[k] = (rng.choice(fitting),)
    elif kind == "head":
        others = [
            i
            for i in candidates
            if type_of(i) == type_of(k)
            and len(p.operands[i]) == len(p.operands[k])
            and p.heads[i] != p.heads[k]
            and [type_of(o) for o in p.operands[i]] == [type_of(o) for o in p.operands[k]]
        ]
        if not others:
            return None
        p.heads[k] = p.heads[rng.choice(others)]
    elif kind == "merge" and same:
        p.heads[k] = v.head(MERGED, (), type_of(k))
        p.operands[k] = (rng.choice(same),)
    elif kind == "goal" and len(p.gradients) > 1:
        i, j = rng.sample(range(len(p.gradients)), 2)
        p.gradients[i], p.gradients[j] = p.gradients[j], p.gradients[i]
    else:
        return None
    return kind


def campaign(programs, edits, seed):
    """Counts of (harmful, proved although harmful, harmless, harmless and proved)."""
    rng = random.Random(seed)
    harmful = wrong = harmless = kept = 0
    for _ in range(programs):
        graph, loss = random_program(rng, n=rng.randint(4, 14))
        try:
            nodes = graph.tape.snapshot()
            for _ in range(edits):
                task = Task(nodes, [loss.grad_fn], None, None, None)
                if edited(task, rng) is None:
                    continue
                differs = prime_field.compare(task, task.compared, seed=rng.randrange(10**6)).equal
                v = task.run(How(("structural", "linear"), Budget(), "real", (), 0))
                if differs is False:
                    harmful += 1
                    wrong += v.status is Status.PROVED
                elif differs:
                    harmless += 1
                    kept += v.status is Status.PROVED
        finally:
            graph.__exit__(None, None, None)
    return harmful, wrong, harmless, kept


def merges(programs, edits, seed):
    """Leaders with merges that are wrong or not; no engine that refutes."""
    rng = random.Random(seed)
    budget = Budget(seconds=1, sympy_seconds=0.3, sympy_operations=60)
    harmful = wrong = harmless = kept = 0
    for _ in range(programs):
        graph, loss = random_program(rng, n=rng.randint(4, 14))
        try:
            nodes = graph.tape.snapshot()
            honest = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
            inner = [i for i, n in enumerate(nodes) if not n.is_leaf and n.op.name != "output"]
            pairs = [(i, j) for i in inner for j in inner if i < j and honest[j] == j
                     and (nodes[i].shape, nodes[i].dtype) == (nodes[j].shape, nodes[j].dtype)]
            for i, j in rng.sample(pairs, min(edits, len(pairs))):
                leader = list(honest)
                leader[j] = leader[i]
                task = Task(nodes, [loss.grad_fn], None, leader, None)
                found = prime_field.compare(task, task.compared, seed=rng.randrange(10**6))
                v = task.run(How(("structural", "linear", "rewrite", "sympy"), budget, "real", (), 0))
                if found.equal is False:
                    harmful += 1
                    wrong += v.status is Status.PROVED
                elif found.equal:
                    harmless += 1
                    kept += v.status is Status.PROVED
        finally:
            graph.__exit__(None, None, None)
    return harmful, wrong, harmless, kept


def test_no_harmful_merge_is_proved():
    harmful, wrong, *_ = merges(8, 3, seed=13)
    assert harmful > 15
    assert wrong == 0


@pytest.mark.long
def test_hundreds_of_harmful_merges():
    harmful, wrong, *_ = merges(80, 4, seed=14)
    assert harmful >= 280
    assert wrong == 0


def test_no_harmful_edit_is_proved():
    harmful, wrong, harmless, kept = campaign(60, 8, seed=11)
    assert harmful > 150
    assert wrong == 0
    assert kept > 0.7 * harmless


@pytest.mark.long
def test_ten_thousand_harmful_edits():
    harmful, wrong, *_ = campaign(1700, 10, seed=12)
    assert harmful >= 10_000
    assert wrong == 0
