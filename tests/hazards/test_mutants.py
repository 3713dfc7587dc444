"""Every guard is there for a reason: without it, the test that names it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hazards.compiled_mutants import GUARDS, build, mutated
from tests.hazards.conditions import CONDITIONS
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


def test_each_guard_of_the_compiled_modules_is_there() -> None:
    texts = "\n".join(mutated().values())
    for number in range(1, len(GUARDS) + len(CONDITIONS) + 1):
        assert re.search(rf"mutant [!=]= {number}\b", texts), number


@pytest.mark.long
def test_compiled_guards_are_missed(tmp_path: Path) -> None:
    """One build with a switch at every guard of the compiled modules, then each of them broken in turn."""
    build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.hazards.compiled_mutants"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
