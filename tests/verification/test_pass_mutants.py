"""Wrong optimizers on recorded graphs, through the real passes: none is proved, values are refuted with a point."""

from __future__ import annotations

import pass_mutants
import pytest

from autograd_opt.verify import Status

MUTANTS = pass_mutants.PASS_MUTANTS


def test_all_of_them_are_here():
    assert sorted(m.number for m in MUTANTS if m.number < 100) == list(range(45, 56))


@pytest.mark.parametrize("m", MUTANTS, ids=lambda m: f"{m.number}")
def test_no_wrong_optimizer_is_proved(m):
    v = m.run()
    assert v.status is not Status.PROVED, f"{m.text}: {v}"
    if m.value:
        assert v.status is Status.REFUTED, f"{m.text}: {v}"
        assert v.counterexample.point
    else:
        assert v.reason is not None or v.counterexample is not None


def test_the_same_graphs_are_proved_when_nothing_is_broken(monkeypatch):
    """So it is the mutation that is found, and the passes do run."""
    for method in ("forget", "confuse", "same_operands"):
        monkeypatch.setattr(pass_mutants.Broken, method, lambda self, *a: self)
    proved = {m.number for m in MUTANTS if m.number not in (47, 48, 55) and m.run().status is Status.PROVED}
    assert proved >= {45, 46, 49, 51, 151, 52, 54}
