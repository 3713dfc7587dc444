"""Where the boxes go.

`dot` of Graphviz places them where it is installed.  Without it, a layered layout does: every
box below its operands, leaves just above their first user, boxes of a layer ordered by the
mean position of their neighbours (Sugiyama, Tagawa and Toda, 1981), long edges led through
the layers between.  Nothing is recursive.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from autograd_opt.draw import style
from autograd_opt.draw.boxes import Box, Picture, Point

GAP_X, GAP_Y, HEIGHT, MARGIN = 22.0, 44.0, 40.0, 26.0
SWEEPS = 8


@dataclass
class Layout:
    """Centres and sizes of boxes, and the control points of each edge's Bézier curve."""

    width: float
    height: float
    centres: dict[str, Point]
    sizes: dict[str, Point]
    curves: list[list[Point]]
    """In the order of the picture's edges; 1 + 3k points each."""
    frames: list[tuple[str, Point, Point]] = field(default_factory=list)
    """Title, upper left and lower right corner."""


def size_of(box: Box) -> Point:
    """Width and height, from the length of the texts."""
    widest = max(len(box.title) * style.SIZE * 0.60, len(box.detail) * style.SMALL * 0.60)
    room = 34 if box.pinned or box.kind == "opaque" else 26 if box.is_output else 20
    return max(64.0, widest + room), HEIGHT


def arrange(picture: Picture) -> Layout:
    """Place the boxes of a picture; AUTOGRAD_OPT_NO_GRAPHVIZ=1 does without `dot`.

    A frame that would hold a box of another is given up: its boxes go by their full names.
    """
    layout = place(picture)
    if any(frame.corners(layout.centres, layout.sizes) is None for frame in picture.frames):
        picture.keep_frames([f for f in picture.frames if f.corners(layout.centres, layout.sizes) is not None])
        layout = place(picture)
    found = [(frame.title, frame.corners(layout.centres, layout.sizes)) for frame in picture.frames]
    layout.frames = [(title, *corners) for title, corners in found if corners is not None]
    return layout


def place(picture: Picture) -> Layout:
    """By graphviz where it is, else by the layout below."""
    program = None if os.environ.get("AUTOGRAD_OPT_NO_GRAPHVIZ") else shutil.which("dot")
    if program and picture.boxes:
        try:
            return by_graphviz(picture, program)
        except (OSError, subprocess.SubprocessError, ValueError):
            pass                        # a broken or very slow installation: as if there were none
    return layered(picture)


