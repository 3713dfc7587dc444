"""How each kind of node looks, in every format.

==============  =============================
leaf            rectangle, bold
constant        rectangle, dashed
operation       rounded rectangle
opaque call     parallelogram
pinned          hexagon
output          double outline
block           rectangle with a folded look
merged group    the fill colour of the group; a merged node is dashed, and names the one it is the same as
pruned          grey, struck out
frame           the module that the blocks in it are parts of
==============  =============================
"""

from __future__ import annotations

from collections.abc import Sequence

from autograd_opt.inspection.drawing.boxes import Box

PALETTE = (
    "#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99",
    "#8dd3c7", "#fccde5", "#bebada", "#d9d98c", "#80b1d3", "#fdb462",
)
"""Fills of merged groups: light enough for black text."""
PLAIN = "#ffffff"
LEAF = "#eef2f5"
PRUNED = "#f4f4f4"
INK, FAINT = "#1b1f24", "#9aa0a6"


def fill_of(box: Box) -> str:
    """The fill colour of a box."""
    if box.group is not None:
        return PALETTE[box.group % len(PALETTE)]
    if box.state == "pruned":
        return PRUNED
    if box.kind == "block" and box.state == "merged":
        return PALETTE[1]
    return LEAF if box.kind in ("leaf", "constant") else PLAIN


def legend(boxes: Sequence[Box]) -> str:
    """What the looks of some boxes mean, where it is not plain."""
    meanings = {
        "one colour: one value": any(box.group is not None for box in boxes),
        "dashed and coloured: merged": any(box.state == "merged" and box.kind != "block" for box in boxes),
        "struck out: not needed": any(box.state == "pruned" for box in boxes),
        "hexagon: has a hook or keeps its gradient": any(box.pinned for box in boxes),
        "parallelogram: without a rule": any(box.kind == "opaque" and not box.pinned for box in boxes),
        "grey, dashed: constant": any(box.kind == "constant" for box in boxes),
        "double outline: result": any(box.is_output for box in boxes),
    }
    return "; ".join(text for text, shown in meanings.items() if shown)


def shape_of(kind: str, pinned: bool) -> str:
    """`rectangle`, `dashed`, `rounded`, `parallelogram`, `hexagon` or `block`."""
    if pinned:
        return "hexagon"
    return {"leaf": "rectangle", "constant": "dashed", "opaque": "parallelogram", "block": "block"}.get(kind, "rounded")
