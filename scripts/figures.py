"""Write measured figures into the pages that quote them: `python scripts/figures.py`.

README.md and docs/index.md hold regions between `<!-- figures: NAME -->` and `<!-- end -->`.  What
stands in them comes from docs/results and from nowhere else; `--check` leaves with 1 where
a region is not what the results say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = [ROOT / "docs" / "results" / name for name in ("times.json", "all.json")]
"""The first that exists is read."""
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
REGION = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
GAIN = {
    "mechanics": "double pendulum, formulas and Jacobian from sympy",
    "sharing 0.9": "elementwise work, nine tenths of it repeated",
    "population 10,000": "symbolic regression, 64 trees of one population",
    "pinn_navier_stokes": "physics-informed network, Navier–Stokes",
    "gp": "Gaussian-process likelihood, written plainly",
}
"""Workloads (by the beginning of their names) where something repeats."""
PLAIN = {"mlp": "an MLP", "cnn": "a CNN", "transformer": "a transformer", "lstm": "an LSTM"}
"""Unmodified networks, where nothing does."""
EAGER, HERE = "torch eager", "optimize=True"
Row = dict[str, Any]


def row_of(rows: list[Row], start: str) -> Row:
    """The row of a workload."""
    for row in rows:
        if row["name"].startswith(start):
            return row
    raise SystemExit(f"the results have no workload {start!r}: run python -m benchmarks first")


def ratio(row: Row) -> str:
    """Time as a share of torch eager's."""
    return f"{row['times'][HERE]['ratio']:.2f}"


def gain(rows: list[Row]) -> str:
    """A table of steps that repeat work."""
    lines = ["| one step, forward and backward | kernels in torch eager | here | time, torch eager = 1 |",
             "|---|--:|--:|--:|"]
    for start, text in GAIN.items():
        row = row_of(rows, start)
        eager, here = (sum(row["kernels"][way].values()) for way in (EAGER, HERE))
        lines.append(f"| {text} | {eager:,} | {here:,} | {ratio(row)} |")
    return "\n".join(lines)


def plain(rows: list[Row]) -> str:
    """What recording costs where nothing repeats."""
    parts = [f"{ratio(row_of(rows, start))} in {text}" for start, text in PLAIN.items()]
    return f"Time of one step, torch eager = 1: {', '.join(parts)}."


REGIONS: dict[str, Callable[[list[Row]], str]] = {"gain": gain, "plain": plain}


def renewed(page: str, rows: list[Row]) -> str:
    """A page with its regions written anew."""
    return REGION.sub(lambda m: f"{m[1]}{REGIONS[m[2]](rows)}\n{m[4]}", page)


def main() -> int:
    """Write, or check, every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    source = next(path for path in RESULTS if path.exists())
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    stale = []
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = renewed(old, rows)
        if new != old:
            stale.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"not what {source.name} says: {', '.join(stale)}; run python scripts/figures.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
