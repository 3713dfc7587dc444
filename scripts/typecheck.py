"""mypy over the whole package, and stubtest over its compiled modules.

`passes/` and `benchmarks/` are packages of `autograd_opt` only once installed, which mypy
does not see; so the package is laid out in a temporary folder, of links, as an installation has it.

    python scripts/typecheck.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("passes", "benchmarks")


def compiled() -> list[str]:
    """Names of all modules that are compiled, as an installation has them."""
    inside = [f.relative_to(ROOT) for f in ROOT.glob("autograd_opt/**/*.pyx")]
    outside = [Path("autograd_opt") / f.relative_to(ROOT) for name in FOLDERS for f in (ROOT / name).glob("**/*.pyx")]
    return sorted({".".join(f.with_suffix("").parts) for f in inside + outside})


def lay_out(folder: Path) -> None:
    """Link the package's files and the two folders under one `autograd_opt`."""
    package = folder / "autograd_opt"
    package.mkdir()
    for entry in (ROOT / "autograd_opt").iterdir():
        (package / entry.name).symlink_to(entry)
    for name in FOLDERS:
        (package / name).symlink_to(ROOT / name)


def run(folder: Path, *arguments: str) -> int:
    """A module of mypy's, with the temporary folder taken out of what it prints."""
    environment = {**os.environ, "MYPYPATH": str(folder)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print((done.stdout + done.stderr).replace(f"{folder}/", ""), end="")
    return done.returncode


def main() -> int:
    config = ["--config-file", str(ROOT / "pyproject.toml")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        lay_out(folder)
        cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
        failures = run(folder, "mypy", *config, *cache, "-p", "autograd_opt")
        # types were checked above; stubtest compares the stubs with what was compiled
        (folder / "stubtest.ini").write_text("[mypy]\nignore_errors = True\n")
        # a compiled module shows helpers that no stub needs to promise
        failures += run(folder, "mypy.stubtest", "--mypy-config-file", "stubtest.ini", "--ignore-missing-stub",
                        "--allowlist", str(ROOT / "scripts" / "stubtest_allowlist.txt"), *compiled())
    return int(failures != 0)


if __name__ == "__main__":
    sys.exit(main())
