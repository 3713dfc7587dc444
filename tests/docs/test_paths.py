"""Files that the pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.loading import ROOT

PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
NAMED = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:pyx|pxd|pyi|py|h|md|toml|yml))?)`")
FOLDERS = ("autograd_opt", "passes", "tests", "benchmarks", "scripts", "docs", "examples")
FILES = {"/" + path.relative_to(ROOT).as_posix() + "/" * path.is_dir()
         for folder in FOLDERS for path in (ROOT / folder, *(ROOT / folder).rglob("*"))}
HISTORY = {"CHANGELOG.md"}
"""Pages that tell of files which are gone."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in HISTORY], ids=lambda p: p.name)
def test_named_files_exist(page: Path) -> None:
    """A name is a path, or the end of one that is clear from the text beside it."""
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    assert not {name for name in named if not any(there.endswith("/" + name) for there in FILES)}


def test_an_introduction_stays_short() -> None:
    """The page for newcomers has at most 1,500 words."""
    assert len((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()) <= 1500
