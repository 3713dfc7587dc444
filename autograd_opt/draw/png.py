"""The picture as PNG, drawn by matplotlib from the same layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autograd_opt.draw import style
from autograd_opt.draw.boxes import Box, Picture, Point
from autograd_opt.draw.layout import Layout
from autograd_opt.draw.svg import CAPTION, GAP, fill_of

DPI = 144
MOST_PIXELS = 12_000
"""Longest side; a larger picture is scaled down."""


def write(parts: Sequence[tuple[Picture, Layout]], path: Path) -> None:
    """Write the pictures side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    captions = [max(layout.width, 8.0 * len(picture.caption)) for picture, layout in parts]
    width, height = sum(captions) + GAP * (len(parts) - 1), max(layout.height for _, layout in parts) + CAPTION
    dpi = min(DPI, MOST_PIXELS * 72 / max(width, height))
    figure = Figure(figsize=(width / 72, height / 72), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    left = 0.0
    for (picture, layout), used in zip(parts, captions, strict=True):
        axes.text(left + used / 2, 14, picture.caption, ha="center", va="center", fontsize=style.SIZE, weight="bold",
                  color=style.INK)
        shift = (left + (used - layout.width) / 2, CAPTION)
        for title, *corners in layout.frames:
            draw_frame(axes, title, *((x + shift[0], y + shift[1]) for x, y in corners))
        for curve, info in zip(layout.curves, picture.edges, strict=True):
            draw_edge(axes, [(x + shift[0], y + shift[1]) for x, y in curve], info)
        for box in picture.boxes:
            x, y = layout.centres[box.id]
            draw_node(axes, box, (x + shift[0], y + shift[1]), layout.sizes[box.id])
        left += used + GAP
    figure.savefig(path, dpi=dpi, format="png")


def draw_frame(axes: Any, title: str, upper: Point, lower: Point) -> None:
    """A line around boxes, with its title in the upper left corner."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(upper, lower[0] - upper[0], lower[1] - upper[1], facecolor=style.FRAME,
                             edgecolor=style.FAINT, linewidth=0.7, zorder=0))
    axes.text(upper[0] + 6, upper[1] + 9, title, ha="left", va="center", fontsize=style.SMALL * 0.8, color=style.INK)


def draw_edge(axes: Any, curve: list[Point], info: tuple[str, str, int, bool]) -> None:
    """One edge with its arrow head."""
    from matplotlib.patches import FancyArrowPatch, PathPatch
    from matplotlib.path import Path as Outline

    _, _, count, link = info
    codes = [Outline.MOVETO] + [Outline.CURVE4] * (len(curve) - 1)
    outline = Outline(curve, codes)
    if link:
        axes.add_patch(PathPatch(outline, fill=False, edgecolor=style.LINK, linewidth=1.0, linestyle=(0, (1, 2))))
        return
    axes.add_patch(FancyArrowPatch(path=outline, arrowstyle="-|>", mutation_scale=8, color=style.INK,
                                   linewidth=0.9 if count == 1 else 1.6, shrinkA=0, shrinkB=0))


def draw_node(axes: Any, box: Box, centre: Point, size: Point) -> None:
    """One box with its texts."""
    (x, y), (w, h) = centre, size
    shape = style.shape_of(box.kind, box.pinned)
    gone = box.state == "pruned"
    ink = style.FAINT if gone else style.INK
    dashed = shape == "dashed" or box.state == "merged"
    if shape == "block":
        axes.add_patch(patch(shape, x + 4, y + 4, w, h, facecolor="white", edgecolor=style.FAINT, linewidth=0.7))
    if box.is_output:
        axes.add_patch(patch(shape, x, y, w, h, facecolor="white", edgecolor=ink, linewidth=1.1))
    inner = 6 if box.is_output else 0
    axes.add_patch(patch(shape, x, y, w - inner, h - inner, facecolor=fill_of(box), edgecolor=ink,
                         linewidth=1.8 if shape == "rectangle" else 1.1, linestyle="--" if dashed else "-"))
    axes.text(x, y - 6, box.title, ha="center", va="center", fontsize=style.SIZE * 0.8, color=ink, zorder=5)
    axes.text(x, y + 9, box.detail, ha="center", va="center", fontsize=style.SMALL * 0.8, color="#57606a", zorder=5)
    if gone:
        axes.plot([x - w / 2 + 6, x + w / 2 - 6], [y - 5, y - 5], color=ink, linewidth=1.0, zorder=6)


def patch(shape: str, x: float, y: float, w: float, h: float, **look: Any) -> Any:
    """The outline of a shape."""
    from matplotlib.patches import FancyBboxPatch, Polygon

    left, right, top, bottom = x - w / 2, x + w / 2, y - h / 2, y + h / 2
    if shape == "hexagon":
        corners = [(left + 12, top), (right - 12, top), (right, y),
                   (right - 12, bottom), (left + 12, bottom), (left, y)]
        return Polygon(corners, closed=True, zorder=3, **look)
    if shape == "parallelogram":
        corners = [(left + 14, top), (right, top), (right - 14, bottom), (left, bottom)]
        return Polygon(corners, closed=True, zorder=3, **look)
    radius = h / 2.4 if shape == "rounded" else 0.0
    corners_style = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
    return FancyBboxPatch((left, top), w, h, boxstyle=corners_style, zorder=3, **look)
