"""Pictures in Graphviz's language, with hover texts, and what its program `dot` makes of them: SVG and PNG."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from xml.sax.saxutils import escape

from autograd_opt import errors
from autograd_opt.inspection.drawing import style
from autograd_opt.inspection.drawing.boxes import Box, Picture

SHAPES = {"rectangle": "box", "dashed": "box", "rounded": "box", "parallelogram": "parallelogram",
          "hexagon": "hexagon", "block": "box3d"}


def quoted(text: str) -> str:
    r"""A DOT string.

    >>> quoted('say "x"\n')
    '"say \\"x\\"\\n"'
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def node(box: Box, prefix: str) -> str:
    """One node statement."""
    shape = style.shape_of(box.kind, box.pinned)
    styles = ["filled"]
    if shape == "rounded":
        styles.append("rounded")
    if shape == "dashed" or box.state == "merged":
        styles.append("dashed")
    if shape == "rectangle":
        styles.append("bold")
    look = {
        "label": quoted(f"{box.title}\n{box.detail}"), "tooltip": quoted(box.hover), "shape": SHAPES[shape],
        "style": quoted(",".join(styles)), "fillcolor": quoted(style.fill_of(box)),
        "id": quoted(prefix + box.id), "class": quoted(f"{box.kind} {box.state}"),
    }
    if box.is_output:
        look["peripheries"] = "2"
    if box.state == "pruned":
        look["fontcolor"] = look["color"] = quoted(style.FAINT)
        # only HTML-like labels can be struck out
        title, detail = map(escape, (box.title, box.detail))
        look["label"] = f"<<S>{title}</S><BR/>{detail}>"
    return f"  {prefix}{box.id} [{', '.join(f'{k}={v}' for k, v in look.items())}];"


def text(pictures: Sequence[Picture]) -> str:
    """One graph; several pictures stand in it side by side."""
    lines = ["digraph {", "  labelloc=b; fontname=Helvetica; fontsize=10; rankdir=TB;",
             f"  label={quoted(style.legend([box for picture in pictures for box in picture.boxes]))};",
             "  node [fontname=Helvetica, fontsize=11]; edge [arrowsize=0.6];"]
    for picture, prefix in zip(pictures, ("",) if len(pictures) == 1 else "ab", strict=True):
        lines += [f"  subgraph cluster_{prefix} {{ penwidth=0; labelloc=t; fontname=Helvetica; fontsize=12;",
                  *body(picture, prefix), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def body(picture: Picture, prefix: str) -> list[str]:
    """Caption, nodes, frames and edges of a picture, whose names begin with `prefix`."""
    lines = [f"  label={quoted(picture.caption)};", *(node(box, prefix) for box in picture.boxes)]
    for k, frame in enumerate(picture.frames):
        inside = "; ".join([prefix + id for id in frame.boxes])
        lines.append(f"  subgraph cluster{prefix}{k} {{ label={quoted(frame.title)}; labeljust=l; "
                     f'color="{style.FAINT}"; penwidth=1; class=frame; {inside} }}')
    for a, b, count in picture.edges:
        lines.append(f"  {prefix}{a} -> {prefix}{b}{' [penwidth=1.8]' if count > 1 else ''};")
    return lines


def installed() -> bool:
    """True if the program `dot` is found."""
    return shutil.which("dot") is not None


def rendered(pictures: Sequence[Picture], form: str) -> bytes:
    """What `dot` draws, in a format of its own such as `svg`.

    Raises
    ------
    UnsupportedError : the program is not installed.
    """
    program = shutil.which("dot")
    if program is None:
        raise errors.UnsupportedError(errors.at(
            f"{form.upper()} pictures are drawn by the program dot of Graphviz, which is not installed: install it "
            "(apt-get, brew, conda or winget install graphviz), or draw to .mmd (Mermaid) or .dot, or write a page by "
            "graph.to_html(path)"))
    return subprocess.run([program, f"-T{form}"], input=text(pictures).encode(), capture_output=True, check=True).stdout


def svg(pictures: Sequence[Picture]) -> str:
    """The SVG element alone, as it stands in a page."""
    drawn = rendered(pictures, "svg").decode()
    return drawn[drawn.index("<svg"):]
