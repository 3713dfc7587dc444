"""Regions of these tests may step back, whatever other tests of the process have made."""

from __future__ import annotations

import pytest

from autograd_opt.graph import tensor as leaves


@pytest.fixture(autouse=True)
def no_leaf_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf that torch does not know of, anywhere in the process, would let every region record."""
    monkeypatch.setattr(leaves, "made", False)
