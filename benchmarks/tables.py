"""Rows as a table for a terminal, and as Markdown and JSON for the documentation."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from .measure import EAGER
from .rows import OFF, ON, Row, met

HEADINGS = ("workload", "torch eager", "as written", "optimized", "others", "kernels", "traced, FX CSE", "peak")
BAR_HEADINGS = ("workload", "what", "measured", "bar", "")
CAPTION = (
    "Forward and backward as a share of torch eager: median of the rounds. Kernels: torch eager → optimized; "
    "peak: bytes alive at once, optimized / torch eager."
)


def conditions(command: str) -> dict[str, Any]:
    """Versions, machine, threads, date: without these a table says nothing."""

    def found(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    packages = ("autograd_opt", "torch", "rustworkx", "numpy", "jax", "autograd")
    return {
        "command": command,
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        **{package: found(package) for package in packages},
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cells(row: Row, quartiles: bool) -> list[str]:
    """One row as text."""
    if row.error:
        return [row.name, "failed", *[""] * (len(HEADINGS) - 2)]

    def ratio(name: str) -> str:
        t = row.times[name]
        return f"{t.ratio:.2f} ({t.spread[0]:.2f}–{t.spread[1]:.2f})" if quartiles else f"{t.ratio:.2f}"

    share = f" (u = {row.facts['u']:.2f})" if "u" in row.facts else ""
    return [
        row.name + share,
        f"{row.times[EAGER].seconds * 1e3:.2f} ms", ratio(OFF), ratio(ON),
        ", ".join(f"{name} {t.ratio:.2f}" for name, t in row.times.items() if name not in (EAGER, OFF, ON)),
        f"{sum(row.kernels[EAGER].values())} → {sum(row.kernels[ON].values())}",
        str(row.traced[1]) if row.traced else "—",
        f"{row.peak[ON] / row.peak[EAGER]:.2f}",
    ]


def bar_cells(row: Row) -> list[list[str]]:
    """Each bar of a row, with what was measured."""
    return [[row.name, what, f"{found:.2f}", f"{bar:.2f}", "met" if met(found, bar) else "MISSED"]
            for what, found, bar in row.checks()]


def terminal(rows: list[Row]) -> list[Table]:
    """Two tables for rich: what was measured, and the bars."""
    main = Table(title="measured", caption=CAPTION)
    for i, heading in enumerate(HEADINGS):
        main.add_column(heading, justify="left" if i == 0 else "right")
    bars = Table(title="bars: at most")
    for heading in BAR_HEADINGS:
        bars.add_column(heading, justify="right" if heading in ("measured", "bar") else "left")
    for row in rows:
        main.add_row(*cells(row, quartiles=False))
        for line in bar_cells(row):
            bars.add_row(*line)
    return [main, bars]


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """The same for the documentation, with the conditions above and quartiles in the cells."""

    def table(headings: Iterable[str], body: list[list[str]]) -> list[str]:
        headings = list(headings)
        lines = [headings, ["---"] * len(headings), *body]
        return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]

    lines = [f"Written by `{about['command']}`.", ""]
    lines += [f"- {key}: {value}" for key, value in about.items() if key != "command"]
    lines += ["", CAPTION + " Quartiles in parentheses.", ""]
    lines += table(HEADINGS, [cells(row, quartiles=True) for row in rows])
    lines += ["", "Bars: the most that was allowed.", ""]
    lines += table(BAR_HEADINGS, [line for row in rows for line in bar_cells(row)])
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    notes += [line for row in rows if row.error for line in row.missed()]
    lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def as_json(rows: list[Row], about: dict[str, Any]) -> str:
    """Everything measured, for a machine."""
    return json.dumps({"conditions": about, "rows": [row.to_dict() for row in rows]}, indent=1) + "\n"
