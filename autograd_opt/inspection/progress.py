"""Progress on the terminal while a large graph is drawn or written as a page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LARGE = 2000
"""Nodes of a graph from which on a user waits for more than a moment."""


def nodes_of(graph: Any) -> int:
    """How many nodes a graph or a snapshot has; 0 for what is neither, which is refused later."""
    return len(graph) if hasattr(graph, "__len__") else 0


@contextmanager
def progress(nodes: int, stages: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many stages on stderr; nothing where stderr is no terminal or the graph is small.

    What it yields is called at the beginning of each stage, with its name.

    >>> with progress(3, 2) as begin:
    ...     begin("reading the graph")
    """
    if nodes < LARGE or sys.stderr is None or not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=stages)

        def begin(name: str) -> None:
            first = not bar.tasks[0].description
            bar.update(task, advance=0 if first else 1, description=f"{nodes:,} nodes: {name}")
            bar.refresh()

        yield begin