# Graphviz -------------------------------------------------------------------------------
def by_graphviz(picture: Picture, program: str) -> Layout:
    """Positions from `dot -Tplain`, in points, y turned downwards."""
    sizes = {box.id: size_of(box) for box in picture.boxes}
    lines = [f"digraph {{ rankdir=TB; nodesep={GAP_X / 72}; ranksep={GAP_Y / 72}; "
             "node [shape=box, fixedsize=true]; edge [arrowhead=none];"]
    for id, (w, h) in sizes.items():
        lines.append(f'{id} [width={w / 72:.3f}, height={h / 72:.3f}, label=""];')
    lines += [f"subgraph cluster{k} {{ {' '.join(frame.boxes)} }}" for k, frame in enumerate(picture.frames)]
    lines += [f"{a} -> {b};" for a, b, _, link in picture.edges if not link]
    lines.append("}")
    answer = subprocess.run([program, "-Tplain"], input="\n".join(lines), capture_output=True, text=True,
                            timeout=20, check=True)
    width = height = 0.0
    centres: dict[str, Point] = {}
    curves: dict[tuple[str, str], list[list[Point]]] = defaultdict(list)
    for row in answer.stdout.splitlines():
        words = row.split()
        if words[0] == "graph":
            width, height = float(words[2]) * 72, float(words[3]) * 72
        elif words[0] == "node":
            centres[words[1]] = (float(words[2]) * 72 + MARGIN, height - float(words[3]) * 72 + MARGIN)
        elif words[0] == "edge":
            n = int(words[3])
            numbers = [float(x) * 72 for x in words[4:4 + 2 * n]]
            curve = [(x + MARGIN, height - y + MARGIN) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
            curves[words[1], words[2]].append(curve)
    ordered = [
        link_curve(centres[a], centres[b], sizes[a][0], sizes[b][0]) if link else curves[a, b].pop(0)
        for a, b, _, link in picture.edges
    ]
    return Layout(width + 2 * MARGIN, height + 2 * MARGIN, centres, sizes, ordered)


# The fallback ---------------------------------------------------------------------------
def layered(picture: Picture) -> Layout:
    """A layered layout in plain Python, linear but for the ordering inside layers."""
    sizes = {box.id: size_of(box) for box in picture.boxes}
    edges = [(a, b) for a, b, _, link in picture.edges if not link]
    level = levels([box.id for box in picture.boxes], edges)
    rows: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for box in picture.boxes:
        rows[level[box.id]].append(box.id)
    widths = {id: w for id, (w, _) in sizes.items()}
    below: dict[str, list[str]] = defaultdict(list)
    above: dict[str, list[str]] = defaultdict(list)
    chains: list[list[str]] = []
    for k, (a, b) in enumerate(edges):
        chain = [a]
        for step in range(level[a] + 1, level[b]):
            waypoint = f"edge{k}.{step}"
            widths[waypoint] = 2.0
            rows[step].append(waypoint)
            chain.append(waypoint)
        chain.append(b)
        chains.append(chain)
        for upper, lower in itertools.pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    order_rows(rows, above, below)
    x = columns(rows, widths, above, below)
    shift = min((x[i] - widths[i] / 2 for row in rows for i in row), default=0.0) - MARGIN
    centres = {i: (x[i] - shift, MARGIN + HEIGHT / 2 + r * (HEIGHT + GAP_Y)) for r, row in enumerate(rows) for i in row}
    boxes = {box.id: centres[box.id] for box in picture.boxes}
    width = max((centres[i][0] + widths[i] / 2 for i in centres), default=100.0) + MARGIN
    routes = iter(chains)
    curves = [
        link_curve(centres[a], centres[b], widths[a], widths[b]) if link
        else through([centres[i] for i in next(routes)])
        for a, b, _, link in picture.edges
    ]
    return Layout(width, 2 * MARGIN + len(rows) * (HEIGHT + GAP_Y) - (GAP_Y if rows else 0), boxes, sizes, curves)


def levels(ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Rows from the top; `ids` come in topological order.  Boxes without operands sink to their first user."""
    level = dict.fromkeys(ids, 0)
    operands: dict[str, list[str]] = defaultdict(list)
    users: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        operands[b].append(a)
        users[a].append(b)
    for i in ids:
        level[i] = max((level[o] + 1 for o in operands[i]), default=0)
    for i in ids:
        if not operands[i] and users[i]:
            level[i] = max(0, min(level[u] for u in users[i]) - 1)
    return level


def order_rows(rows: list[list[str]], above: dict[str, list[str]], below: dict[str, list[str]]) -> None:
    """Order each row by the mean place of its neighbours, sweeping down and up."""
    place = {i: float(k) for row in rows for k, i in enumerate(row)}
    for sweep in range(SWEEPS):
        neighbours, sequence = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in sequence:
            mean = {
                i: sum(place[n] for n in neighbours[i]) / len(neighbours[i]) if neighbours[i] else place[i] for i in row
            }
            row.sort(key=mean.__getitem__)
            place.update((i, float(k)) for k, i in enumerate(row))


def columns(rows: list[list[str]], widths: dict[str, float], above: dict[str, list[str]],
            below: dict[str, list[str]]) -> dict[str, float]:
    """x of every box: near its neighbours, never over the next box of its row."""
    x: dict[str, float] = {}
    for row in rows:
        edge = 0.0
        for i in row:
            x[i] = edge + widths[i] / 2
            edge += widths[i] + GAP_X
        centre = edge / 2
        for i in row:
            x[i] -= centre
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            near = [above[i] + below[i] for i in row]
            wanted = [sum(x[n] for n in ns) / len(ns) if ns else x[i] for i, ns in zip(row, near, strict=True)]
            x.update(zip(row, spread(wanted, [widths[i] for i in row]), strict=True))
    return x


def spread(wanted: list[float], widths: list[float]) -> list[float]:
    """Positions in the given order, without overlap, nearest to `wanted` (pools of neighbours)."""
    pools: list[tuple[float, int]] = []  # mean of (wanted - offset) over the pool, number of boxes
    offsets = [0.0]
    for a, b in itertools.pairwise(widths):
        offsets.append(offsets[-1] + (a + b) / 2 + GAP_X)
    for w, offset in zip(wanted, offsets, strict=True):
        mean, n = w - offset, 1
        while pools and pools[-1][0] > mean:
            other, m = pools.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        pools.append((mean, n))
    starts = [mean for mean, n in pools for _ in range(n)]
    return [s + o for s, o in zip(starts, offsets, strict=True)]


def through(points: list[Point]) -> list[Point]:
    """A smooth curve from the lower edge of the first box to the upper edge of the last."""
    ends = [(points[0][0], points[0][1] + HEIGHT / 2), *points[1:-1], (points[-1][0], points[-1][1] - HEIGHT / 2)]
    curve = [ends[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(ends):
        middle = (y0 + y1) / 2
        curve += [(x0, middle), (x1, middle), (x1, y1)]
    return curve


def link_curve(a: Point, b: Point, wa: float, wb: float) -> list[Point]:
    """From the side of one box to the side of another."""
    side = 1.0 if b[0] >= a[0] else -1.0
    start, end = (a[0] + side * wa / 2, a[1]), (b[0] - side * wb / 2, b[1])
    if (end[0] - start[0]) * side < 0:
        start, end = (a[0] + wa / 2, a[1]), (b[0] + wb / 2, b[1])
        bow = max(start[0], end[0]) + 30
        return [start, (bow, start[1]), (bow, end[1]), end]
    middle = (start[0] + end[0]) / 2
    return [start, (middle, start[1]), (middle, end[1]), end]
