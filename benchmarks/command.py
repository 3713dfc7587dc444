"""The command behind `python -m benchmarks` and `autograd-opt bench`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autograd_opt.cli import FAILED, console
from autograd_opt.files import written_whole

from .conditions import conditions
from .jobs import LIMIT, Settings, in_process_of_its_own
from .section import Grid, Row, Section, bars_grid
from .sections import SECTIONS
from .show import markdown, notes, terminal
from .workloads import WORKLOADS

CHECKOUT = Path(__file__).resolve().parent.parent


def results_folder() -> Path:
    """docs/results of a checkout; elsewhere a folder beside the caller."""
    inside = CHECKOUT / "docs"
    return inside / "results" if (CHECKOUT / "pyproject.toml").exists() else Path("benchmark-results")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*WORKLOADS, *SECTIONS]), metavar="[SECTION|WORKLOAD]...")
@click.option("--peers", is_flag=True, help="Time other libraries as well, where they are installed.")
@click.option("--all", "everything", is_flag=True, help="Every section, as the documentation shows them; hours.")
@click.option("--repeats", type=click.IntRange(min=1), default=30, show_default=True, help="Rounds behind a median.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--limit", type=click.FloatRange(min=1), default=LIMIT, show_default=True,
              help="Seconds after which one measurement is given up.")
@click.option("--update", is_flag=True, help="Replace only the rows measured now in files that are there already.")
@click.option("--json", "to_stdout", is_flag=True, help="The results as JSON on stdout, the rest on stderr.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder for Markdown, JSON and pictures; default docs/results of a checkout.")
@click.option("--dry", is_flag=True, help="Write no files.")
@click.option("--check", is_flag=True, help="Exit with 1 when a bar is missed.")
def bench(
    names: tuple[str, ...], peers: bool, everything: bool, repeats: int, threads: int, limit: float, update: bool,
    to_stdout: bool, out: Path | None, dry: bool, check: bool,
) -> None:
    """Measure this library beside torch eager, and beside its peers.

    \b
    Sections, each a file in docs/results:
      times    every workload: time, kernels, peak memory, and the bars
      peers    torch.compile, jax, HIPS autograd, PyTensor, CasADi, mlx
      cse      nodes, kernels, bytes, time with each pass, beside torch's FX CSE
      million  the passes alone on graphs of up to a million nodes
      memory   peaks, bytes for each node, growth over many steps
      budget   nanoseconds of each step of recording and backward
      profile  where the time of a step goes, by perf
      explain  scripts under `autograd-opt explain`: its cost, what it found

    Workloads named beside sections restrict those sections; without a section
    they are timed (`times`).
    """
    if threading.current_thread() is threading.main_thread():      # leave no child behind
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [s for s in SECTIONS if everything or s in names] or ["times"]
    if peers and "peers" not in wanted:
        wanted.append("peers")
    groups = [name for name in names if name in WORKLOADS]
    settings = Settings(repeats, threads, limit)
    screen = console(to_stdout)
    options = f"--repeats {repeats} --threads {threads}"
    results, failed, missed = {}, False, []
    for section in (SECTIONS[name] for name in wanted):
        restricted = groups if section.of_workloads else []
        command = " ".join(["python -m benchmarks", section.name, *restricted, options])
        about = conditions(command, threads)
        folder = out or results_folder()
        stem = "-".join([section.name, *([] if update else restricted)])
        rows = rows_of(folder / f"{stem}.json") if update else []
        for new in measured(section, restricted, settings, screen):
            rows = merged(rows, [new])
            if not dry:             # what is measured stays, whatever becomes of the run
                write(section, rows, about, folder, stem, pictures=False)
        results[section.name] = {"conditions": about, "rows": rows}
        show(section, rows, screen)
        if not dry:
            write(section, rows, about, folder, stem, pictures=True)
            screen.print(f"written to {folder / stem}.md and .json")
        failed = failed or any("error" in row for row in rows)
        missed += [str(check) for check in section.checks(rows) if not check.met]
    if to_stdout:
        click.echo(json.dumps(results, indent=1))
    if failed or (check and missed):
        click.echo("\n".join(missed), err=True)
        sys.exit(FAILED)


def measured(section: Section, groups: Sequence[str], settings: Settings, screen: Console) -> Iterator[Row]:
    """Every row when it is there, with progress on a terminal."""
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=screen, disable=not screen.is_terminal) as bar:
        labels = section.labels(groups)
        whole = bar.add_task(section.name, total=len(labels))
        for label in labels:
            rounds = bar.add_task(label, total=None)
            yield in_process_of_its_own(section.name, label, settings, lambda: bar.advance(rounds))  # noqa: B023
            bar.remove_task(rounds)
            bar.advance(whole)


def rows_of(path: Path) -> list[Row]:
    """Rows of an earlier run."""
    found: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    return found


def merged(before: list[Row], rows: list[Row]) -> list[Row]:
    """Rows with those measured now in their places."""
    new = {row["name"]: row for row in rows}
    kept = [new.pop(row["name"], row) for row in before]
    return kept + list(new.values())


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


def show(section: Section, rows: list[Row], screen: Console) -> None:
    """The tables and what there is to say about them."""
    for grid in tables(section, rows):
        screen.print(terminal(grid))
    for note in notes(rows):
        screen.print(note)


def write(section: Section, rows: list[Row], about: dict[str, Any], folder: Path, stem: str, pictures: bool) -> None:
    """Markdown, JSON and pictures; each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [p.name for p in section.plot(rows, folder / stem)] if pictures and section.plot is not None else []
    page = markdown(section.title, tables(section, rows), rows, about, drawn)
    page += "".join(f"\n{line}\n" for line in unmeasured(section, rows) if stem == section.name)
    for ending, text in ((".md", page), (".json", json.dumps({"conditions": about, "rows": rows}, indent=1) + "\n")):
        with written_whole(folder / f"{stem}{ending}") as draft:
            draft.write_text(text)
