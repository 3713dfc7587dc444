"""What all sections together say: what cannot be won, every bar, and what was not measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autograd_opt._common.files import written_whole

from .section import Check, Grid
from .sections import SECTIONS
from .show import table
from .tables import remarks

CANNOT = (
    "Plain networks cannot win: an MLP, a CNN, an LSTM or a transformer computes nothing twice in a training step, "
    "so that there is nothing to merge, and recording can only cost as little as possible. Kernels are not fused and "
    "no code is generated."
)
NAME = "bars"


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """Conditions and rows of every section that has been measured."""
    paths = {name: folder / f"{name}.json" for name in SECTIONS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def every_bar(results: dict[str, dict[str, Any]]) -> Grid:
    """A line for each bar: how many workloads meet it, how many its goal, the worst, and all that miss it."""
    groups: dict[tuple[str, str, str, str], list[Check]] = {}
    for name, result in results.items():
        for check in SECTIONS[name].checks(result["rows"]):
            groups.setdefault((name, check.what, check.bar_text, check.goal_text), []).append(check)
    lines = []
    for (section, what, bar, goal), checks in groups.items():
        of = checks[0].name if len(checks) == 1 else f"{len(checks)}: {checks[0].name} … {checks[-1].name}"
        worst = min(c.found for c in checks) if checks[0].at_least else max(c.found for c in checks)
        reached = f"{sum(bool(c.reached) for c in checks)} of {len(checks)}" if goal else ""
        missed = ", ".join(f"{c.name} {c.found:,.2f}" for c in checks if not c.met)
        lines.append([section, what, of, f"{worst:,.2f}", bar, f"{sum(c.met for c in checks)} of {len(checks)}", goal,
                      reached, missed])
    return Grid("Every bar", ("section", "what", "of", "worst", "bar", "met", "goal", "reached", "missed by"), lines)


def missing(results: dict[str, dict[str, Any]]) -> list[str]:
    """What was not measured, and why; a line a section."""
    lines = []
    for name, section in SECTIONS.items():
        if name not in results:
            lines.append(f"- `{name}`: not measured.")
            continue
        said = remarks(section, results[name]["rows"], results[name]["conditions"])
        lines += [f"- `{name}`: {said[0]}"] if len(said) == 1 else []
        lines += [f"- `{name}`:", *(f"  - {text}" for text in said)] if len(said) > 1 else []
    return lines or ["Nothing is missing."]


def page(results: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    commands = [f"`{result['conditions']['command']}`, {result['conditions']['date']}" for result in results.values()]
    return "\n".join([
        "# Bars", "", CANNOT, "", "## Not measured, and why", "", *missing(results), "",
        "## Every bar", "", *table(every_bar(results)), "", "Measured by " + "; ".join(commands) + ".", ""])


def write(folder: Path) -> None:
    """Beside the sections' own pages, where there is one of a complete run."""
    results = found(folder)
    if not results:
        return
    with written_whole(folder / f"{NAME}.md") as draft:
        draft.write_text(page(results), encoding="utf-8")


def lines_of(folder: Path) -> Sequence[str]:
    """Bars and what is missing, for a page of the documentation."""
    results = found(folder)
    return [*table(every_bar(results)), "", *missing(results)]
