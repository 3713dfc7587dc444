"""The command behind `python -m benchmarks` and `autograd-opt bench`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from autograd_opt.cli.main import FAILED, Number, console

from . import schedule, summary
from .conditions import build, conditions
from .jobs import LIMIT, PATIENCE, Settings
from .schedule import Plan, Task
from .section import Row, Section
from .sections import COUNTS, SECTIONS
from .show import terminal
from .tables import finished, merged, ordered, remarks, rows_of, tables, write
from .workloads import WORKLOADS

CHECKOUT = Path(__file__).resolve().parent.parent


def results_folder() -> Path:
    """docs/results of a checkout; elsewhere a folder beside the caller."""
    inside = CHECKOUT / "docs"
    return inside / "results" if (CHECKOUT / "pyproject.toml").exists() else Path("benchmark-results")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*WORKLOADS, *SECTIONS]), metavar="[SECTION|WORKLOAD]...")
@click.option("--peers", is_flag=True, help="Time other libraries as well, where they are installed.")
@click.option("--all", "everything", is_flag=True, help="Every section, as the documentation shows them.")
@click.option("--repeats", type=click.IntRange(min=1), default=30, show_default=True,
              help="Rounds behind a median, at most.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--limit", type=Number(min=1), default=LIMIT, show_default=True,
              help="Seconds after which one measurement is given up.")
@click.option("--patience", type=Number(min=1), default=PATIENCE, show_default=True,
              help="Seconds for the first call of another library, and for each new structure.")
@click.option("--resume", is_flag=True, help="Keep the rows of this build that an interrupted run has finished.")
@click.option("--update", is_flag=True, help="Replace only the rows measured now in files that are there already.")
@click.option("--json", "to_stdout", is_flag=True, help="The results as JSON on stdout, the rest on stderr.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder for Markdown, JSON and pictures; default docs/results of a checkout.")
@click.option("--dry", is_flag=True, help="Write no files.")
@click.option("--check", is_flag=True, help="Exit with 1 when a bar is missed.")
def bench(
    names: tuple[str, ...], peers: bool, everything: bool, repeats: int, threads: int, limit: float, patience: float,
    resume: bool, update: bool, to_stdout: bool, out: Path | None, dry: bool, check: bool,
) -> None:
    """Measure this library beside torch eager, and beside its peers.

    \b
    Sections, each a file in docs/results:
      times      every workload: time, kernels, peak memory, and the bars
      algorithms 65 whole programs as people write them
      world      a training step of each of many public packages
      regions    the same with ao.optimize(model) alone
      plans      each workload repeated from a plan of ao.compile
      peers      torch.compile, jax, HIPS autograd, PyTensor, CasADi, mlx
      cse        nodes, kernels, bytes, time with each pass, beside torch's FX CSE
      million    the passes alone on graphs of up to a million nodes
      memory     peaks, bytes for each node, growth over many steps
      budget     nanoseconds of each step of recording and backward
      profile    where the time of a step goes, by perf
      explain    scripts under `autograd-opt explain`: its cost, what it found

    Workloads named beside sections restrict those sections; without a section
    they are timed (`times`).
    """
    if threading.current_thread() is threading.main_thread():      # leave no child behind
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [s for s in SECTIONS if everything or s in names] or ["times"]
    if peers and "peers" not in wanted:
        wanted.append("peers")
    groups = [name for name in names if name in WORKLOADS]
    settings = Settings(repeats, threads, limit, patience)
    screen = console(to_stdout)
    folder = out or results_folder()
    pages = [Page(SECTIONS[name], groups, settings, folder, update=update, resume=resume, dry=dry) for name in wanted]
    fill(pages, settings, screen)
    for page in pages:
        page.show(screen)
        page.write(pictures=True)
        if not dry:
            screen.print(f"written to {folder / page.stem}.md and .json")
    if not dry:
        summary.write(folder)
    if to_stdout:
        click.echo(json.dumps({p.section.name: {"conditions": p.about, "rows": p.rows} for p in pages}, indent=1))
    failed = any("error" in row for page in pages for row in page.rows)
    missed = [str(check) for page in pages for check in page.section.checks(page.rows) if not check.met]
    if failed or (check and missed):
        click.echo("\n".join(missed), err=True)
        sys.exit(FAILED)


class Page:
    """A section's files while a run fills them."""

    def __init__(self, section: Section, groups: Sequence[str], settings: Settings, folder: Path, *, update: bool,
                 resume: bool, dry: bool) -> None:
        restricted = groups if section.of_workloads else []
        options = f"--repeats {settings.repeats} --threads {settings.threads}"
        if section.patient:
            options += f" --patience {settings.patience:.0f}"
        self.section, self.folder, self.dry = section, folder, dry
        command = " ".join(["python -m benchmarks", section.name, *restricted, options])
        self.about = conditions(command, settings.threads)
        self.stem = "-".join([section.name, *([] if update else restricted)])
        earlier = folder / f"{self.stem}.json"
        kept = finished(earlier, build(), options) if resume else []
        self.rows: list[Row] = rows_of(earlier) if update else kept
        self.took = {row["name"]: float(row["took"]) for row in rows_of(earlier) if "took" in row}
        done = {row["name"] for row in kept}
        self.labels = [label for label in section.labels(restricted) if label not in done]

    def put(self, row: Row, counts: dict[str, Row]) -> None:
        """A row that has come, completed; what is measured stays, whatever becomes of the run."""
        name = self.section.counts(row["name"])
        if name is not None and "error" not in row:
            row = row | counts[name] if "error" in counts[name] else self.section.joined(row, counts[name])
        self.rows = ordered(self.section, merged(self.rows, [row | {"name": row["name"], "build": build()}]))
        self.write(pictures=False)

    def write(self, *, pictures: bool) -> None:
        """Into the files, but for a dry run."""
        if not self.dry:
            write(self.section, self.rows, self.about, self.folder, self.stem, pictures=pictures)

    def show(self, screen: Console) -> None:
        """What there is to say, and the tables."""
        for text in (self.section.preface, *remarks(self.section, self.rows, self.about, whole=False)):
            if text:
                screen.print(text)
        for grid in tables(self.section, self.rows):
            screen.print(terminal(grid))


