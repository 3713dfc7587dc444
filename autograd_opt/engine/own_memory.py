"""Give captured gradients memory of their own where torch's have it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.engine.entry import expanded
from autograd_opt.engine.rules.placing import parts_taken
from autograd_opt.ops.table import MULTI, VIEW

Tensor = torch.Tensor


def own_memory(tape: Any, roots: list[Any], cotangents: list[Tensor], targets: list[Any], results: list[Any],
               create_graph: bool) -> list[Any]:
    """The gradients that were captured, copied where merging has spared the sum or product that torch returns.

    Where it has spared only a view, they are that view: of a cotangent that requires grad, torch takes it for a leaf.
    """
    given = {(id(g), n.index): g for g, n in zip(results, targets, strict=True) if g is not None}
    held = Counter([*(key for key, _ in given), *map(id, cotangents)])
    made: dict[tuple[int, int], Tensor] = {}
    copies = {}
    users: dict[int, list[Any]] = {}
    for (number, index), g in given.items():
        stretched = expanded(g)
        if stretched or (len(tape) <= SMALL and (held[number] > 1 or (not create_graph and is_view(g)))):
            users = users or users_of(roots, min(k for _, k in given))
            place = summed(users, tape.node(index), not stretched)
            if place is VIEWED:
                if held[number] > 1 and not create_graph:
                    with torch.no_grad():
                        copies[number, index] = g.view_as(g)
            elif place is not None:          # targets to which that sum is handed on have one tensor together
                if (number, place) not in made:
                    with torch.set_grad_enabled(create_graph):
                        made[number, place] = g.clone()
                copies[number, index] = made[number, place]
    return [g if g is None else copies.get((id(g), n.index), g) for g, n in zip(results, targets, strict=True)]


def is_view(g: Tensor) -> bool:
    with private.DisableTorchFunction():
        return private.is_view(g)


SMALL = 20_000
"""Nodes up to which a gradient is looked after for being a view where torch's is none: the answer walks the graph."""
SAME = frozenset(["expand", "expand_as", "broadcast_to", "squeeze"])
"""Views that hand on the cotangent itself where they change no shape."""
PASSING = frozenset("add sub clone contiguous cast positive cat stack".split())
"""Operators whose rule hands on the cotangent itself, or a view of it."""


VIEWED = -1


def changes_nothing(node: Any) -> bool:
    """Is this an index that takes everything, or a change of the order of axes that leaves every axis in its place?

    torch makes no view for it, so that the cotangent is handed on itself.  A slice that stands alone is one.
    """
    attributes = node.raw_attributes or {}
    if node.op.name == "movedim":
        source, destination = attributes.get("source"), attributes.get("destination")
        return not node.shape or (type(source) is int and type(destination) is int
                                  and (source - destination) % len(node.shape) == 0)
    index = attributes.get("index") if node.op.name == "slice" else None
    return type(index) is tuple and not parts_taken(index, node.operands[0].shape)


def users_of(roots: list[Any], first: int) -> dict[int, list[Any]]:
    """Which nodes, on the way to the roots, read each node from number `first` on; None is the reader of a root."""
    users: dict[int, list[Any]] = {n.index: [None] for n in roots}
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.index in seen or node.index < first:
            continue
        seen.add(node.index)
        for n in node.operands:
            if n is not None and n.requires_grad:
                users.setdefault(n.index, []).append(node)
                stack.append(n)
    return users


def summed(users: dict[int, list[Any]], target: Any, views: bool = False) -> int | None:
    """The node at which an expanded gradient of `target` (or one that is a view) is a sum or a product in the graph as
    written, on its way from where it became that; None where it is neither, VIEWED where it became a view."""
    node = target
    while node is not None:
        ways = users.get(node.index, [])
        if len(ways) != 1:
            return int(node.index) if len(ways) > 1 else None
        above = ways[0]
        if above is None or above.shape is None or above.op.flags & MULTI \
                or math.prod(above.shape) < math.prod(node.shape):
            return None                     # here it is expanded
        if views and above.shape == node.shape and (above.op.name in SAME or changes_nothing(above)):
            node = above
            continue
        if views and (above.op.flags & VIEW or above.op.name in ("cat", "stack")):
            return VIEWED
        if above.leader is not None and not above.op.flags & VIEW and above.op.name not in PASSING:
            return int(node.index)          # a product with one, say, which a rule has left out
        node = above
    return None
