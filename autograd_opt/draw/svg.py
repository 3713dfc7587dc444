"""The picture as SVG text, hover texts in <title>."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from autograd_opt.draw import style
from autograd_opt.draw.boxes import Box, Picture, Point
from autograd_opt.draw.layout import Layout

CAPTION = 30.0
GAP = 36.0


def text(parts: Sequence[tuple[Picture, Layout]]) -> str:
    """One SVG with the pictures side by side."""
    captions = [max(layout.width, 8.0 * len(picture.caption)) for picture, layout in parts]
    width = sum(captions) + GAP * (len(parts) - 1)
    height = max(layout.height for _, layout in parts) + CAPTION
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="{style.FONT}" font-size="{style.SIZE}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{style.INK}"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    x = 0.0
    for (picture, layout), used in zip(parts, captions, strict=True):
        lines.append(f'<g transform="translate({x:.1f},{CAPTION})">')
        lines.append(f'<text x="{used / 2:.1f}" y="-10" text-anchor="middle" font-weight="bold" '
                     f'fill="{style.INK}">{escape(picture.caption)}</text>')
        lines.append(f'<g transform="translate({(used - layout.width) / 2:.1f},0)">')
        lines += [frame(title, *corners) for title, *corners in layout.frames]
        lines += [edge(curve, e) for curve, e in zip(layout.curves, picture.edges, strict=True)]
        lines += [node(box, layout.centres[box.id], layout.sizes[box.id]) for box in picture.boxes]
        lines.append("</g></g>")
        x += used + GAP
    lines.append("</svg>")
    return "\n".join(lines)


def frame(title: str, upper: Point, lower: Point) -> str:
    """A line around boxes, with its title in the upper left corner."""
    (x, y), (right, bottom) = upper, lower
    return (f'<g class="frame"><rect x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" height="{bottom - y:.1f}" rx="6" '
            f'fill="{style.FRAME}" stroke="{style.FAINT}" stroke-width="0.8"/>'
            f'<text x="{x + 6:.1f}" y="{y + 12:.1f}" font-size="{style.SMALL}" fill="{style.INK}">{escape(title)}'
            "</text></g>")


def edge(curve: list[Point], info: tuple[str, str, int, bool]) -> str:
    """One edge; parallel ones are drawn once, thicker; a link of merged nodes is dotted."""
    _, _, count, link = info
    numbers = [f"{x:.1f},{y:.1f}" for x, y in curve]
    path = f"M{numbers[0]} C" + " ".join(numbers[1:])
    if link:
        return f'<path d="{path}" fill="none" stroke="{style.LINK}" stroke-width="1.2" stroke-dasharray="2 3"/>'
    title = f"<title>{count} operands</title>" if count > 1 else ""
    return (f'<path d="{path}" fill="none" stroke="{style.INK}" stroke-width="{1.0 if count == 1 else 1.8}" '
            f'marker-end="url(#tip)">{title}</path>')


def outline(shape: str, x: float, y: float, w: float, h: float, grow: float = 0.0) -> str:
    """The geometry of a shape as an SVG element without its closing attributes."""
    left, top, w, h = x - w / 2 - grow, y - h / 2 - grow, w + 2 * grow, h + 2 * grow
    right, bottom = left + w, top + h
    if shape == "hexagon":
        cut = 12 + grow / 2
        points = [(left + cut, top), (right - cut, top), (right, y),
                  (right - cut, bottom), (left + cut, bottom), (left, y)]
    elif shape == "parallelogram":
        points = [(left + 14, top), (right, top), (right - 14, bottom), (left, bottom)]
    else:
        radius = {"rounded": h / 2.4, "block": 3.0}.get(shape, 0.0)
        return f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:.1f}"'
    return '<polygon points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"'


def fill_of(box: Box) -> str:
    """The fill colour of a box."""
    if box.group is not None:
        return style.group_colour(box.group)
    if box.state == "pruned":
        return style.PRUNED
    if box.kind == "block" and box.state == "merged":
        return style.PALETTE[1]
    return style.LEAF if box.kind in ("leaf", "constant") else style.PLAIN


def node(box: Box, centre: Point, size: Point) -> str:
    """One box with its texts."""
    (x, y), (w, h) = centre, size
    shape = style.shape_of(box.kind, box.pinned)
    gone = box.state == "pruned"
    ink = style.FAINT if gone else style.INK
    strike = ' text-decoration="line-through"' if gone else ""
    dash = ' stroke-dasharray="5 3"' if shape == "dashed" or box.state == "merged" else ""
    thick = 2.0 if shape == "rectangle" else 1.2
    parts = [f'<g class="node {box.kind} {box.state}" id="{box.id}"><title>{escape(box.hover)}</title>']
    if shape == "block":
        parts.append(f'{outline(shape, x + 4, y + 4, w, h)} fill="white" stroke="{style.FAINT}" stroke-width="0.8"/>')
    if box.is_output:
        parts.append(f'{outline(shape, x, y, w, h)} fill="white" stroke="{ink}" stroke-width="1.2"/>')
    inner = -3 if box.is_output else 0
    look = f'fill="{fill_of(box)}" stroke="{ink}" stroke-width="{thick}"{dash}'
    parts.append(f"{outline(shape, x, y, w, h, inner)} {look}/>")
    parts.append(f'<text x="{x:.1f}" y="{y - 2:.1f}" text-anchor="middle" fill="{ink}"{strike}>'
                 f'{escape(box.title)}</text>')
    parts.append(f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle" font-size="{style.SMALL}" '
                 f'fill="{style.FAINT if gone else "#57606a"}">{escape(box.detail)}</text></g>')
    return "".join(parts)
