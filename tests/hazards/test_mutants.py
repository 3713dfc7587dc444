"""Every guard is there for a reason: without it, the test that names it fails."""

import pytest

from tests.hazards.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_mutant_is_killed(mutant: Mutant) -> None:
    mutant.killer()
    with mutant.broken():
        try:
            mutant.killer()
        except Exception:
            return
    pytest.fail(f"without its guard, nothing notices: {mutant.name}")


def test_there_are_thirty() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 30
