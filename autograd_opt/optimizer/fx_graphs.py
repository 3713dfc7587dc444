"""FX graphs as the passes see them: what is computed, from what, and what may be merged or dropped."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from autograd_opt.abi import torch_private as private
from autograd_opt.passes import EFFECT, KEEP, LEAF, PINNED, NodeTable

PURE_FUNCTIONS = frozenset({operator.getitem, *(getattr(operator, name) for name in (
    "add sub mul truediv floordiv mod pow neg pos abs matmul eq ne lt le gt ge and_ or_ xor invert").split())})
"""Functions of Python that compute from their operands alone."""
VALUES = (str, bytes, int, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
          type(Ellipsis))


def schema_of(node: Node) -> Any:
    """The schema of an operator's overload; None for what is called in another way."""
    called = node.op == "call_function" and isinstance(node.target, private.OpOverload)
    return node.target._schema if called else None  # type: ignore[union-attr]


def is_pure(node: Node) -> bool:
    """True if the value of a call depends on its operands alone, and it writes nothing."""
    schema = schema_of(node)
    if schema is None:
        return node.op == "call_function" and node.target in PURE_FUNCTIONS
    target: Any = node.target
    drawn = torch.Tag.nondeterministic_seeded in target.tags
    return target.namespace in ("aten", "prims") and not schema.is_mutable and not drawn and not node.is_impure()


def is_view(node: Node) -> bool:
    """True if the result may share the memory of an operand."""
    schema = schema_of(node)
    if schema is None:
        return True
    return any(r.alias_info is not None for r in schema.returns) or "reshape" in str(node.target) \
        or "contiguous" in str(node.target) or str(node.target).startswith(("aten._to_copy", "aten.to.", "aten.detach"))


def written_by(node: Node) -> list[Node]:
    """The operands that a call may write: those that its schema names, all of a call without one."""
    schema = schema_of(node)
    if node.op in ("placeholder", "get_attr", "output") or is_pure(node):
        return []
    if schema is None:
        return node.all_input_nodes
    if not schema.is_mutable:
        return []
    given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    names = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    return [n for name in names for n in nodes_in(given.get(name))]


def nodes_in(value: Any) -> Iterator[Node]:
    """The nodes in an argument, in order."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from nodes_in(item)
    elif isinstance(value, slice):
        yield from nodes_in((value.start, value.stop, value.step))


def key_of(value: Any) -> Any:
    """What an argument says besides its nodes: numbers by type and bits, so that 0.0 is not -0.0, nor 1 True."""
    if isinstance(value, Node):
        return Node
    if isinstance(value, float):
        return float, struct.pack("d", value)
    if isinstance(value, complex):
        return complex, struct.pack("dd", value.real, value.imag)
    if isinstance(value, (list, tuple)):
        return type(value), *map(key_of, value)
    if isinstance(value, dict):
        return dict, *((k, key_of(v)) for k, v in value.items())
    if isinstance(value, slice):
        return slice, key_of((value.start, value.stop, value.step))
    if isinstance(value, VALUES):
        return type(value), value
    return object, object()             # equal to nothing


def ancestors(node: Node) -> Iterator[Node]:
    """The node, and those whose memory it may show."""
    stack, seen = [node], {node}
    while stack:
        top = stack.pop()
        yield top
        if top.op == "call_function" and is_view(top):
            stack += [n for n in top.all_input_nodes if n not in seen]
            seen.update(top.all_input_nodes)


def table_of(graph: Graph) -> tuple[list[Node], NodeTable, list[int]]:
    """(the nodes, their table, the numbers of those that the output reads).

    Calls on both sides of a write have different keys. What is written, or handed out, keeps memory of its own.
    """
    found = list(graph.nodes)
    number = {n: i for i, n in enumerate(found)}
    keys: dict[Any, int] = {}
    key, rows, flags, writes = [], [], [], 0
    apart: set[Node] = set()
    for i, node in enumerate(found):
        rows.append([number[n] for n in nodes_in((node.args, node.kwargs))])
        if is_pure(node):
            said = (writes, node.target, key_of(node.args), key_of(tuple(node.kwargs.items())))
            key.append(keys.setdefault(said, len(keys)))
            flags.append(0)
        else:
            key.append(keys.setdefault(i, len(keys)))
            drawn = schema_of(node) is not None and not schema_of(node).is_mutable and not node.is_impure()
            flags.append(LEAF | KEEP if node.op in ("placeholder", "get_attr") else PINNED if drawn else EFFECT | KEEP)
        written = written_by(node)
        writes += bool(written)
        for n in written if node.op != "output" else node.all_input_nodes:
            apart.update(ancestors(n))
    for n in graph.output_node().all_input_nodes:
        apart.update(ancestors(n))
    for n in apart:
        flags[number[n]] |= PINNED
    outputs = [number[n] for n in graph.output_node().all_input_nodes]
    return found, NodeTable.from_operands(np.asarray(key), rows, flags), outputs


__all__ = ["table_of"]
