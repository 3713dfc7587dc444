"""What scripts write into the documentation is what they would write today."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.loading import ROOT, loaded


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_the_pictures_are_what_is_drawn(tmp_path: Path) -> None:
    """Versions of Graphviz differ in where they place what a picture says."""
    def texts(folder: Path) -> dict[str, list[str]]:
        return {path.name: sorted(re.findall(r"<text.*?>(.*?)</text>", path.read_text(encoding="utf-8")))
                for path in folder.iterdir()}

    loaded("scripts", "pictures.py").draw(tmp_path)
    assert texts(tmp_path) == texts(ROOT / "docs" / "pictures"), "run python scripts/pictures.py"


def test_docstrings_become_numpys() -> None:
    assert doctest.testmod(loaded("docs", "docstrings.py")).failed == 0
