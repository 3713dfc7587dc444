"""Section `explain`: what watching costs a script, whether it changes its results, and what it finds.

Each script runs alternately by itself and under `autograd-opt explain`, in processes of their own.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import bars
from .jobs import Settings, Tick
from .section import Check, Grid, Row, Section

FOLDER = Path(__file__).parent / "watched"
MOST_REPEATS = 7
MOST_SECONDS = 25.0
"""Seconds of the wall after which no further pair of runs is begun: some scripts take half a minute."""
SHORT = 0.5
"""Seconds of own work below which a script is run twice as often: a disturbance is a larger share of its time."""
SHOWN = 3
HEADINGS = ("script", "pairs", "without", "with, of that", "whole process", "same results", "watched", "operations",
            "repeats", "of kernel time")


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Every script of the folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def run(folder: str, command: list[str]) -> tuple[tuple[str, ...], float, float, str]:
    """What a script computed, its own seconds, those of the whole process, and what `explain` found, as JSON."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    waited = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = done.stdout if done.stdout.startswith("{") else ""
    said = [line for line in (done.stderr if found else done.stdout).splitlines() if line.startswith(("0x", "-0x"))]
    *results, seconds = said[-1].split()
    return tuple(results), float(seconds), waited, found


def measure_explain(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """One script."""
    with tempfile.TemporaryDirectory() as elsewhere:         # where it is nobody's but a user's
        shutil.copy(FOLDER / f"{label}.py", elsewhere)
        return compared(label, elsewhere, settings, on_round)


def compared(label: str, folder: str, settings: Settings, on_round: Tick) -> Row:
    """Pairs of runs of a script, by itself and watched."""
    script = f"{label}.py"
    without: list[float] = []
    ratios, whole, results = [], [], set()
    found: dict[str, Any] = {}
    begin = time.monotonic()
    for done in range(min(settings.repeats, 2 * MOST_REPEATS)):
        more = 2 if done and statistics.median(without) < SHORT else 1
        if done and (done >= more * MOST_REPEATS or time.monotonic() - begin > more * MOST_SECONDS):
            break
        bare, seconds, waited, _ = run(folder, [script])
        watched, slower, longer, text = run(folder, ["-m", "autograd_opt", "explain", "--json", script])
        without.append(seconds)
        ratios.append(slower / seconds)
        whole.append(longer / waited)
        results |= {bare, watched}
        found = json.loads(text)
        on_round()
    lower, middle, upper = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "name": label, "pairs": len(ratios), "seconds": statistics.median(without), "ratio": middle,
        "spread": [lower, upper],
        "whole": statistics.median(whole), "results": len(results),
        "operations": found["operations"], "repeated": found["repeated"],
        "share": found["repeated_seconds"] / found["seconds"] if found["seconds"] else 0.0,
        "watched": [found["watched_nodes"], found["nodes"]],
        "findings": [{"advice": f["advice"], "count": f["count"], "seconds": f["seconds"]}
                     for f in found["findings"][:SHOWN]],
    }


def checks(rows: list[Row]) -> list[Check]:
    """What watching may cost; one result, watched or not."""
    found = []
    for row in rows:
        if "error" not in row:
            found.append(Check(row["name"], "time under explain / without", row["ratio"], *bars.WATCHING_BAR))
            if "whole" in row:
                found.append(Check(row["name"], "time of the process with explain / without", row["whole"],
                                   *bars.WATCHING_BAR))
            found.append(Check(row["name"], "different results in all runs", row["results"], 1))
    return found


def watched_text(nodes: list[int]) -> str:
    """A part of the nodes that autograd recorded."""
    return f"{nodes[0] / nodes[1]:.0%}" if nodes[1] else "none recorded"


def grids(rows: list[Row]) -> list[Grid]:
    """Costs, and what was found."""
    costs, advice = [], []
    for row in rows:
        if "error" in row:
            costs.append([row["name"], f"failed: {row['error']}", *[""] * (len(HEADINGS) - 2)])
            continue
        low, high = row["spread"]
        costs.append([
            row["name"], str(row.get("pairs", "")), f"{row['seconds']:.2f} s",
            f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})",
            f"{row['whole']:.2f}" if "whole" in row else "not measured",
            "yes" if row["results"] == 1 else "NO", watched_text(row["watched"]),
            f"{row['operations']:,}", f"{row['repeated']:,}", f"{row['share']:.1%}",
        ])
        advice += [[row["name"], f["advice"], f"{f['count']:,}", f"{f['seconds'] * 1e3:.1f} ms"]
                   for f in row["findings"]]
    return [
        Grid("Cost of watching", HEADINGS, costs,
             "Processor time of each script's own work, median over pairs of runs, quartiles in parentheses; whole "
             "process: what a user waits for with `explain`, `python script.py` = 1, imports and report included; "
             "watched: of the nodes that autograd recorded; operations: those watched; of kernel time: of theirs, what "
             "repeats."),
        Grid("What was found", ("script", "advice", "operations", "kernel time"), advice,
             f"The first {SHOWN} findings of the last run of each script."),
    ]


SECTION = Section("explain", "Watching scripts", labels, measure_explain, grids, checks, of_workloads=False,
                  expected=45.0)
