"""How each kind of node looks, in every format.

==============  =============================
leaf            rectangle, bold
constant        rectangle, dashed
operation       rounded rectangle
opaque call     parallelogram
pinned          hexagon
output          double outline
block           rectangle with a tab: several nodes
merged group    the fill colour of the group; a merged node is dashed, and names the one it is the same as
pruned          grey, struck out
frame           the group that the boxes in it are parts of
tag             what is read without a line: a leaf in grey, a value that many read in its colour
gone            dotted: what the passes removed, in its old place
==============  =============================
"""

from __future__ import annotations

from collections.abc import Sequence

from autograd_opt.inspection.drawing.boxes import Box

PALETTE = (
    "#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99",
    "#8dd3c7", "#fccde5", "#9fa8e0", "#d9d98c", "#80b1d3", "#c9a27e",
)
"""Fills of merged groups: light enough for black text."""
PLAIN = "#ffffff"
LEAF = "#eef2f5"
TAG = "#dde3e9"
PRUNED = "#f4f4f4"
INK, FAINT = "#1b1f24", "#9aa0a6"


def fill_of(box: Box) -> str:
    """The fill colour of a box."""
    if box.gone:
        return PLAIN
    if box.group is not None:
        return PALETTE[box.group % len(PALETTE)]
    if box.state == "pruned":
        return PRUNED
    return LEAF if box.kind in ("leaf", "constant") else PLAIN


def tag_fill(group: int | None) -> str:
    """The fill colour of a tag: that of the value which it names."""
    return TAG if group is None else PALETTE[group % len(PALETTE)]


def legend(boxes: Sequence[Box]) -> str:
    """What the looks of some boxes mean, where it is not plain."""
    tags = [k for box in boxes for _, k in box.tags]
    single = [box for box in boxes if box.kind != "block"]
    meanings = {
        "coloured: one value, written several times": any(box.group is not None and box.merges for box in single),
        "dashed: merged into an equal one": any(box.state == "merged" for box in boxes),
        "struck out: not needed": any(box.state == "pruned" for box in boxes),
        "dotted: removed": any(box.gone for box in boxes),
        "hexagon: has a hook or keeps its gradient": any(box.pinned for box in boxes),
        "parallelogram: without a rule": any(box.kind == "opaque" and not box.pinned for box in boxes),
        "grey, dashed: constant": any(box.kind == "constant" for box in boxes),
        "grey tag: a leaf that is read": None in tags,
        "coloured tag: the value of that colour is read": any(k is not None for k in tags),
        "double outline: result": any(box.is_output for box in single),
        "with a tab: several nodes": any(box.kind == "block" for box in boxes),
    }
    return "; ".join(text for text, shown in meanings.items() if shown)


def shape_of(kind: str, pinned: bool) -> str:
    """`rectangle`, `dashed`, `rounded`, `parallelogram`, `hexagon` or `block`."""
    if pinned:
        return "hexagon"
    return {"leaf": "rectangle", "constant": "dashed", "opaque": "parallelogram", "block": "block"}.get(kind, "rounded")
