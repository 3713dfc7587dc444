"""Section `world`: a training step of each of many public packages, as written and optimized, beside torch eager."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence

import torch

from . import bars, whole_programs
from .jobs import Settings, Tick
from .measure import ON
from .section import Check, Grid, Row, Section
from .world import WORLD, attention, dynamics, frameworks, geometry, images, probability, training_tools

MODULES = (probability, dynamics, geometry, attention, images, training_tools, frameworks)
"""Importing a module registers its programs in `WORLD`."""
CAPTION = (
    "Time of a training step as a share of torch eager: median of the rounds, quartiles in parentheses. Networks are "
    "small and their weights random; the losses and all gradients were equal before anything was timed."
)


def measure_step(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Time one package's step; a package that is not installed is a row without times."""
    entry = WORLD[label]
    version = entry.version()
    if version is None:
        note = f"{entry.package} is not installed: pip install -c constraints.txt \".[world]\""
        return {"name": label, "missing": entry.package, "notes": [note]}
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    workload = entry.make()
    workload.name = label
    return whole_programs.timed(label, workload, settings, on_round) | {"version": version}


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Every program of every package."""
    return sorted(WORLD)


def grids(rows: list[Row]) -> list[Grid]:
    """The summary, then every package."""
    return whole_programs.grids(rows, CAPTION)


def checks(rows: list[Row]) -> list[Check]:
    """The median, the ninth decile and the worst of what is installed."""
    found = whole_programs.ratios(rows, ON)
    if not found:
        return []
    return [Check("world", "median time / torch eager", statistics.median(found), *bars.WORLD_MEDIAN_BAR),
            Check("world", "p90 time / torch eager", whole_programs.ninth_decile(found), *bars.WORLD_P90_BAR),
            Check("world", "worst time / torch eager", found[-1], *bars.WORLD_WORST_BAR)]


SECTION = Section("world", "Public packages beside torch eager", labels, measure_step, grids, checks,
                  of_workloads=False, expected=10.0)