def fill(pages: Sequence[Page], settings: Settings, screen: Console) -> None:
    """Measure every row that is wanted, with progress."""
    plan = schedule.planned([(page.section, page.labels, page.took) for page in pages], settings)
    kept = sum(len(page.rows) for page in pages) if len(pages) > 1 else 0
    screen.print(f"{len(plan.tasks)} measurements, about {max(1, round(plan.seconds / 60))} min"
                 + (f"; {kept} rows are kept" if kept else ""))
    counts: dict[str, Row] = {}
    by_name = {page.section.name: page for page in pages}
    with Shown(plan, screen) as shown:
        for task, row in schedule.measured(plan, settings, shown.tick):
            if task.section == COUNTS:
                counts[task.label] = row
            else:
                by_name[task.section].put(row, counts)
            shown.done(task, row)


class Shown:
    """How far a run is: a bar on a terminal, elsewhere a line for each measurement."""

    def __init__(self, plan: Plan, screen: Console) -> None:
        self.plan, self.screen, self.count = plan, screen, 0
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left:"),
                            TimeRemainingColumn(), console=screen, disable=not screen.is_terminal)
        self.whole = self.bar.add_task("", total=sum(task.expected for task in plan.tasks))

    def __enter__(self) -> Shown:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def tick(self, task: Task) -> None:
        """A round of a measurement is done."""
        self.bar.update(self.whole, description=f"{self.count}/{len(self.plan.tasks)} {task.section}: {task.label}")

    def done(self, task: Task, row: Row) -> None:
        """A measurement is done."""
        self.count += 1
        self.bar.update(self.whole, advance=task.expected)
        if not self.screen.is_terminal:
            how = row.get("error") or ("not finished" if "unfinished" in row else "")
            self.screen.print(f"{self.count}/{len(self.plan.tasks)} {task.section}: {task.label}, {row['took']} s"
                              + (f": {how}" if how else ""))
