"""Where structures are new each time, passes that find no more than the numbers given while recording are not run."""

import functools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.benchmarks.population import population
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


@pytest.mark.parametrize("seed", range(20))
def test_what_the_passes_find_beyond_the_numbers_is_counted(seed: int) -> None:
    draw = random.Random(seed)
    a, b = ao.tensor(torch.rand(5), requires_grad=True), ao.tensor(torch.rand(5), requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        out = program(draw, a, b) + sum(a.unbind()) * sum(a.unbind())
        before, nodes = leaders(graph), graph.tape.snapshot()
        found = merging.run_passes(graph.tape, [out._node.index], graph.pipeline)[1].leader
        more = [i for i, (old, new) in enumerate(zip(before, found, strict=True))
                if old == i != new and nodes[i].requires_grad]
        assert len(more) >= 6                    # `unbind` and its outputs have no numbers
        assert graph.tape.set_leaders(found) == len(more)


def test_the_numbers_say_all_of_a_generation_of_formulas() -> None:
    work = population(leaf=ao.tensor, points=20)
    with ao.AutogradGraph(optimize=True) as graph:
        out = work.forward(*work.leaves)
        found = merging.run_passes(graph.tape, [out._node.index], graph.pipeline)[1].leader
        assert leaders(graph) == found.tolist()
        assert graph.tape.set_leaders(found) == 0


def planned(text: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor], runs: int) -> list[int]:
    """Before which of so many runs, each through one more application of `text`, the passes were asked.

    The line of `end` is the place from which the runs start.
    """
    a, asked = ao.tensor(torch.rand(5)), []
    x = torch.tensor(a.tolist(), requires_grad=True)
    plan_cache.PLANS.clear()
    for n in range(1, runs + 1):
        with ao.AutogradGraph(optimize=True) as graph:
            end(functools.reduce(lambda y, _: text(y), range(n), a)).backward()
            asked.append(graph.planned[1])
        end(functools.reduce(lambda y, _: text(y), range(n), x)).backward()
        torch.testing.assert_close(torch.tensor(a.grad.tolist()), x.grad)
        a.grad = x.grad = None
    return asked


def test_new_structures_in_a_row_are_not_planned_any_more() -> None:
    """But once in a while, since a program may come to repeat itself."""
    runs = plan_cache.CHANGING + plan_cache.LOOK + 1
    asked = planned(lambda y: torch.sin(y) * torch.sin(y), lambda y: y.sum(), runs)
    assert asked == [1] * plan_cache.CHANGING + [0] * (plan_cache.LOOK - 1) + [1, 0]


def test_a_known_structure_is_not_planned_any_more_where_the_passes_find_nothing_more() -> None:
    """But once in a while; what the numbers have told merges all the same."""
    a, asked, runs = torch.rand(5, requires_grad=True), [], plan_cache.KNOWN + plan_cache.LOOK + 2
    plan_cache.PLANS.clear()
    for _ in range(runs):
        with ao.AutogradGraph(optimize=True) as graph:
            (torch.sin(a) * torch.sin(a)).sum().backward()
            asked.append(graph.planned[1])
            assert graph.tape.merges.handed > 0
    torch.testing.assert_close(a.grad, 2 * runs * (torch.sin(a) * torch.cos(a)))
    assert asked == [1] * (plan_cache.KNOWN + 1) + [0] * (plan_cache.LOOK - 1) + [1, 0]


def test_new_structures_are_planned_where_only_the_passes_find_what_merges() -> None:
    """Calls with several results have no numbers while they are recorded."""
    def text(y: Tensor) -> Tensor:
        return torch.sin(y) * torch.sin(y) * torch.stack([s * t for s, t in zip(y.unbind(), y.unbind(), strict=True)])

    asked = planned(text, lambda y: y.sum(), 8)
    assert asked == [1] * 8
