"""The picture of a scene: node by node, or in blocks where there are many."""

from __future__ import annotations

from collections import Counter

from autograd_opt._common.arguments import whole
from autograd_opt.inspection.drawing.blocks import blocks_of
from autograd_opt.inspection.drawing.boxes import Box, Frame, Picture, box_of
from autograd_opt.inspection.snapshot import Item, Scene

LIMIT = 60
"""Most boxes in one picture."""


def picture_of(scene: Scene, optimized: bool, limit: int | None = None) -> Picture:
    """The picture of a scene, as written or optimized; in blocks beyond `limit` (60) nodes."""
    limit = LIMIT if limit is None else whole("limit", limit, 1)
    items = scene.optimized_items() if optimized else scene.items
    if len(items) > limit:
        return in_blocks(scene, items, optimized, limit)
    numbers = {item.index: k for k, item in enumerate(scene.groups())}
    picture = Picture(caption(scene, items, optimized))
    for item in items:
        group = numbers.get(item.leader) if item.merged or item.state == "merged" else None
        picture.boxes.append(box_of(scene, item, group, optimized))
        operands = Counter(o for o in item.operands if o is not None)
        picture.edges += [(f"n{o}", f"n{item.index}", count) for o, count in operands.items()]
    return picture


def caption(scene: Scene, items: list[Item], optimized: bool) -> str:
    """One line above the picture."""
    nodes = f"{len(items)} node{'s' if len(items) != 1 else ''}, {scene.edges(items)} edges"
    return f"{scene.name}, {'optimized' if optimized else 'as written'}: {nodes}"


def in_blocks(scene: Scene, items: list[Item], optimized: bool, limit: int) -> Picture:
    """A picture of blocks, each frame around the parts of one module."""
    division, blocks = blocks_of(items, limit)
    picture = Picture(f"{caption(scene, items, optimized)}, {division}")
    home: dict[int, str] = {}
    framed: list[Frame] = []
    for k, block in enumerate(blocks):
        home.update((item.index, f"b{k}") for item in block.items)
        if block.frame and k and blocks[k - 1].frame == block.frame:
            framed[-1].boxes.append(f"b{k}")
        elif block.frame:
            framed.append(Frame(block.frame, [f"b{k}"]))
    picture.frames = [frame for frame in framed if len(frame.boxes) > 1]
    inside = {id for frame in picture.frames for id in frame.boxes}
    for k, block in enumerate(blocks):
        title = block.short if f"b{k}" in inside else block.name
        picture.boxes.append(Box(
            f"b{k}", title, block.detail(optimized), block.hover(optimized), "block", block.state(optimized),
            is_output=any(item.is_output for item in block.items),
        ))
    edges: Counter[tuple[str, str]] = Counter()
    for item in items:
        for o in item.operands:
            if o is not None and home[o] != home[item.index]:
                edges[home[o], home[item.index]] += 1
    picture.edges = [(a, b, n) for (a, b), n in edges.items()]
    return picture
