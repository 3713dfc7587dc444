"""The order of the packages: each imports only from those before it, wherever in a file an import stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import autograd_opt
import autograd_opt.passes

ORDER = ("passes", "errors", "_common", "abi", "graph", "ops", "optimizer", "record", "engine", "plans", "inspection",
         "explaining", "verification", "api", "verify", "cli", "benchmarks", "__init__", "__main__")
"""From the lowest to the highest; `autograd_opt` itself, with the public names, is the highest."""
IMPORT = re.compile(
    r"^\s*(?:from\s+autograd_opt(?P<of>[\w.]*)\s+c?import\s+(?:\((?P<several>[^)]*)\)|(?P<names>[^#\n]*))"
    r"|c?import\s+autograd_opt\.(?P<whole>[\w.]+))", re.MULTILINE)
ROOT = Path(autograd_opt.__file__).parent
PASSES = Path(autograd_opt.passes.__file__).parent
ENDINGS = {".py", ".pyx", ".pxd"}

def imports() -> Iterator[tuple[str, str, str]]:
    """Each file below the package, its own part of it, and a part that it imports from."""
    for path in sorted({*ROOT.rglob("*"), *PASSES.rglob("*")}):
        if path.suffix in ENDINGS:
            name = path.relative_to(PASSES.parent if PASSES in path.parents else ROOT).as_posix()
            own = name.split("/")[0].removesuffix(path.suffix)
            for found in IMPORT.finditer(path.read_text(encoding="utf-8")):
                whole = (found["whole"] or found["of"] or "").strip(".")
                parts = [whole.split(".")[0]] if whole else re.findall(r"\w+", found["several"] or found["names"])
                for part in parts:
                    yield name, own, part if part in ORDER else "__init__"


def test_every_package_has_its_place() -> None:
    assert {own for _, own, _ in imports()} <= set(ORDER)


def test_no_import_goes_upward() -> None:
    found: dict[str, set[str]] = {}
    for name, own, part in imports():
        if ORDER.index(part) > ORDER.index(own):
            found.setdefault(name, set()).add(part)
    assert not found
