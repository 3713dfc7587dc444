"""Pictures in Graphviz's language, with hover texts, and what its program `dot` makes of them: SVG and PNG."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from xml.sax.saxutils import escape

from autograd_opt import errors
from autograd_opt.inspection.drawing import style
from autograd_opt.inspection.drawing.boxes import Box, Picture

SHAPES = {"rectangle": "box", "dashed": "box", "rounded": "box", "parallelogram": "parallelogram",
          "hexagon": "hexagon", "block": "folder"}
MOST_TAGS = 12
SHORT = 24
"""Characters of a title that a narrow frame may have."""


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
        "label": label(box), "tooltip": quoted(box.hover), "shape": SHAPES[shape],
        "style": quoted(",".join(styles)), "fillcolor": quoted(style.fill_of(box)),
        "id": quoted(prefix + box.id), "class": quoted(f"{box.kind} {'gone' if box.gone else box.state}"),
    }
    if box.is_output and box.kind != "block":
        look["peripheries"] = "2"
    if box.gone:
        look |= {"style": "dotted", "color": quoted(style.FAINT), "fontcolor": quoted(style.PLAIN)}
    elif box.state == "pruned":
        look["fontcolor"] = look["color"] = quoted(style.FAINT)
    return f"  {prefix}{box.id} [{', '.join(f'{k}={v}' for k, v in look.items())}];"


def label(box: Box) -> str:
    """Title and detail; what is pruned is struck out, and below them stand the tags, for which a table is needed."""
    title, detail = escape(box.title), escape(box.detail)
    if box.gone or (not box.tags and box.state != "pruned"):
        return quoted(f"{box.title}\n{box.detail}")
    if box.state == "pruned":
        title = f"<S>{title}</S>"
    if not box.tags:
        return f"<{title}<BR/>{detail}>"
    shown = box.tags[:MOST_TAGS]
    if len(box.tags) > MOST_TAGS:
        shown = [*shown[:-1], (f"and {len(box.tags) - MOST_TAGS + 1} more", None)]
    cells = [f'<TD BGCOLOR="{style.tag_fill(k)}">{escape(text)}</TD>' for text, k in shown]
    rows = "".join(f"<TR>{''.join(cells[k:k + 6])}</TR>" for k in range(0, len(cells), 6))
    table = '<TABLE BORDER="0" CELLBORDER="0" CELLPADDING="1" CELLSPACING="2">'
    tags = f'<FONT POINT-SIZE="9">{table}{rows}</TABLE></FONT>'
    lines = "".join(f"<TR><TD>{text}</TD></TR>" for text in (title, detail, tags))
    return f'<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="0">{lines}</TABLE>>'


def text(pictures: Sequence[Picture], order: Sequence[list[str]] = ()) -> str:
    """One graph; several pictures stand in it side by side, each with the boxes of a row in this order."""
    lines = ["digraph {", "  labelloc=b; fontname=Helvetica; fontsize=10; rankdir=TB; nodesep=0.2;",
             f"  label={quoted(style.legend([box for picture in pictures for box in picture.boxes]))};",
             "  node [fontname=Helvetica, fontsize=11]; edge [arrowsize=0.6];"]
    for picture, prefix in zip(pictures, ("",) if len(pictures) == 1 else "ab", strict=True):
        lines += [f"  subgraph cluster_{prefix} {{ penwidth=0; labelloc=t; fontname=Helvetica; fontsize=12;",
                  *body(picture, prefix), *[beside(row, prefix) for row in order if len(row) > 1], "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def body(picture: Picture, prefix: str) -> list[str]:
    """Caption, nodes, frames and edges of a picture, whose names begin with `prefix`."""
    lines = [f"  label={quoted(picture.caption)};", *(node(box, prefix) for box in picture.boxes)]
    lines += frames(picture, prefix, -1)
    for a, b, count in picture.edges:
        look = ["penwidth=1.8"] * (count > 1) + ["constraint=false"] * ((a, b) in picture.loose)
        lines.append(f"  {prefix}{a} -> {prefix}{b}" + (f" [{', '.join(look)}];" if look else ";"))
    lines += [f"  {prefix}{a} -> {prefix}{b} [style=invis];" for a, b in picture.hidden]
    for above, row in itertools.pairwise([[], *picture.rows]):
        lines.append(beside(row, prefix))
        lines += [f"  {prefix}{a} -> {prefix}{b} [style=invis, weight=9];" for a, b in zip(above, row, strict=False)]
    return lines


def beside(row: list[str], prefix: str) -> str:
    """What puts boxes into one row, in this order."""
    chain = " -> ".join(prefix + id for id in row)
    return f"  {{ rank=same; {chain}{' [style=invis]' if len(row) > 1 else ''}; }}"


def frames(picture: Picture, prefix: str, parent: int) -> list[str]:
    """The frames within one, each with what is in it."""
    lines: list[str] = []
    for k, frame in enumerate(picture.frames):
        if frame.parent == parent:
            title = quoted(beside_a_line(frame.title))
            lines += [f"  subgraph cluster{prefix}{k} {{ label={title}; labeljust=l; "
                      f'color="{style.FAINT}"; penwidth=1; class=frame; {"; ".join(prefix + id for id in frame.boxes)}',
                      *frames(picture, prefix, k), "  }"]
    return lines


def beside_a_line(title: str) -> str:
    """A frame's title with as much room at its right, so that a line down the middle of a narrow frame misses it."""
    return title + "\N{NO-BREAK SPACE}" * 2 * len(title) if len(title) <= SHORT else title


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

    def run(made: str, form: str) -> bytes:
        return subprocess.run([program, f"-T{form}"], input=made.encode(), capture_output=True, check=True).stdout

    first = pictures[0]
    order: list[list[str]] = []
    if len(pictures) > 1 and not first.frames and not first.rows:      # the others stand as the first alone would
        rows: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for line in run(text([first]), "plain").decode().splitlines():
            kind, *words = line.split(" ", 4)
            if kind == "node":
                rows[words[2]].append((float(words[1]), words[0]))
        order = [[id for _, id in sorted(row)] for row in rows.values()]
    return run(text(pictures, order), form)


def svg(pictures: Sequence[Picture]) -> str:
    """The SVG element alone, as it stands in a page."""
    drawn = rendered(pictures, "svg").decode()
    return drawn[drawn.index("<svg"):]
