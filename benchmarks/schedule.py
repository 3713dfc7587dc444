"""In which order a run measures: what counts first, side by side; what is timed after it, alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from . import jobs
from .jobs import Settings
from .section import Row, Section
from .sections import COUNTS

MOST_LANES = 4
COUNTING = 10.0
"""Seconds that the counts of one workload take, more or less."""


@dataclass(frozen=True)
class Task:
    """One process: a row of a section, or the counts of a workload for all sections."""

    section: str
    label: str
    expected: float
    """Seconds, by an earlier run if there is one."""


@dataclass(frozen=True)
class Plan:
    """What runs side by side, group after group, and then alone."""

    beside: tuple[tuple[Task, ...], ...]
    alone: tuple[Task, ...]
    lanes: int

    @property
    def tasks(self) -> list[Task]:
        """All, in their order."""
        return [task for group in self.beside for task in group] + list(self.alone)

    @property
    def seconds(self) -> float:
        """Expected for the whole."""
        return (sum(t.expected for group in self.beside for t in group) / self.lanes
                + sum(t.expected for t in self.alone))


def planned(wanted: Sequence[tuple[Section, Sequence[str], dict[str, float]]], settings: Settings) -> Plan:
    """The rows wanted of each section, with the seconds that earlier rows took."""
    rows = [(section, label, Task(section.name, label, took.get(label, section.expected)))
            for section, labels, took in wanted for label in labels]
    counted = dict.fromkeys(name for section, label, _ in rows if (name := section.counts(label)) is not None)
    counts = tuple(Task(COUNTS, name, COUNTING) for name in counted)
    beside = tuple(task for section, label, task in rows if not section.alone(label))
    longest_first = tuple(sorted(beside, key=lambda task: -task.expected))
    lanes = max(1, min(MOST_LANES, (os.cpu_count() or 1) // settings.threads))
    return Plan((counts, longest_first), tuple(task for section, label, task in rows if section.alone(label)), lanes)


def measured(plan: Plan, settings: Settings, on_tick: Any = lambda task: None) -> Iterator[tuple[Task, Row]]:
    """Every row when it is there; whatever ends this, no process is left behind."""

    def one(task: Task) -> tuple[Task, Row]:
        return task, jobs.in_process_of_its_own(task.section, task.label, settings, lambda: on_tick(task))

    jobs.prepare(settings.threads)
    pool = ThreadPoolExecutor(plan.lanes)
    try:
        for group in plan.beside:
            for done in as_completed([pool.submit(one, task) for task in group]):
                yield done.result()
        for task in plan.alone:
            yield one(task)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        jobs.end_all()
        pool.shutdown()
