"""How each kind of node looks, in every format.

==============  =============================
leaf            rectangle, bold
constant        rectangle, dashed
operation       rounded rectangle
opaque call     parallelogram
pinned          hexagon
output          double outline
block           rectangle with a folded look
merged group    the fill colour of the group
pruned          grey, struck out
frame           the module that the blocks in it are parts of
==============  =============================
"""

from __future__ import annotations

from autograd_opt.inspection.drawing.boxes import Box

PALETTE = (
    "#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99",
    "#8dd3c7", "#fccde5", "#bebada", "#d9d98c", "#80b1d3", "#fdb462",
)
"""Fills of merged groups: light enough for black text.  Without colour vision the dotted links
between the nodes of a group say the same."""
PLAIN = "#ffffff"
LEAF = "#eef2f5"
PRUNED = "#f4f4f4"
INK, FAINT, LINK = "#1b1f24", "#9aa0a6", "#b35900"


def fill_of(box: Box) -> str:
    """The fill colour of a box."""
    if box.group is not None:
        return PALETTE[box.group % len(PALETTE)]
    if box.state == "pruned":
        return PRUNED
    if box.kind == "block" and box.state == "merged":
        return PALETTE[1]
    return LEAF if box.kind in ("leaf", "constant") else PLAIN


def shape_of(kind: str, pinned: bool) -> str:
    """`rectangle`, `dashed`, `rounded`, `parallelogram`, `hexagon` or `block`."""
    if pinned:
        return "hexagon"
    return {"leaf": "rectangle", "constant": "dashed", "opaque": "parallelogram", "block": "block"}.get(kind, "rounded")
