"""A graph read once into plain data: what pictures, pages, reports and JSON are made of.

Nothing here holds a node or a tensor, so a scene outlives its graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autograd_opt._common.callsite import place_text
from autograd_opt.graph import program_text
from autograd_opt.graph.node import PINNED
from autograd_opt.optimizer import merging
from autograd_opt.passes import PassReport


@dataclass(frozen=True, slots=True)
class Item:
    """One node."""

    index: int
    kind: str
    """`leaf`, `constant`, `operation` or `opaque`."""
    op: str
    text: str
    attributes: dict[str, object]
    operands: tuple[int | None, ...]
    type: str
    shape: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    bytes: int
    requires_grad: bool
    pinned: bool
    """A hook or `retain_grad` keeps its own cotangent."""
    source: str | None
    leader: int
    alive: bool
    is_output: bool
    module: str = ""
    name: str = ""
    """Of a leaf: what a followed model calls it."""
    merged: tuple[int, ...] = ()
    """The nodes that this one stands for, itself first; empty where it stands for itself alone."""

    @property
    def state(self) -> str:
        """`merged` into another node, `pruned`, or `kept`."""
        return "merged" if self.leader != self.index else "kept" if self.alive else "pruned"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "index": self.index, "kind": self.kind, "op": self.op, "expression": self.text,
            "attributes": {name: jsonable(value) for name, value in self.attributes.items()},
            "operands": list(self.operands),
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype, "device": self.device, "type": self.type, "bytes": self.bytes,
            "requires_grad": self.requires_grad, "pinned": self.pinned, "source": self.source,
            "module": self.module, "name": self.name, "leader": self.leader, "alive": self.alive,
            "is_output": self.is_output, "merged": list(self.merged),
        }


@dataclass(frozen=True)
class Scene:
    """A graph as written, with what the passes decide about it."""

    name: str
    items: list[Item]
    outputs: tuple[int, ...]
    passes: tuple[PassReport, ...]

    def kept(self) -> list[Item]:
        """The nodes that the passes leave."""
        return [item for item in self.items if item.state == "kept"]

    def optimized_items(self) -> list[Item]:
        """The nodes that the passes leave, operands led to their leaders."""
        items = self.items
        return [
            replace(item, operands=tuple(None if o is None else items[o].leader for o in item.operands),
                    text=re.sub(r"%(\d+)", lambda m: f"%{items[int(m[1])].leader}", item.text))
            for item in self.kept()
        ]

    def groups(self) -> list[Item]:
        """The nodes that stand for others too."""
        return [item for item in self.items if item.merged]

    def edges(self, items: Sequence[Item]) -> int:
        """Operand edges of `items`, parallel ones counted."""
        return sum(o is not None for item in items for o in item.operands)


def scene_of(graph: Any, outputs: Any = None) -> Scene:
    """Read `graph` and run its passes for `outputs` (default: what nothing else uses)."""
    held = getattr(graph, "scene", None)
    if isinstance(held, Scene):          # a snapshot
        return held
    graph.require_open()
    if len(graph.tape) == 0:
        return Scene(graph.label, [], (), ())
    roots = [int(i) for i in graph.root_numbers(outputs)]
    _, result = merging.run_passes(graph.tape, roots, graph.pipeline)
    leader, alive = result.leader.tolist(), result.alive.tolist()
    members: dict[int, list[int]] = {}
    for i, j in enumerate(leader):
        if i != j:
            members.setdefault(j, [j]).append(i)
    from autograd_opt.inspection.module_names import leaf_names_of, names_of
    module, leaf = names_of(graph), leaf_names_of(graph)
    wanted = set(roots)
    items = [
        item_of(node, leader[i], bool(alive[i]), i in wanted, module(i), leaf(node.tensor) if node.is_leaf else "",
                tuple(members.get(i, ())))
        for i, node in enumerate(graph.tape.snapshot())
    ]
    return Scene(graph.label, items, tuple(roots), tuple(result.reports))


def item_of(node: Any, leader: int, alive: bool, is_output: bool, module: str, name: str,
            merged: tuple[int, ...]) -> Item:
    """Plain data of one node."""
    several = node.dtype is None
    return Item(
        index=node.index, kind=kind_of(node), op=program_text.operator_text(node), text=program_text.expression(node),
        attributes=node.attributes if not several or node.raw_attributes else {},
        operands=tuple(None if o is None or o.index < 0 else o.index for o in node.operands),
        type=program_text.type_text(node), shape=None if several else tuple(node.shape),
        dtype=None if several else str(node.dtype).removeprefix("torch."),
        device=None if node.device is None else str(node.device), bytes=0 if several else int(node.bytes),
        requires_grad=node.requires_grad, pinned=bool(node.flags & PINNED),
        source=node.source and place_text(node.source),
        leader=leader, alive=alive, is_output=is_output, module=module, name=name, merged=merged,
    )


def kind_of(node: Any) -> str:
    """`leaf`, `constant`, `opaque` or `operation`."""
    if node.is_leaf:
        return "leaf" if node.requires_grad else "constant"
    return "opaque" if program_text.is_opaque(node) else "operation"


def jsonable(value: Any) -> Any:
    """A value that JSON has, or the text printed for it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (tuple, list)):
        return [jsonable(v) for v in value]
    return program_text.value_text(value)


def to_dict(graph: Any, optimized: bool = False) -> dict[str, object]:
    """The graph as plain data, ready for JSON.

    Parameters
    ----------
    optimized : what the passes leave, merged nodes listed with the node that stands for them.

    Returns
    -------
    dict with `name`, `optimized`, `outputs` (record numbers) and `nodes`, a list of dicts with
    `index`, `kind`, `op`, `attributes`, `operands` (record numbers, None for a Python number),
    `shape`, `dtype`, `device`, `requires_grad`, `pinned`, `source`, `module`, `name`, `leader`, `alive`,
    `merged`.
    """
    scene = scene_of(graph)
    items = scene.optimized_items() if optimized else scene.items
    return {
        "name": graph.label,
        "optimized": bool(optimized),
        "outputs": sorted({scene.items[i].leader if optimized else i for i in scene.outputs}),
        "nodes": [item.to_dict() for item in items],
    }
