"""The picture in Graphviz's language, with the same shapes, colours and hover texts."""

from __future__ import annotations

from xml.sax.saxutils import escape

from autograd_opt.draw import style
from autograd_opt.draw.boxes import Box, Picture
from autograd_opt.draw.svg import fill_of

SHAPES = {"rectangle": "box", "dashed": "box", "rounded": "box", "parallelogram": "parallelogram",
          "hexagon": "hexagon", "block": "box3d"}


def quoted(text: str) -> str:
    r"""A DOT string.

    >>> quoted('say "x"\n')
    '"say \\"x\\"\\n"'
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def node(box: Box) -> str:
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
        "style": quoted(",".join(styles)), "fillcolor": quoted(fill_of(box)),
    }
    if box.is_output:
        look["peripheries"] = "2"
    if box.state == "pruned":
        look["fontcolor"] = look["color"] = quoted(style.FAINT)
        # only HTML-like labels can be struck out
        title, detail = map(escape, (box.title, box.detail))
        look["label"] = f"<<S>{title}</S><BR/>{detail}>"
    return f"  {box.id} [{', '.join(f'{k}={v}' for k, v in look.items())}];"


def text(picture: Picture) -> str:
    """The whole graph."""
    lines = ["digraph {", f"  label={quoted(picture.caption)}; labelloc=t; rankdir=TB;",
             "  node [fontname=Helvetica, fontsize=11]; edge [arrowsize=0.6];"]
    lines += [node(box) for box in picture.boxes]
    lines += [f"  subgraph cluster{k} {{ label={quoted(frame.title)}; labeljust=l; color=\"{style.FAINT}\"; "
              f"{'; '.join(frame.boxes)} }}" for k, frame in enumerate(picture.frames)]
    for a, b, count, link in picture.edges:
        if link:
            look = f' [style=dotted, dir=none, constraint=false, color="{style.LINK}"]'
        else:
            look = " [penwidth=1.8]" if count > 1 else ""
        lines.append(f"  {a} -> {b}{look};")
    lines.append("}")
    return "\n".join(lines) + "\n"
