"""Every call of a region is recorded in these tests; `test_patience.py` has those that are not."""

from __future__ import annotations

import pytest

from autograd_opt.api import regions


@pytest.fixture(autouse=True)
def _all_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "PATIENCE", None)
