"""Every verdict on random programs against three things it shares no engine with.

* torch eager in float64: the gradients of the same program, run without this library's graph;
* float64 arithmetic on both programs (`Doubles`): a proof must hold at random points, a refutation at its point;
* a second method: structural value numbers and evaluation modulo a prime, which may never contradict.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from test_checker import CHOICES

import autograd_opt as ao
from autograd_opt.record.context import forget_places
from autograd_opt.verification.checker.checker import numbering
from autograd_opt.verification.counterexample import prime_field
from autograd_opt.verification.result.budget import ENGINES, How
from autograd_opt.verification.semantics.domain import Domain, Outside
from autograd_opt.verification.semantics.evaluate import evaluate
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Status

BUDGET = Budget(seconds=3, sympy_seconds=3)


class Doubles(Domain):
    """float64 numbers."""

    def scalar(self, value):
        return float(value)

    def function(self, name, x):
        if name in ("sin", "cos", "tan", "exp", "tanh", "sinh", "cosh", "atan", "log", "sqrt", "erf", "asinh"):
            try:
                return getattr(math, name)(x)
            except OverflowError:
                return math.copysign(math.inf, x if name == "sinh" else 1.0)
            except ValueError:  # the sine of infinity
                return math.nan
        raise Outside(name)

    def raised(self, x, y):
        return x**y

    def sign(self, x):
        return (x > 0) - (x < 0)


def build(rng, leaf):
    """A random program over three leaves, by `leaf(values)`."""
    values = torch.Generator().manual_seed(rng.randrange(10**6))
    leaves = [leaf(torch.rand(2, generator=values, dtype=torch.float64) + 0.5) for _ in range(3)]
    pool = list(leaves)
    for _ in range(rng.randint(4, 25)):
        pool.append(rng.choice(CHOICES)(rng.choice(pool[-4:]), rng.choice(pool[-4:])))
    return leaves, sum(pool[3:]).sum()


def broken(nodes, rng):
    """Leaders with one wrong merge of nodes of one type, or None."""
    kinds = [(n.shape, n.dtype, n.requires_grad) for n in nodes]
    inner = [i for i, n in enumerate(nodes) if not n.is_leaf and n.op.name != "output"]
    pairs = [(i, j) for i in inner for j in inner if i < j and kinds[i] == kinds[j]]
    if not pairs:
        return None
    leader = list(range(len(nodes)))
    i, j = rng.choice(pairs)
    leader[j] = i
    return leader


def values_at(program, positions, point):
    """What the program gives in float64; `point(head, shape)` supplies leaves and seeds."""
    D = Doubles()
    found = evaluate(D, program, [p for p in positions if p is not None], lambda k, head, shape: point(head, shape))
    return [None if p is None else np.asarray(found[p], dtype=float) for p in positions]


def drawn(seed):
    def point(head, shape):
        if head.op == "seed":
            return np.full(shape, 1.0, dtype=object)
        rng = random.Random(f"{seed}|{head.effect}")
        out = np.empty(shape, dtype=object)
        out.reshape(-1)[:] = [rng.uniform(-1.5, 1.5) for _ in range(out.size)]
        return out

    return point


def given(counterexample):
    def point(head, shape):
        name = f"%{head.effect - 1}" if head.op == "leaf" else f"seed {head.effect - 1}"
        out = np.empty(shape, dtype=object)
        flat = np.asarray(counterexample.point[name], dtype=object).reshape(-1)
        out.reshape(-1)[:] = [float(Fraction(str(v))) for v in flat]
        return out

    return point


def close(a, b):
    if a is None or b is None:
        return a is b or not np.any(b if a is None else a)
    both = np.isfinite(a) & np.isfinite(b)  # what overflows in float64 says nothing about real numbers
    return np.allclose(np.where(both, a, 0.0), np.where(both, b, 0.0), rtol=1e-7, atol=1e-9)


def confirm(task, v):
    """Does float64 agree with the verdict?  And does the second method not contradict it?"""
    one, two = [*task.original.gradients, *task.original.values], [*task.optimized.gradients, *task.optimized.values]
    if v.status is Status.PROVED:
        for seed in range(2):
            left, right = values_at(task.original, one, drawn(seed)), values_at(task.optimized, two, drawn(seed))
            assert all(map(close, left, right)), v
        a, b = numbering((task.original, task.optimized))
        goals = [(str(k), x, y) for k, (x, y) in enumerate(zip(one, two, strict=True))
                 if (x is None) != (y is None) or (x is not None and a[x] != b[y])]
        other = prime_field.compare(task, goals, seed=991)
        assert other.equal is not False or v.engine in ("rewrite", "sympy"), (v, other)
    elif v.status is Status.REFUTED:
        c = v.counterexample
        k = task.goals.index(c.goal)
        left, right = (values_at(p, [g[k]], given(c))[0] for p, g in ((task.original, one), (task.optimized, two)))
        shape = (left if left is not None else right).shape
        left, right = (np.zeros(shape) if x is None else x for x in (left, right))
        a, b = left[tuple(c.element)], right[tuple(c.element)]
        # the bounds are exact; float64 must land beside them
        for got, (low, high) in ((a, c.original), (b, c.optimized)):
            low, high = (float(Fraction(x)) if "/" in x else float(x) for x in (low, high))
            assert low - 1e-6 * (1 + abs(low)) <= got <= high + 1e-6 * (1 + abs(high)), (v, got)
    else:
        assert v.reason is not None
        assert str(v.reason)


def campaign(count, seed):
    rng = random.Random(seed)
    found = Counter()
    for k in range(count):
        start = rng.randrange(10**9)
        forget_places()                          # programs that share their lines have nothing else in common
        with ao.AutogradGraph(optimize=True) as graph:
            leaves, loss = build(random.Random(start), ao.tensor)
            nodes = graph.tape.snapshot()
            wrong = broken(nodes, rng) if k % 4 == 3 else None
            task = Task(nodes, [loss.grad_fn], None, wrong, None)
            v = task.run(How(ENGINES, BUDGET, "real", (), k))
            confirm(task, v)
            if wrong is None:
                assert v.status is Status.PROVED, v
                loss.backward()
                eager, total = build(random.Random(start), lambda t: t.requires_grad_())
                total.backward()
                for mine, theirs in zip(leaves, eager, strict=True):
                    assert close(None if mine.grad is None else mine.grad.numpy(),
                                 None if theirs.grad is None else theirs.grad.numpy())
        found[wrong is not None, v.status] += 1
    return found


def check(found, count):
    undecided = sum(n for (_, status), n in found.items() if status is Status.UNDECIDED)
    assert undecided < 0.05 * count, found
    assert found[True, Status.REFUTED] > 0.5 * sum(n for (wrong, _), n in found.items() if wrong), found


def test_verdicts_of_random_programs():
    check(campaign(80, seed=21), 80)


@pytest.mark.long
def test_verdicts_of_a_thousand_random_programs():
    check(campaign(1000, seed=22), 1000)
