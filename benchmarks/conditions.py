"""Under which conditions a table was measured: without these its figures say nothing."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("autograd_opt", "torch", "rustworkx", "numpy", "jax", "autograd", "pytensor", "casadi", "mlx", "sympy")


def conditions(command: str, threads: int) -> dict[str, Any]:
    """Command, date, versions, machine, threads, and how busy the machine was."""
    return {
        "command": command,
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
        "build": build(),
        "threads": threads,
        "processor": processor(),
        "cores": os.cpu_count(),
        "load at the start": round(os.getloadavg()[0], 1),
    }


@functools.cache
def build() -> str:
    """What tells one build of the library from another: a hash of its modules and of the passes."""
    import autograd_opt
    from autograd_opt import passes

    found = hashlib.sha256()
    for package in (autograd_opt, passes):
        folder = Path(str(package.__file__)).parent
        for path in sorted(p for ending in ("py", "so") for p in folder.rglob(f"*.{ending}")):
            if "benchmarks" not in path.relative_to(folder).parts:
                found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


def installed(package: str) -> str:
    """Version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
