"""Each notebook is its script, and runs."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.loading import ROOT, loaded

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LARGEST = 120_000
"""Bytes of a notebook with its outputs."""


def converter() -> ModuleType:
    return loaded("scripts", "notebooks.py")


def stored(script: Path) -> Path:
    return script.parent / "notebooks" / f"{script.stem}.ipynb"


def test_the_converter_does_what_its_example_says() -> None:
    assert doctest.testmod(converter()).failed == 0


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_a_notebook_has_the_cells_of_its_script(script: Path) -> None:
    module = converter()
    notebook = json.loads(stored(script).read_text("utf-8"))
    assert module.sources(notebook) == module.sources(module.notebook_of(script)), "run python scripts/notebooks.py"


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_a_notebook_was_run_and_is_small(script: Path) -> None:
    text = stored(script).read_text("utf-8")
    assert len(text) < LARGEST
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    outputs = [o for c in cells for o in c["outputs"]]
    assert outputs
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert "ipykernel_" not in text


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_cell_runs(script: Path) -> None:
    for needed in ("nbclient", "ipykernel"):
        pytest.importorskip(needed)
    module = converter()
    notebook = module.run(module.notebook_of(script))
    assert all(c["execution_count"] for c in notebook["cells"] if c["cell_type"] == "code")
