"""The page of behaviours is the one that the tests generate."""

from __future__ import annotations

from tests.engine.covered import PAGE, page, rows


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run: python -m tests.engine.covered"


def test_three_hundred_behaviours():
    assert sum(len(r) for r in rows().values()) >= 300
