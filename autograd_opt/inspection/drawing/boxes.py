"""What is drawn: boxes with their texts and colours, the edges between them, frames around some."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from autograd_opt.graph import program_text
from autograd_opt.inspection.snapshot import Item, Scene
from autograd_opt.ops.table import OPS

MOST_PARTS = 3
"""Parts of a node's result whose types are written out."""


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
    merges: bool = False
    """It stands for others, or another for it."""
    gone: bool = False
    """Drawn as an empty outline: the passes removed it, and its place is kept."""
    tags: list[tuple[str, int | None]] = field(default_factory=list)
    """What it reads without a line: leaves, and values that many read, with the number of their colour."""


@dataclass
class Frame:
    """A line around boxes that belong together, with a title."""

    title: str
    boxes: list[str]
    parent: int = -1
    """The frame around it."""


@dataclass
class Picture:
    """Boxes and the edges between them: (from, to, how many)."""

    caption: str
    boxes: list[Box] = field(default_factory=list)
    edges: list[tuple[str, str, int]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    """Boxes that stand side by side, from the top; those of a population have no edges that would place them."""
    hidden: list[tuple[str, str]] = field(default_factory=list)
    """Edges that are not drawn, yet take part in the placement."""
    loose: set[tuple[str, str]] = field(default_factory=set)
    """Edges that are drawn, but take no part in it."""


def box_of(scene: Scene, item: Item, group: int | None, optimized: bool) -> Box:
    """The box of one node."""
    title = title_of(item)
    if optimized and item.merged:
        title += f"  ×{len(item.merged)}"
    detail = type_of(item) + (f", same as %{item.leader}" if item.state == "merged" else "")
    return Box(
        f"n{item.index}", f"%{item.index} {title}", detail, hover(scene, item), item.kind,
        item.state, group, item.pinned, item.is_output, group is not None,
    )


def type_of(item: Item) -> str:
    """The type of a node, in short where it has many parts: `10 × f32[2, 4]`."""
    parts = re.findall(r"\w+\[[^]]*\]", item.type) if item.type.startswith("(") else []
    if len(parts) <= MOST_PARTS:
        return item.type
    return f"{len(parts)} × {parts[0]}" if len(set(parts)) == 1 else f"({', '.join(parts[:MOST_PARTS])}, …)"


def title_of(item: Item) -> str:
    """Operator and numbers of a node, or the name of a leaf: `mul 2`, `sum 0`, `layers.0.weight`."""
    if item.name:
        return program_text.shorten(item.name, 30)
    if item.op == "output" and item.kind == "operation":
        return f"output {item.attributes.get('i', 0)}"
    names = OPS[item.op].operands if item.op in OPS else ()
    numbers = [item.attributes.get(name) for name, o in zip(names, item.operands, strict=False) if o is None]
    numbers += [v for k, v in item.attributes.items() if k not in names and f"{k}=" in item.text]
    text = ", ".join(program_text.value_text(v) for v in numbers if v is not None)
    return f"{item.op} {program_text.shorten(text, 18)}".rstrip()


def hover(scene: Scene, item: Item) -> str:
    """What the pointer shows: the program line, and every source line of a merged group."""
    lines = [f"%{item.index} = {item.text}", item.type]
    if item.name:
        lines.append(item.name)
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


INFIX = {"add": "+", "sub": "−", "mul": "·", "div": "/"}


def formula(scene: Scene, index: int, names: dict[int, str], longest: int = 60) -> str:
    """A value as a formula of leaves and of the values in `names`; inner parts are left out after `longest` signs."""
    left = [longest]

    def text(i: int, inside: bool) -> str:
        item = scene.items[scene.items[i].leader]
        if item.index in names and (inside or item.index != scene.items[index].leader):
            found = names[item.index]
        elif item.kind in ("leaf", "constant"):
            found = item.name or f"%{item.index}"
        elif left[0] <= 0:
            found = "…"
        else:
            left[0] -= len(item.op) + 2
            operands = OPS[item.op].operands if item.op in OPS else ()
            parts = [text(o, True) if o is not None else
                     program_text.value_text(item.attributes.get(operands[k]) if k < len(operands) else None)
                     for k, o in enumerate(item.operands)]
            if item.op in INFIX and len(parts) == 2:
                joined = f" {INFIX[item.op]} ".join(parts)
                return f"({joined})" if inside else joined
            return f"{item.op}({', '.join(parts)})"
        left[0] -= len(found)
        return found

    return text(index, False)
