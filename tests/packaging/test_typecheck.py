"""Each compiled module's stub is compared with what was compiled."""

import importlib
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_all_compiled_modules_are_compared_with_their_stubs() -> None:
    found = runpy.run_path(str(ROOT / "scripts" / "typecheck.py"))["compiled"]()
    sources = [file for top in ("autograd_opt", "passes") for file in (ROOT / top).rglob("*.pyx")]
    assert len(found) == len({file.resolve() for file in sources})
    for name in found:
        module = importlib.import_module(name)
        assert Path(str(module.__file__)).suffix in (".so", ".pyd"), name
    assert all(file.with_suffix(".pyi").exists() for file in sources)
