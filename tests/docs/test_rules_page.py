"""The page on passes shows the rules that there are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_the_data() -> None:
    spec = importlib.util.spec_from_file_location("make_rules", DOCS / "make_rules.py")
    assert spec is not None
    assert spec.loader is not None
    make_rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_rules)
    text = (DOCS / "passes.md").read_text(encoding="utf-8")
    assert make_rules.written(text) == text, "run python docs/make_rules.py"
