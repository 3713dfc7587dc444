"""Every hazard case does, in every graph mode, what torch eager does."""

import pytest

from tests.fuzz.oracle import MODES, compare
from tests.hazards.cases import CASES, program


@pytest.mark.parametrize("mode", MODES, ids=lambda m: "-".join(str(v) for v in m.values()))
@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str, mode: dict[str, object]) -> None:
    compare(program(name), [mode])
