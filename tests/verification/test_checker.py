"""The checker on programs of its own: what is equal, what is not, and what it costs."""

from __future__ import annotations

import random

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record.context import forget_places
from autograd_opt.verification.checker.checker import check
from autograd_opt.verification.checker.linear_combinations import Sums
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.program.adjoint import Differentiator
from autograd_opt.verification.program.attribute_encoding import decode, encode
from autograd_opt.verification.program.instructions import Vocabulary
from autograd_opt.verification.program.linear import JOINTLY, LINEAR, TRUSTED, exact
from autograd_opt.verification.program.reading import convert
from autograd_opt.verify import Status, verify

FLOATS = [0.0, -0.0, 1.0, float("inf"), float("nan"), 1e-300]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -7,
        "a'b\\",
        (1, (2, None), "x"),
        slice(1, None, 2),
        Ellipsis,
        torch.float32,
        torch.device("cpu"),
        1 + 2j,
        *FLOATS,
    ],
    ids=repr,
)
def test_attributes_survive_by_their_bits(value):
    assert encode(decode(encode(value))) == encode(value)


def test_attributes_that_compare_equal_are_told_apart():
    assert len({encode(v) for v in (1, 1.0, True, 0.0, -0.0, 0, False, "1")}) == 8


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (2, 2),
        (0.5, 0.5),
        (-3, -3),
        (0.1, None),
        (257.5, None),
        (1e30, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_only_numbers_that_every_dtype_holds_are_folded(value, wanted):
    assert exact(encode(value)) == wanted


VIEWS = {"view_region", "view_erase", "view_embed", "as_strided", "erase_index"}
"""Their rules cannot be traced; `test_writes_through_views` holds them against torch."""


def test_every_line_of_the_linear_table_has_a_lemma():
    assert set(LINEAR) - set(CASES) <= TRUSTED | VIEWS
    assert set(JOINTLY) <= set(CASES)


def programs(graph, root, leader=None):
    nodes = graph.tape.snapshot()
    recorded = convert(nodes, Vocabulary())
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = leader or [where[id(n.leader)] if n.leader is not None else i for i, n in enumerate(nodes)]
    leaves = [i for i, n in enumerate(nodes) if n.is_leaf and n.requires_grad]
    d = Differentiator(recorded)
    return d.program(range(len(nodes)), [where[id(root)]], leaves), d.program(leader, [where[id(root)]], leaves), leader


def test_the_work_is_linear():
    """One leaf read n times, and a chain: expansions grow with n, not with its square."""
    counts = []
    for n in (200, 2000):
        with ao.AutogradGraph(optimize=True) as graph:
            a = ao.tensor([1.0, 2.0])
            x = a * 1.5
            for _ in range(n):
                x = x + (a * 1.5).sin() * a
            loss = x.sum()
            original, optimized, leader = programs(graph, loss.grad_fn)
            out = check(original, optimized, leader)
        assert all(out.equal)
        counts.append(out.stats["expansions"])
    assert counts[1] <= 12 * counts[0]


def test_a_chain_of_100_000_nodes():
    with ao.AutogradGraph(optimize=True) as graph:
        x = ao.tensor([1.0, 2.0])
        b = ao.tensor([0.5, 0.5])
        for _ in range(25_000):
            x = (x * b) + (x * b).sin()
        loss = x.sum()
        v = verify(graph.tape.snapshot(), [loss.grad_fn], engines=("linear",))
    assert v.status is Status.PROVED
    assert v.stats["merged"] == 25_000


CHOICES = [
    lambda x, y: torch.where(x > 1, x, y),
    lambda x, y: torch.cat([x, y * 2])[1:3],
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x.sin(),
    lambda x, y: x.tanh(),
    lambda x, y: x * 0.5,
    lambda x, y: -x,
    lambda x, y: x.sigmoid(),
    lambda x, y: (x * y).relu(),
    lambda x, y: x.sum() * y,
    lambda x, y: x + y.sum(),
    lambda x, y: torch.maximum(x, y),
]


def random_program(rng, optimize=True, n=None):
    forget_places()                              # programs that share their lines have nothing else in common
    graph = ao.AutogradGraph(optimize=optimize)
    graph.__enter__()
    pool = [ao.tensor(torch.rand(2, dtype=torch.float64) + 0.5) for _ in range(3)]
    for _ in range(n or rng.randint(4, 25)):
        pool.append(rng.choice(CHOICES)(rng.choice(pool[-4:]), rng.choice(pool[-4:])))
    return graph, sum(pool[3:]).sum()


def test_random_programs_are_proved():
    rng = random.Random(5)
    merged = 0
    for k in range(150):
        graph, loss = random_program(rng)
        try:
            v = verify(graph.tape.snapshot(), [loss.grad_fn])
        finally:
            graph.__exit__(None, None, None)
        assert v.status is Status.PROVED, f"program {k}: {v}"
        merged += v.stats["merged"]
    assert merged > 40


@pytest.mark.parametrize("write", [
    lambda y: y[1:3].mul_(3.0),
    lambda y: y[:, 1].add_(y[:, 0].clone()),
    lambda y: y.t()[0].add_(1.5),
    lambda y: y.view(-1)[::2].neg_(),
    lambda y: y.__setitem__(slice(1, 3), y[0:2].clone() * 2),
    lambda y: y.__setitem__((0, 1), 3.0),
    lambda y: y.__setitem__((slice(None), 1), y[0, 0].clone() * 2),
    lambda y: y.__setitem__((slice(None), slice(0, 2)), y[1, 0:2].clone().sin()[None]),
    lambda y: y[1].copy_(y[0].clone() * y[2].clone()),
    lambda y: y.copy_(y[0] * 2),
    lambda y: torch.as_strided(y, (2, 2), (3, 1), 1).mul_(1.5),
], ids=range(11))
def test_writes_through_views(write):
    """The program of the sweep, evaluated exactly at the numbers of the run, gives torch's gradients."""

    import numpy as np
    from flint import arb

    from autograd_opt.verification.counterexample.intervals import Rational
    from autograd_opt.verification.semantics.evaluate import evaluate
    from autograd_opt.verification.strategies.task import Task

    values = torch.arange(12, dtype=torch.float64).reshape(4, 3) / 4 + 1
    eager = values.clone().requires_grad_()
    y = eager * 2
    write(y)
    (y * torch.as_strided(y, (4, 3), (1, 1), 2)).sum().backward()
    with ao.AutogradGraph() as graph:
        x = ao.tensor(values.clone())
        y = x * 2
        write(y)
        loss = (y * torch.as_strided(y, (4, 3), (1, 1), 2)).sum()
        task = Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)

        def free(position, head, shape):
            out = np.empty(shape, dtype=object)
            given = values.reshape(-1).tolist() if head.op == "leaf" else [1]
            out.reshape(-1)[:] = [domain.scalar(v) for v in given]
            return out

        domain = Rational(10**6, float("inf"))
        position = task.original.gradients[0]
        found = evaluate(domain, task.original, [position], free)[position]
    numbers = [float(arb(v).mid()) for v in found.reshape(-1)]
    assert torch.allclose(torch.tensor(numbers, dtype=torch.float64), eager.grad.reshape(-1), rtol=1e-12)


def test_linear_operators_over_a_sum_are_opened_once():
    vocabulary = Vocabulary()
    kind = vocabulary.type((3,), torch.float64, "cpu")
    heads = [vocabulary.head("roll", (("shifts", encode(k)),), kind) for k in range(30)]
    sums = Sums(vocabulary)
    a, b = (sums.apply(name, (), ()) for name in "ab")
    over = [sums.name({a: 1, b: 2}, kind)]
    for head in heads:
        over.append(sums.apply(head, (over[-1],), (0,)))
    terms = [sums.opened(v) for v in over[1:]]
    assert sums.spent == 2 * len(heads)
    assert [k for _, k in terms[-1]] == [1, 2]
    assert sums.opened(over[-1]) is terms[-1]
    assert sums.spent == 2 * len(heads)
    left, right = a, b
    for head in heads:
        left, right = sums.apply(head, (left,), (0,)), sums.apply(head, (right,), (0,))
    assert [vn for vn, _ in terms[-1]] == [left, right]
    assert sums.same({over[-1]: 1}, {left: 1, right: 2})
    assert not sums.same({over[-1]: 1}, {left: 1, right: 1})
