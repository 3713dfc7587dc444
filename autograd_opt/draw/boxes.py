"""What is drawn: boxes with their texts, colours and edges, single nodes or whole blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from autograd_opt import printing
from autograd_opt.scene import Item, Scene

LIMIT = 60
"""Most boxes in one picture."""


@dataclass
class Box:
    """One box of a picture."""

    id: str
    title: str
    detail: str
    hover: str
    kind: str
    state: str = "kept"
    group: int | None = None
    pinned: bool = False
    is_output: bool = False


@dataclass
class Picture:
    """Boxes and the edges between them: (from, to, how many, is it a link of merged nodes)."""

    caption: str
    boxes: list[Box] = field(default_factory=list)
    edges: list[tuple[str, str, int, bool]] = field(default_factory=list)


def picture_of(scene: Scene, optimized: bool, limit: int | None = None) -> Picture:
    """The picture of a scene, as written or optimized; in blocks beyond `limit` (60) nodes."""
    limit = LIMIT if limit is None else limit
    items = scene.optimized_items() if optimized else scene.items
    numbers = {item.index: k for k, item in enumerate(scene.groups())}
    if len(items) > limit:
        return blocks_of(scene, items, optimized, limit)
    picture = Picture(caption(scene, items, optimized))
    for item in items:
        group = numbers.get(item.leader) if item.merged or item.state == "merged" else None
        picture.boxes.append(box_of(scene, item, group, optimized))
        operands = Counter(o for o in item.operands if o is not None)
        picture.edges += [(f"n{o}", f"n{item.index}", count, False) for o, count in operands.items()]
        if item.state == "merged":
            picture.edges.append((f"n{item.leader}", f"n{item.index}", 1, True))
    return picture


def caption(scene: Scene, items: list[Item], optimized: bool) -> str:
    """One line above the picture."""
    nodes = f"{len(items)} node{'s' if len(items) != 1 else ''}, {scene.edges(items)} edges"
    return f"{scene.name}, {'optimized' if optimized else 'as written'}: {nodes}"


def box_of(scene: Scene, item: Item, group: int | None, optimized: bool) -> Box:
    """The box of one node."""
    title = item.op if item.kind != "operation" or item.op != "output" else f"output {item.attributes.get('i', 0)}"
    numbers = [printing.value_text(v) for k, v in item.attributes.items() if item.text.count(f"{k}=")]
    if numbers:
        title += f" {printing.shorten(', '.join(numbers), 18)}"
    if optimized and item.merged:
        title += f"  ×{len(item.merged)}"
    return Box(
        f"n{item.index}", f"%{item.index} {title}", item.type, hover(scene, item), item.kind,
        item.state, group, item.pinned, item.is_output,
    )


def hover(scene: Scene, item: Item) -> str:
    """What the pointer shows: the program line, and every source line of a merged group."""
    lines = [f"%{item.index} = {item.text}", item.type]
    if item.module:
        lines.append(item.module)
    members = scene.items[item.leader].merged
    if members:
        lines.append(f"one value, written {len(members)} times:")
        lines += [f"  %{m} {scene.items[m].source or ''}".rstrip() for m in members]
    elif item.source:
        lines.append(item.source)
    if item.state == "pruned":
        lines.append("pruned: no output needs it")
    if item.pinned:
        lines.append("pinned: a hook or retain_grad sees its own cotangent")
    return "\n".join(lines)


# Large graphs ---------------------------------------------------------------------------
def runs(items: list[Item], key: Callable[[Item], str]) -> list[tuple[str, list[Item]]]:
    """Consecutive items of one key.

    Records of one run are consecutive and operands come first, so blocks form no cycle.
    """
    found: list[tuple[str, list[Item]]] = []
    for item in items:
        name = key(item)
        if found and found[-1][0] == name:
            found[-1][1].append(item)
        else:
            found.append((name, [item]))
    return found


def blocks_in(items: list[Item], limit: int) -> list[tuple[str, list[Item]]]:
    """The finest division into at most `limit` blocks: modules, source lines, else equal parts."""
    deepest = max((item.module.count(".") + 1 for item in items if item.module), default=0)
    for depth in range(deepest, 0, -1):
        found = runs(items, lambda item: ".".join(item.module.split(".")[:depth]) or outside(item))  # noqa: B023
        if len(found) <= limit:
            return found
    found = runs(items, outside)
    if len(found) <= limit:
        return found
    size = -(-len(items) // limit)
    parts = [items[k:k + size] for k in range(0, len(items), size)]
    return [(f"%{part[0].index} … %{part[-1].index}", part) for part in parts]


def outside(item: Item) -> str:
    """The block of a node outside every followed module."""
    return printing.source_text(item.source) if item.source else ""


def blocks_of(scene: Scene, items: list[Item], optimized: bool, limit: int) -> Picture:
    """A picture of blocks."""
    picture = Picture(caption(scene, items, optimized) + ", in blocks")
    home: dict[int, str] = {}
    edges: Counter[tuple[str, str]] = Counter()
    for k, (name, part) in enumerate(blocks_in(items, limit)):
        for item in part:
            home[item.index] = f"b{k}"
        picture.boxes.append(block_box(f"b{k}", name or "leaves", part, optimized))
    for item in items:
        for o in item.operands:
            if o is not None and home[o] != home[item.index]:
                edges[home[o], home[item.index]] += 1
    picture.edges = [(a, b, n, False) for (a, b), n in edges.items()]
    return picture


def block_box(id: str, name: str, part: list[Item], optimized: bool) -> Box:
    """The box of one block."""
    counts = Counter(item.op for item in part)
    states = Counter(item.state for item in part)
    detail = f"{len(part)} node{'s' if len(part) != 1 else ''}"
    work = Counter(item.op for item in part if item.kind not in ("leaf", "constant"))
    if 0 < len(work) <= 3:
        detail += ": " + ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in work.items())
    if not optimized:
        detail += "".join(f", {states[s]} {s}" for s in ("merged", "pruned") if states[s])
    lines = [name, detail, ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in counts.most_common(12))]
    lines += sorted({item.source for item in part if item.source})[:12]
    calls = {item.state for item in part if item.kind not in ("leaf", "constant")}
    gone = bool(calls) and not optimized and "kept" not in calls
    state = "kept" if not gone else "merged" if calls == {"merged"} else "pruned"
    return Box(id, printing.shorten(name, 44), detail, "\n".join(lines), "block", state,
               is_output=any(i.is_output for i in part))
