"""Graphs whose numbers do not pay are recorded without them, until one that looks again finds something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record import resting
from autograd_opt.record.context import innermost_graph
from autograd_opt.record.sites import Numbered
from tests.fuzz.known import reason_of
from tests.fuzz.oracle import differs
from tests.programs import from_seed

PATIENCE, SHORTEST = 8, 32


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """As outside these tests."""
    before = resting.set_patience(PATIENCE)
    yield
    resting.set_patience(before)


def once(w: torch.Tensor) -> torch.Tensor:
    """Nothing is computed twice."""
    return (w * 2).exp().add(1).log().sin().tanh().cos().mul(3).sigmoid().square().sin().sum()


def again(w: torch.Tensor) -> torch.Tensor:
    """No more than twice as many records, of which most repeat others."""
    return sum(w.exp() * w.exp().sin() for _ in range(4)).sum()      # type: ignore[union-attr, return-value]


def step(function: Callable[[torch.Tensor], torch.Tensor], w: torch.Tensor, **options: Any) -> ao.AutogradGraph:
    """A graph opened at this line, with its backward run."""
    with ao.AutogradGraph(**{"optimize": True, **options}) as graph:
        function(w).backward()
    return graph


@pytest.fixture(name="w")
def _w() -> torch.Tensor:
    return torch.linspace(0.1, 1, 5, dtype=torch.float64).requires_grad_()


def rested(n: int, function: Any, w: torch.Tensor, **options: Any) -> list[bool]:
    return [step(function, w, **options).report().rested for _ in range(n)]


def test_a_program_without_repeats_rests_and_looks_again(w: torch.Tensor) -> None:
    found = rested(PATIENCE + SHORTEST + 1 + 2 * SHORTEST + 1, once, w)
    assert [i for i, rests in enumerate(found) if not rests] == [
        *range(PATIENCE), PATIENCE + SHORTEST, PATIENCE + SHORTEST + 1 + 2 * SHORTEST]


def test_a_program_with_repeats_never_rests(w: torch.Tensor) -> None:
    assert not any(rested(3 * PATIENCE, again, w))


def test_a_repeat_or_two_do_not_pay_for_a_graph(w: torch.Tensor) -> None:
    found = rested(PATIENCE + 1, lambda w: once(w) + w.exp().sin().sum() * w.exp().sum(), w)
    assert found[-1]


def test_values_that_no_gradient_follows_pay_by_their_size() -> None:
    def reads(w: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            w.exp().sum(), w.exp().sum()
        return w.sum()

    assert not rested(PATIENCE + 1, reads, torch.ones(200_000, requires_grad=True))[-1]
    assert rested(PATIENCE + 1, reads, torch.ones(8, requires_grad=True))[-1]


def test_repeats_are_found_when_one_looks_again(w: torch.Tensor) -> None:
    rested(PATIENCE, once, w)
    found = rested(SHORTEST + 1 + 2 * PATIENCE, again, w)
    assert all(found[:SHORTEST])
    assert not any(found[SHORTEST:])


def test_a_larger_program_is_another(w: torch.Tensor) -> None:
    rested(PATIENCE, once, w)
    larger = [step(lambda w: sum(again(w + i) for i in range(4)), w) for _ in range(3)]      # type: ignore[return-value, arg-type]
    assert [graph.report().rested for graph in larger] == [True, False, False]


def test_gradients_are_the_same_throughout(w: torch.Tensor) -> None:
    found = []
    for _ in range(PATIENCE + 3):
        w.grad = None
        step(once, w)
        assert w.grad is not None
        found.append(w.grad.clone())
    w.grad = None
    once(w).backward()
    assert all(torch.equal(g, found[0]) for g in found)
    torch.testing.assert_close(found[0], w.grad)


@pytest.mark.parametrize(
    "options", [{"passes": ["cse"]}, {"verify": True}, {"allowance": 1 << 20}, {"optimize": "exact"}],
    ids=lambda options: next(iter(options)))
def test_what_is_asked_for_is_done_each_time(w: torch.Tensor, options: dict[str, Any]) -> None:
    assert not any(rested(2 * PATIENCE, once, w, **options))


def test_nobody_rests_where_every_call_is_to_be_numbered(w: torch.Tensor) -> None:
    rested(PATIENCE, once, w)
    with Numbered():
        assert not any(rested(3, once, w))
    assert all(rested(3, once, w))


def test_lines_learn_by_themselves(w: torch.Tensor) -> None:
    rested(PATIENCE, once, w)
    with ao.AutogradGraph(optimize=True) as elsewhere:
        once(w).backward()
    assert not elsewhere.report().rested


def test_functions_for_derivatives_look_each_time() -> None:
    """They open their graphs at a line of this library, whatever function they are given."""
    x, reports = torch.ones(3), []

    def counted(x: torch.Tensor) -> torch.Tensor:
        y = x.exp() * x.exp()
        reports.append(innermost_graph().report())
        return y

    for _ in range(2 * PATIENCE):
        ao.jacobian(lambda x: x * 2, x, optimize=True)
    ao.jacobian(counted, x, optimize=True)
    assert not reports[0].rested
    assert reports[0].reused == 1


def test_a_report_says_so(w: torch.Tensor) -> None:
    graphs = [step(once, w) for _ in range(PATIENCE + 1)]
    assert "optimize=False" not in str(graphs[0].report())
    assert "recorded as with optimize=False" in str(graphs[-1].report())
    assert graphs[-1].report().to_dict()["rested"] is True


def test_a_proof_of_what_was_not_watched_says_so(w: torch.Tensor) -> None:
    for _ in range(PATIENCE + 1):
        with ao.AutogradGraph(optimize=True) as graph:
            verdict = graph.verify(once(w))
    assert verdict.status == "proved"
    assert any("optimize=" in condition for condition in verdict.conditions)


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_programs_one_after_the_other(first: int) -> None:
    """Whether a program rests or not, because of those before it, it does what torch does."""
    for seed in range(first, first + 15):
        program = from_seed(seed)
        error = differs(program)
        assert error is None or reason_of(str(error), program), error
