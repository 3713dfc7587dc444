"""A section's rows on their way into files: kept ones, new ones, what is missing and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autograd_opt._common.files import written_whole

from .section import Grid, Row, Section, bars_grid
from .show import markdown, notes


def rows_of(path: Path) -> list[Row]:
    """Rows of an earlier run."""
    found: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    return found


def finished(path: Path, build: str, options: str) -> list[Row]:
    """Rows of an earlier run that need no other: of the same build, measured in the same way, and no failures."""
    if not path.exists() or not json.loads(path.read_text())["conditions"]["command"].endswith(options):
        return []
    return [row for row in rows_of(path) if row.get("build") == build and "error" not in row]


def merged(before: list[Row], rows: list[Row]) -> list[Row]:
    """Rows with those measured now in their places."""
    new = {row["name"]: row for row in rows}
    kept = [new.pop(row["name"], row) for row in before]
    return kept + list(new.values())


def ordered(section: Section, rows: list[Row]) -> list[Row]:
    """In the order of the section's labels, whatever the order in which they came; others last."""
    place = {label: i for i, label in enumerate(section.labels([]))}
    return sorted(rows, key=lambda row: place.get(row["name"], len(place)))


def tables(section: Section, rows: list[Row]) -> list[Grid]:
    """What was measured, and the bars where there are any."""
    checks = section.checks(rows)
    return [*section.grids(rows), *([bars_grid(checks)] if checks else [])]


def unmeasured(section: Section, rows: list[Row]) -> list[str]:
    """What a complete run would have measured as well, as a sentence; rows of one workload by its name alone."""
    everything = section.labels([])
    missing = [label for label in everything if label not in {row["name"] for row in rows}]
    names = dict.fromkeys(label.partition(": ")[0] for label in missing)
    text = f"Not measured in this run: {len(missing)} of {len(everything)} rows, of {', '.join(names)}."
    return [text] if missing else []


def unfinished(rows: Sequence[Row]) -> list[str]:
    """What was given up for lack of time, as a sentence."""
    late = [f"{row['name']} ({row.get('phase', 'first call')})" for row in rows if "unfinished" in row]
    seconds = {row["unfinished"] for row in rows if "unfinished" in row}
    return [f"Not finished in {max(seconds):.0f} s: {', '.join(late)}."] if late else []


def older(rows: Sequence[Row], about: dict[str, Any]) -> list[str]:
    """What was measured with another build of the library than the command that is named, as a sentence."""
    names = [str(row["name"]) for row in rows if row.get("build") != about.get("build")]
    if not names:
        return []
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return [f"Measured with another build of the library: {shown}."]


def remarks(section: Section, rows: list[Row], about: dict[str, Any], *, whole: bool = True) -> list[str]:
    """What a reader should know before the tables: what is missing, and why."""
    return [*(unmeasured(section, rows) if whole else []), *unfinished(rows), *older(rows, about), *notes(rows)]


def write(section: Section, rows: list[Row], about: dict[str, Any], folder: Path, stem: str, *, pictures: bool) -> None:
    """Markdown, JSON and pictures; each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ordered(section, rows)
    drawn = [p.name for p in section.plot(rows, folder / stem)] if pictures and section.plot is not None else []
    page = markdown(section, tables(section, rows), about, drawn,
                    remarks(section, rows, about, whole=stem == section.name))
    for ending, text in ((".md", page), (".json", json.dumps({"conditions": about, "rows": rows}, indent=1) + "\n")):
        with written_whole(folder / f"{stem}{ending}") as draft:
            draft.write_text(text)
