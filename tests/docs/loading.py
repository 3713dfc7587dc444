"""Scripts that are in no package, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def loaded(*path: str) -> ModuleType:
    """The module in a file of this repository, run anew."""
    file = ROOT.joinpath(*path)
    spec = importlib.util.spec_from_file_location(file.name.partition(".")[0], file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
