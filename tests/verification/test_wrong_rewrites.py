"""Wrong merges in programs over all kinds of numbers are never proved."""

from __future__ import annotations

import pytest
from wrong_rewrites import campaign


def test_no_wrong_merge_is_proved():
    counts = campaign(25, seed=5)
    assert counts["wrong"] >= 25
    assert counts["proved though wrong"] == 0


@pytest.mark.long
def test_five_thousand_wrong_merges():
    assert campaign(5000, seed=6)["proved though wrong"] == 0
