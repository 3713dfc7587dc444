"""README and docs show what docs/results has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.loading import ROOT, loaded

figures = loaded("scripts", "figures.py")
PAGES = figures.pages(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_pages_agree_with_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert figures.filled(text, ROOT / "docs" / "results") == text, "run `python scripts/figures.py`"


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_no_figure_splits_a_paragraph(page: Path) -> None:
    """A comment that begins a line ends the paragraph before it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.lstrip().startswith("<!--figure")]


def test_some_page_has_figures_and_some_a_table() -> None:
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert figures.FIGURE.search(texts)
    assert figures.TABLE.search(texts)
    assert figures.SUMMARY.search(texts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [{"step": "a", "from": "b", "ns": 2.5}, {"step": "c", "from": "d", "ns": 1}]
    rows = [{"name": "8×8 float32", "lines": lines, "kernels": {"add": 1000, "mul": 234}, "half": 617}]
    about = {"command": "run it", "date": "2000-01-01", "torch": "2", "processor": "p", "threads": 1}
    (tmp_path / "budget.json").write_text(json.dumps({"conditions": about, "rows": rows}))
    return tmp_path


def test_figures_are_filled(folder: Path) -> None:
    def fill(what: str) -> str:
        return figures.filled(f"x <!--figure {what}-->old<!--/figure--> y", folder)

    row = "budget/8×8 float32"
    assert fill(f"{row}/kernels") == f"x <!--figure {row}/kernels-->1,234<!--/figure--> y"
    assert ">2.50<" in fill(f"{row}/lines/0/ns")
    assert ">2.5<" in fill(f"{row}/lines/0/ns|.1f")
    assert ">2.0<" in fill(f"{row}/kernels ÷ {row}/half|.1f")


def test_a_figure_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(KeyError, match="budget/8×8 float32/nothing"):
        figures.filled("<!--figure budget/8×8 float32/nothing-->1<!--/figure-->", folder)
    with pytest.raises(FileNotFoundError, match="python -m benchmarks times"):
        figures.filled("<!--figure times/x-->1<!--/figure-->", folder)


def test_what_is_not_measured_says_so(folder: Path) -> None:
    assert "Not measured yet: `python -m benchmarks cse`" in figures.filled("<!--table cse/x-->\n<!--/table-->", folder)
    held = "<!--picture budget-->\n<!--/picture-->"
    assert figures.filled(held, folder) == held
    (folder / "budget.png").touch()
    assert "(results/budget.png)" in figures.filled(held, folder)


def test_tables_are_filled_once_and_for_all(folder: Path) -> None:
    text = "<!--table budget/What a step costs only=c-->\nold\n<!--/table-->\n"
    once = figures.filled(text, folder)
    assert "| c | 1 | `d` |" in once
    assert "| a |" not in once
    assert "`run it`" in once
    assert figures.filled(once, folder) == once
