"""Check the wheels of a folder: `python scripts/wheel_size.py dist`; exit code 1 where one holds too much."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

MOST = 5 << 20
"""Bytes of a wheel."""


def wrong(wheel: Path) -> list[str]:
    """What is wrong with a wheel."""
    found = [f"{wheel.stat().st_size / 2**20:.1f} MiB, more than {MOST >> 20}"] if wheel.stat().st_size > MOST else []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found += [f"holds {name}" for name in names if name.split("/")[0] in ("torch", "passes", "benchmarks", "tests")]
    return found


def main() -> int:
    wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
    faults = {wheel.name: wrong(wheel) for wheel in wheels}
    for wheel in wheels:
        print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB", *faults[wheel.name], sep="\n  ")
    return int(not wheels or any(faults.values()))


if __name__ == "__main__":
    sys.exit(main())
