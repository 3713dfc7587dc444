"""Where the numbers given while recording say all, the default passes find the same and need not be run."""

import functools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.benchmarks.population import population
from autograd_opt.graph.arrays import needs_no_passes
from autograd_opt.optimizer import merging, plan_cache

Tensor = torch.Tensor
UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.sin, torch.exp, torch.tanh, lambda t: -t, lambda t: t.mean(), torch.cos]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda s, t: s + t, lambda s, t: s - t, lambda s, t: s * t, lambda s, t: s / (2.5 + t * t), torch.maximum]
NUMBERS = [1.5, 2.0, -3.0, 7]


def leaders(graph: ao.AutogradGraph) -> list[int]:
    """For each node the record number of the node that has its value, as recording has found."""
    return [n.index if n.leader is None else n.leader.index for n in graph.tape.snapshot()]


def program(draw: random.Random, a: Tensor, b: Tensor) -> Tensor:
    """A sum of random values, of which many are written twice."""
    values = [a, b, torch.tensor(0.7)]
    for _ in range(40):
        kind = draw.random()
        s, t = draw.choice(values), draw.choice(values)
        if kind < 0.4:
            values.append(draw.choice(UNARY)(s))
        elif kind < 0.9:
            values.append(draw.choice(BINARY)(s, t))
        else:
            values.append(draw.choice([lambda t, n: t + n, lambda t, n: t * n])(s, draw.choice(NUMBERS)))
    return functools.reduce(operator.add, [v.mean() for v in values[3:]])


@pytest.mark.parametrize("seed", range(60))
def test_a_settled_graph_has_the_leaders_of_the_passes(seed: int) -> None:
    draw = random.Random(seed)
    a, b = ao.tensor(torch.rand(5), requires_grad=True), ao.tensor(torch.rand(5), requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        out = program(draw, a, b) * a            # a node, also where no gradient reaches the rest
        found = merging.run_passes(graph.tape, [out._node.index], graph.pipeline)[1].leader.tolist()
        if needs_no_passes(graph.tape):
            assert leaders(graph) == found


def test_many_programs_are_settled() -> None:
    count = 0
    for seed in range(60):
        with ao.AutogradGraph(optimize=True) as graph:
            program(random.Random(seed), ao.tensor(torch.rand(5)), ao.tensor(torch.rand(5)))
            count += needs_no_passes(graph.tape)
    assert count >= 15


def test_a_generation_of_formulas_is_settled() -> None:
    work = population(leaf=ao.tensor, points=20)
    with ao.AutogradGraph(optimize=True) as graph:
        out = work.forward(*work.leaves)
        assert needs_no_passes(graph.tape)
        found = merging.run_passes(graph.tape, [out._node.index], graph.pipeline)[1].leader.tolist()
        assert leaders(graph) == found


NOT_SETTLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a factor of one": lambda a, b: (a + b) * 1.0,
    "a view": lambda a, b: (a * b)[1:],
    "another shape": lambda a, b: (a * b).reshape(5, 1),
    "three operands": lambda a, b: torch.lerp(a, b, a * b),
    "a write": lambda a, b: (a * b).mul_(b),
}


@pytest.mark.parametrize("name", NOT_SETTLED)
def test_in_doubt_the_passes_decide(name: str) -> None:
    a, b = ao.tensor(torch.rand(5)), ao.tensor(torch.rand(5))
    with ao.AutogradGraph(optimize=True) as graph:
        out = NOT_SETTLED[name](a, b)
        assert out.requires_grad
        assert not needs_no_passes(graph.tape)


def test_a_hook_unsettles() -> None:
    a = ao.tensor(torch.rand(5))
    with ao.AutogradGraph(optimize=True) as graph:
        y = a * a
        assert needs_no_passes(graph.tape)
        y.register_hook(lambda g: None)
        assert not needs_no_passes(graph.tape)


def test_new_structures_in_a_row_are_not_planned_any_more() -> None:
    def step(a: Tensor, n: int) -> tuple[int, Tensor]:
        a.grad = None
        with ao.AutogradGraph(optimize=True) as graph:
            y = a
            for _ in range(n):
                y = torch.sin(y) * torch.sin(y)
            y.sum().backward()
            return graph.planned[1], a.grad

    a = ao.tensor(torch.rand(5))
    planned, expected = [], []
    for n in range(1, 9):
        asked, gradient = step(a, n)
        planned.append(asked)
        x = torch.tensor(a.tolist(), requires_grad=True)
        y = x
        for _ in range(n):
            y = torch.sin(y) * torch.sin(y)
        y.sum().backward()
        torch.testing.assert_close(torch.tensor(gradient.tolist()), x.grad)
        expected.append(int(n <= plan_cache.CHANGING))
    assert planned == expected
