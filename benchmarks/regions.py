"""Section `regions`: the public packages' steps with `ao.optimize(model)` and no other change, beside torch eager."""

from __future__ import annotations

import statistics
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

import autograd_opt as ao

from . import bars, packages, whole_programs
from .jobs import Settings, Tick
from .measure import EAGER, Variant, measure
from .section import Check, Grid, Row, Section
from .workload import Workload
from .world import WORLD

REGION = "ao.optimize"
CAPTION = (
    "Time of a training step as a share of torch eager, where each model that the step closes over was given to "
    "`ao.optimize` and nothing else was changed: median of the rounds, quartiles in parentheses. The losses and all "
    "gradients were equal before anything was timed. Steps without a model are left out; where a step calls other "
    "methods of a model than `forward`, they run as written."
)


def models_of(found: Any, seen: set[int] | None = None) -> Iterator[nn.Module]:
    """Modules with parameters that a function closes over, directly or by functions that it closes over."""
    seen = set() if seen is None else seen
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, nn.Module):
        if next(found.parameters(), None) is not None:
            yield found
    elif isinstance(found, types.FunctionType):
        for cell in found.__closure__ or ():
            yield from models_of(cell.cell_contents, seen)


def made(label: str) -> Workload:
    """The package's step, with the same weights and data each time."""
    torch.manual_seed(0)
    workload = WORLD[label].make()
    workload.name = label
    return workload


def measure_step(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Time one package's step with and without the line."""
    version = WORLD[label].version()
    if version is None:
        return packages.measure_step(label, settings, on_round)
    warnings.simplefilter("ignore")
    eager, region = made(label), made(label)
    models = list(models_of(region.forward))
    if not models:
        return {"name": label, "missing": "a model", "notes": [f"{label}: the step has no model"]}
    for model in models:
        ao.optimize(model)
    variants = [Variant(EAGER, eager, eager.step), Variant(REGION, region, region.step)]
    times = measure(variants, settings.repeats, on_round)
    return {"name": label, "version": version, "times": {name: asdict(timing) for name, timing in times.items()}}


def grids(rows: list[Row]) -> list[Grid]:
    """The summary, then every step that has a model."""
    kept = [row for row in rows if row.get("missing") != "a model"]
    return whole_programs.grids(kept, CAPTION, {REGION: "in a region"})


def checks(rows: list[Row]) -> list[Check]:
    """The median of what is installed."""
    found = whole_programs.ratios(rows, REGION)
    return [Check("regions", "median time / torch eager", statistics.median(found), *bars.REGIONS_MEDIAN_BAR)] \
        if found else []


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Every program of every package."""
    return packages.labels(groups)


SECTION = Section("regions", "Public packages with one line, beside torch eager", labels, measure_step, grids, checks,
                  of_workloads=False, expected=8.0)
