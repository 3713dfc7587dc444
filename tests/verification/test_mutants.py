"""Every wrong optimization is caught, and those that change a value come with a point."""

from __future__ import annotations

import mutants
import pytest

from autograd_opt.verification.result.budget import ENGINES, How
from autograd_opt.verify import Budget, Status

NUMBERS = [m.number for m in mutants.MUTANTS]


@pytest.fixture(autouse=True)
def _closed():
    yield
    mutants.close()


def verdict_of(m):
    return m.make().run(How(ENGINES, Budget(seconds=5, sympy_seconds=3), "real", (), 0))


def test_all_44_are_here():
    assert sorted(NUMBERS) == list(range(1, 45))


@pytest.mark.parametrize("m", mutants.MUTANTS, ids=lambda m: f"{m.number}")
def test_no_mutant_is_proved(m):
    v = verdict_of(m)
    assert v.status is not Status.PROVED, f"{m.text}: {v}"
    if m.value:
        assert v.status is Status.REFUTED, f"{m.text}: {v}"
        assert v.counterexample.point


@pytest.mark.parametrize("m", [m for m in mutants.MUTANTS if m.number in (1, 5, 16, 42)], ids=lambda m: f"{m.number}")
def test_the_culprit_is_the_merged_node_with_its_line(m):
    assert "merged into" in verdict_of(m).culprit
    mutants.close()
    assert "mutants.py:" in verdict_of(m).culprit


@pytest.mark.parametrize("exact", ["real", "bitwise"])
@pytest.mark.parametrize("m", mutants.MUTANTS[::5], ids=lambda m: f"{m.number}")
def test_without_refuters_the_checker_alone_rejects(m, exact):
    v = m.make().run(How(("structural", "linear"), Budget(), exact, (), 0))
    assert v.status is Status.UNDECIDED
