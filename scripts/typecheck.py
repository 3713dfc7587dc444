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
COMPILED = [*ROOT.glob("autograd_opt/*.pyx"), *ROOT.glob("passes/*.pyx")]


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
    modules = [f"autograd_opt.{'passes.' if f.parent.name == 'passes' else ''}{f.stem}" for f in sorted(COMPILED)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        lay_out(folder)
        cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
        failures = run(folder, "mypy", *config, *cache, "-p", "autograd_opt")
        # types were checked above; stubtest compares the stubs with what was compiled
        (folder / "stubtest.ini").write_text("[mypy]\nignore_errors = True\n")
        # a compiled module shows helpers that no stub needs to promise
        failures += run(folder, "mypy.stubtest", "--mypy-config-file", "stubtest.ini", "--ignore-missing-stub",
                        "--allowlist", str(ROOT / "scripts" / "stubtest_allowlist.txt"), *modules)
    return int(failures != 0)


if __name__ == "__main__":
    sys.exit(main())
