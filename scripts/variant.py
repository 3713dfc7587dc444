"""Run tests in a checkout that is built, or runs, another way.

    python scripts/variant.py debug [pytest arguments]     bounds, None and initialization are checked in compiled code
    python scripts/variant.py hashes [pytest arguments]    all hashes are equal: only full comparisons tell keys apart
    python scripts/variant.py compact [pytest arguments]   dead records are dropped at every append

`debug` builds in build/debug, which the next run goes on with; the others run this build, here.  Exit code: pytest's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEBUG = ROOT / "build" / "debug"
APART = {".git", ".asv", "build", "dist", "_build", "demo-output", "jupyter_execute", "__pycache__", ".hypothesis",
         *(f".{tool}_cache" for tool in ("pytest", "mypy", "ruff"))}
HERE = {"hashes": "AUTOGRAD_OPT_DEGENERATE_HASH", "compact": "AUTOGRAD_OPT_COMPACT"}
"""Variants of this build -> the variable that asks for them."""
FOLDERS = {"passes": "autograd_opt/passes", "benchmarks": "autograd_opt/benchmarks"}
"""Folders at the top -> where an installed package has them."""


def sources(folder: Path) -> Iterator[Path]:
    """What is copied from a checkout, and what an earlier copy may hold: neither links nor what is built."""
    for path in sorted(folder.iterdir()):
        built = path.name.startswith(".venv") or path.name.endswith((".egg-info", ".so"))
        if built or path.name in APART or path.is_symlink():
            continue
        if path.is_dir():
            yield from sources(path)
        else:
            yield path


def copied(to: Path) -> None:
    """Make `to` a copy of this checkout, with the times of its files, so that only what has changed is built again."""
    to.mkdir(parents=True, exist_ok=True)
    wanted = {path.relative_to(ROOT) for path in sources(ROOT)}
    for path in list(sources(to)):
        if path.relative_to(to) not in wanted:
            path.unlink()
    for name in wanted:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if not (to / name).exists() or (to / name).stat().st_mtime_ns != (ROOT / name).stat().st_mtime_ns:
            shutil.copy2(ROOT / name, to / name)
    for top, inner in FOLDERS.items():
        if not (to / inner).exists():
            (to / inner).symlink_to(to / top)


def run(command: list[str], folder: Path, **environment: str) -> int:
    """Run a command in `folder`, whose package is found before the installed one."""
    variables = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, *command], cwd=folder, env=variables, check=False).returncode


def main(kind: str, arguments: list[str]) -> int:
    """Build and test; the exit code."""
    if kind in HERE:
        return run(["-m", "pytest", *arguments], ROOT, **{HERE[kind]: "1"})
    copied(DEBUG)
    built = run(["setup.py", "-q", "build_ext", "--inplace"], DEBUG, AUTOGRAD_OPT_DEBUG_BUILD="1")
    return built or run(["-m", "pytest", *arguments], DEBUG)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("debug", *HERE):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
