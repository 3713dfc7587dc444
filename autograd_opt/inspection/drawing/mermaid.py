"""The picture in Mermaid's language, which code hosts render inside Markdown."""

from __future__ import annotations

import itertools

from autograd_opt.inspection.drawing import style
from autograd_opt.inspection.drawing.boxes import Box, Picture

BRACKETS = {"rectangle": ("[", "]"), "dashed": ("[", "]"), "rounded": ("(", ")"), "parallelogram": ("[/", "/]"),
            "hexagon": ("{{", "}}"), "block": ("[[", "]]")}
ENTITIES = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "%": "#37;"}


def quoted(text: str) -> str:
    """A Mermaid label.

    >>> quoted('%1 a<b')
    '"#37;1 a#lt;b"'
    """
    return '"' + "".join(ENTITIES.get(c, c) for c in text) + '"'


def node(box: Box) -> str:
    """One node; an output is drawn as a stadium."""
    left, right = ("([", "])") if box.is_output and not box.pinned else BRACKETS[style.shape_of(box.kind, box.pinned)]
    lines = [box.title, box.detail, *([f"reads {', '.join(text for text, _ in box.tags)}"] if box.tags else [])]
    return f"  {box.id}{left}{quoted('<br/>'.join(lines)).replace('#lt;br/#gt;', '<br/>')}{right}"


def text(picture: Picture) -> str:
    """The whole graph."""
    lines = ["flowchart TD", f"  %% {picture.caption}"]
    lines += [node(box) for box in picture.boxes]
    lines += frames(picture, -1)
    for a, b, count in picture.edges:
        lines.append(f"  {a} {'==>' if count > 1 else '-->'} {b}")
    for above, row in itertools.pairwise(picture.rows):
        lines += [f"  {a} ~~~ {b}" for a, b in zip(above, row, strict=False)]
    for box in picture.boxes:
        look = f"fill:{style.fill_of(box)},stroke:{style.INK},color:{style.INK}"
        if box.gone:
            look = f"fill:{style.PLAIN},stroke:{style.FAINT},color:{style.PLAIN},stroke-dasharray:2 2"
        elif box.state == "pruned":
            look = f"fill:{style.PRUNED},stroke:{style.FAINT},color:{style.FAINT},text-decoration:line-through"
        elif box.kind == "constant" or box.state == "merged":
            look += ",stroke-dasharray:5 3"
        lines.append(f"  style {box.id} {look}")
    return "\n".join(lines) + "\n"


def frames(picture: Picture, parent: int) -> list[str]:
    """The frames within one, each with what is in it."""
    lines: list[str] = []
    for k, frame in enumerate(picture.frames):
        if frame.parent == parent:
            lines += [f"  subgraph f{k} [{quoted(frame.title)}]", *(f"    {id}" for id in frame.boxes),
                      *frames(picture, k), "  end"]
    return lines
