"""What scripts write into the documentation is what they would write today."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.docs.loading import ROOT, loaded


def test_the_pictures_are_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGRAD_OPT_NO_GRAPHVIZ", "1")
    loaded("scripts", "pictures.py").draw(tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    stored = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "pictures").iterdir()}
    assert drawn == stored, "run python scripts/pictures.py"


def test_docstrings_become_numpys() -> None:
    assert doctest.testmod(loaded("docs", "docstrings.py")).failed == 0
