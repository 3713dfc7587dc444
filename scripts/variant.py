"""Run tests in a checkout that is built, or runs, another way.

    python scripts/variant.py debug [pytest arguments]     bounds, None and initialization are checked in compiled code
    python scripts/variant.py address [pytest arguments]   AddressSanitizer: memory that is used when it is gone
    python scripts/variant.py undefined [pytest arguments] UBSan: what C leaves undefined
    python scripts/variant.py hashes [pytest arguments]    all hashes are equal: only full comparisons tell keys apart
    python scripts/variant.py compact [pytest arguments]   dead records are dropped at every append
    python scripts/variant.py late [pytest arguments]      every graph looks for views that are older than their history
    python scripts/variant.py plain [pytest arguments]     no acceleration: torch's public interface alone
    python scripts/variant.py switches [pytest arguments]  once for each acceleration, which is off
    python scripts/variant.py dev [pytest arguments]       Python's development mode: its debug allocator, all warnings

The first three build in build/KIND, which the next run goes on with; the others run this build, here.  The exit code is
pytest's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDS = {
    "debug": ({"AUTOGRAD_OPT_DEBUG_BUILD": "1"}, ""),
    # torch's own libraries leak at exit; Python's allocator hides what it hands out again
    "address": ({"AUTOGRAD_OPT_SANITIZER": "address", "PYTHONMALLOC": "malloc",
                 "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:log_path=report"}, "libasan.so"),
    "undefined": ({"AUTOGRAD_OPT_SANITIZER": "undefined",
                   "UBSAN_OPTIONS": "print_stacktrace=1:log_path=report"}, "libubsan.so"),
}
"""Variants with a build of their own -> their variables, and the library that is loaded before all others.

Reports of a sanitizer are files, since pytest keeps what a test writes, and a process that ends there loses it.
"""
APART = {".git", ".asv", "build", "dist", "_build", "demo-output", "jupyter_execute", "__pycache__", ".hypothesis",
         *(f".{tool}_cache" for tool in ("pytest", "mypy", "ruff"))}
HERE = {"hashes": {"AUTOGRAD_OPT_DEGENERATE_HASH": "1"}, "compact": {"AUTOGRAD_OPT_COMPACT": "1"},
        "late": {"AUTOGRAD_OPT_LATE": "1"}, "plain": {"AUTOGRAD_OPT_PLAIN": "1"},
        "dev": {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}}
"""Variants of this build -> the variables that ask for them."""
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


def accelerations() -> list[str]:
    """The names of the accelerations that can be switched off."""
    program = "from autograd_opt.abi.switches import PARTS; print(*PARTS)"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.split()


def path_of(library: str) -> str:
    """The path of one of the compiler's own libraries."""
    return subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True,
                          check=True).stdout.strip()


def main(kind: str, arguments: list[str]) -> int:
    """Build and test; the exit code."""
    pytest = ["-m", "pytest", *arguments]
    if kind in HERE:
        return run(pytest, ROOT, **HERE[kind])
    if kind == "switches":
        return max([run(pytest, ROOT, AUTOGRAD_OPT_PLAIN=name) for name in accelerations()])
    folder, (variables, library) = ROOT / "build" / kind, BUILDS[kind]
    copied(folder)
    built = run(["setup.py", "-q", "build_ext", "--inplace"], folder, **variables)
    if library:
        # C++'s library with it: exceptions of torch's pass through the sanitizer
        variables["LD_PRELOAD"] = f"{path_of(library)} {path_of('libstdc++.so.6')}"
    code = built or run(pytest, folder, **variables)
    reports = sorted(folder.glob("report.*"))
    for report in reports:
        print(report.read_text(errors="replace"))
        report.unlink()
    return code or int(bool(reports))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("switches", *BUILDS, *HERE):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
