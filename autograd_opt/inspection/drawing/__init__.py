"""Pictures of a graph: SVG, PNG, DOT and Mermaid.

`boxes` says what is drawn, `style` how each kind of node looks, `mermaid` and `dot` write it; Graphviz's program `dot`
makes SVG and PNG of it and has to be installed for these two.  Every format shows the same: merged nodes in the colour
of their group, pruned nodes struck out, leaves, constants, outputs, pinned and opaque nodes by shape.
A graph of more than 60 nodes is folded (`inspection.groups`): by module where models are followed
(`graph.follow(model)`), else by source line, by what repeats, or by the trees of a population.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

from autograd_opt import errors
from autograd_opt._common.arguments import named
from autograd_opt._common.files import path_of, written_whole
from autograd_opt.inspection.drawing import dot, mermaid
from autograd_opt.inspection.drawing.boxes import Picture
from autograd_opt.inspection.drawing.pictures import comparison_of, picture_of
from autograd_opt.inspection.progress import nodes_of, progress
from autograd_opt.inspection.snapshot import Scene, scene_of
from autograd_opt.record.context import Context

ENDINGS = (".svg", ".png", ".dot", ".mmd")

__all__ = ["draw_comparison", "drawn", "to_mermaid"]


@overload
def draw_comparison(graph: Any, path: None = None, *, limit: int | None = None) -> str: ...
@overload
def draw_comparison(graph: Any, path: str | os.PathLike[str], *, limit: int | None = None) -> Path: ...
@named
def draw_comparison(graph: Any, path: Any = None, *, limit: int | None = None) -> str | Path:
    """The graph as written and optimized, side by side.

    Parameters
    ----------
    path : where to write, by ending .svg, .png, .dot or .mmd; None returns SVG text.
    limit : fold the graph where it has more nodes than this, 1 or more (60).

    Raises
    ------
    ArgumentError : an unknown ending, or a `limit` below 1.
    OutsideGraphError : the graph's context has been left, and the nodes with it.
    UnsupportedError : SVG or PNG without the program `dot` of Graphviz.

    >>> import tempfile, autograd_opt as ao
    >>> from pathlib import Path
    >>> folder, x = Path(tempfile.mkdtemp()), ao.tensor([1.0])
    >>> with ao.AutogradGraph(optimize=True, name="g") as graph:
    ...     y = x.exp() * x.exp()
    ...     path = draw_comparison(graph, folder / "g.dot")
    >>> "as written: 4 nodes" in path.read_text(), "optimized: 3 nodes" in path.read_text()
    (True, True)
    """
    if not isinstance(graph, Context) and not isinstance(getattr(graph, "scene", None), Scene):
        raise errors.ArgumentTypeError(errors.at(f"expected an AutogradGraph to draw, got {type(graph).__name__}"))
    return drawn(getattr(graph, "kept", None) or graph, path, lambda scene: comparison_of(scene, limit))


def to_mermaid(graph: Any, optimized: bool = False, *, limit: int | None = None) -> str:
    """The graph in Mermaid's language."""
    return mermaid.text(picture_of(scene_of(graph), optimized, limit))


def drawn(graph: Any, path: Any, pictures: Callable[[Scene], list[Picture]]) -> str | Path:
    """The pictures made of a graph as SVG text, or in a file whose ending says the format."""
    with progress(nodes_of(graph), 3) as begin:
        begin("reading the graph")
        scene = scene_of(graph)
        begin("folding")
        made = pictures(scene)
        begin("placing boxes")
        return _write(made, path)


def _write(pictures: list[Picture], path: Any) -> str | Path:
    if path is None:
        return dot.svg(pictures)
    file: Path = path_of("path", path)
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise errors.ArgumentError(errors.at(
            f"a picture's path ends in one of {', '.join(ENDINGS)}, not {file.suffix or file.name!r}"
        ))
    with written_whole(file) as draft:
        if ending == ".dot":
            draft.write_text(dot.text(pictures), encoding="utf-8")
        elif ending == ".mmd":
            draft.write_text("\n".join(map(mermaid.text, pictures)), encoding="utf-8")
        else:
            draft.write_bytes(dot.rendered(pictures, ending[1:]))
    return file
