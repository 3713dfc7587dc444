"""The command behind `python -m benchmarks` and `autograd-opt bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autograd_opt.cli import FAILED, console, written_whole

from .rows import Row, measure_row
from .tables import as_json, conditions, markdown, terminal
from .workloads import WORKLOADS

CHECKOUT = Path(__file__).resolve().parent.parent


def results_folder() -> Path:
    """docs/results of a checkout; elsewhere a folder beside the caller."""
    inside = CHECKOUT / "docs"
    return inside / "results" if (CHECKOUT / "pyproject.toml").exists() else Path("benchmark-results")


@click.command()
@click.argument("workload", nargs=-1, type=click.Choice([*WORKLOADS, "million"]))
@click.option("--repeats", type=click.IntRange(min=1), default=30, show_default=True, help="Rounds behind a median.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--peers", is_flag=True, help="Time other libraries as well, where they are installed.")
@click.option("--json", "to_stdout", is_flag=True, help="The results as JSON on stdout, the rest on stderr.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder for the Markdown and JSON files; default docs/results of a checkout.")
@click.option("--dry", is_flag=True, help="Write no files.")
@click.option("--check", is_flag=True, help="Exit with 1 when a bar is missed.")
def bench(
    workload: tuple[str, ...], repeats: int, threads: int, peers: bool, to_stdout: bool, out: Path | None, dry: bool,
    check: bool,
) -> None:
    """Time this library beside torch eager (and peers), one table for all workloads named.

    Without a name every workload with tensors is run; `million` times the passes alone.
    """
    torch.set_num_threads(threads)
    if "million" in workload:
        from . import million

        million.main()
    names = [name for name in (workload or tuple(WORKLOADS)) if name != "million"]
    if not names:
        return
    screen = console(to_stdout)
    rows = measured(names, repeats, peers, screen)
    words = [*workload, *(["--peers"] if peers else []), "--repeats", str(repeats), "--threads", str(threads)]
    about = conditions(" ".join(["python -m benchmarks", *words]))
    for table in terminal(rows):
        screen.print(table)
    for note in dict.fromkeys(note for row in rows for note in row.notes):
        screen.print(note)
    if to_stdout:
        click.echo(as_json(rows, about), nl=False)
    if not dry:
        folder = out or results_folder()
        stem = "-".join(workload) if workload else "benchmarks"
        for ending, text in ((".md", markdown(rows, about)), (".json", as_json(rows, about))):
            with written_whole(folder / f"{stem}{ending}") as draft:
                draft.write_text(text)
        screen.print(f"written to {folder / stem}.md and .json")
    missed = [line for row in rows for line in row.missed()]
    if any(row.error for row in rows) or (check and missed):
        click.echo("\n".join(missed), err=True)
        sys.exit(FAILED)


def measured(names: list[str], repeats: int, peers: bool, screen: object) -> list[Row]:
    """Every row, with progress on a terminal."""
    makes = [(name, make) for name in names for make in WORKLOADS[name]]
    rows = []
    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   console=screen, disable=not screen.is_terminal)  # type: ignore[arg-type,attr-defined]
    with bar:
        whole = bar.add_task("workloads", total=len(makes))
        for name, make in makes:
            rounds = bar.add_task(name, total=repeats)
            rows.append(measure_row(make, name, repeats, lambda task=rounds: bar.advance(task), peers))  # type: ignore[misc]
            bar.update(rounds, visible=False)
            bar.advance(whole)
    return rows
