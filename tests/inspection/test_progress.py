"""Progress while a large graph is drawn: on a terminal only, and gone afterwards."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import autograd_opt as ao
from autograd_opt.inspection.progress import LARGE


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def chain(nodes: int) -> ao.AutogradGraph:
    x = ao.tensor(torch.ones(2))
    with ao.AutogradGraph(keep=True, sources=False) as graph:
        y = x
        for k in range(nodes - 1):
            y = y * 1.5 if k % 2 else y.sin()
    return graph


def written(stream: io.StringIO, nodes: int, write: Callable[[ao.AutogradGraph], object],
            monkeypatch: pytest.MonkeyPatch) -> str:
    graph = chain(nodes)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    write(graph)
    return stream.getvalue()


WRITERS = {
    "draw": (lambda path: lambda graph: graph.draw(path / "g.dot"), "placing boxes"),
    "compare": (lambda path: lambda graph: ao.draw_comparison(graph, path / "g.dot"), "placing boxes"),
    "page": (lambda path: lambda graph: graph.to_html(path / "g.html"), "writing the page"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_terminal_shows_the_stages_of_a_large_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, last = WRITERS[name]
    shown = written(Terminal(), LARGE, make(tmp_path), monkeypatch)
    for stage in (f"{LARGE:,} nodes", "reading the graph", "folding", last):
        assert stage in shown


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("stream", "nodes"), [(Terminal, 20), (io.StringIO, LARGE)], ids=["small", "no terminal"])
def test_nothing_is_shown_otherwise(
    name: str, stream: type[io.StringIO], nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(stream(), nodes, WRITERS[name][0](tmp_path), monkeypatch) == ""
