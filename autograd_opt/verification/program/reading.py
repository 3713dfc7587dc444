"""The recorded graph, read once: nodes as heads and operand positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instructions import PURE, UNREAD, VIEW, Malformed, Vocabulary

Signature = tuple[int, tuple[int | None, ...], tuple[bool, ...]]
"""Head of a node, types of its operands, and which of them want a cotangent."""


@dataclass
class Recorded:
    """A recorded graph as plain data, before any optimization.

    `operands[i]` holds a node number, or None for a number or an absent operand.
    """

    vocabulary: Vocabulary
    nodes: Sequence[Any]
    heads: list[int]
    operands: list[tuple[int | None, ...]]
    pure: bytearray
    grad: bytearray

    def signature(self, i: int, leader: Sequence[int] | None = None) -> Signature:
        """That of node i, its operands read off their leaders."""
        heads = self.vocabulary.heads
        places = [o if o is None or leader is None else leader[o] for o in self.operands[i]]
        kinds = tuple([None if o is None else heads[self.heads[o]].type for o in places])
        return self.heads[i], kinds, tuple([o is not None and self.grad[o] == 1 for o in places])


FROM_EITHER_END = frozenset(
    """softmax log_softmax sum mean logsumexp var std cumsum cumprod prod amax amin glu gather scatter_add index_add
    index_copy index_select narrow select unbind chunk split split_with_sizes cat vector_norm""".split())
"""Operators whose attribute `dim` names axes of their first operand."""
NOTHING: dict[Any, Any] = {}
Row = tuple[Any, ...]
"""A node as `kept` writes it: operator, type, flags, places of the operands, attributes, numbers among the operands."""


class Freed(LookupError):
    """A run has released what the node saved."""


FREED = object()
"""In place of a number that a run has released."""


class Kept:
    """What `convert` reads of a node, for when it is read later: neither tensors nor the run."""

    __slots__ = ("attributes", "device", "dtype", "hooks", "is_leaf", "numbers", "op", "operands", "requires_grad",
                 "shape")

    def __init__(self, row: Row, before: Sequence[Kept]):
        (self.op, self.shape, self.dtype, self.device, self.is_leaf, self.requires_grad, self.hooks, places,
         self.attributes, self.numbers) = row
        self.operands = tuple([None if o is None else before[o] for o in places])


def settled(value: Any) -> Any:
    """A value that nobody else can change, and that `encode` writes the same."""
    if type(value) in (list, tuple):
        return type(value)(map(settled, value))
    hash((value.start, value.stop, value.step) if type(value) is slice else value)
    return value


def kept(nodes: Sequence[Any]) -> list[Row]:
    """All nodes, each with an index and after its operands: `restored` makes of the rows what `convert` reads.

    Raises
    ------
    TypeError, LookupError : something cannot be read, or might change.
    """
    rows: list[Row] = []
    for node in nodes:
        places = tuple([None if o is None else o.index for o in node.operands])
        attributes, numbers = node.attributes or NOTHING, NOTHING
        if len(places) > 2 and None in places:
            numbers = {k: FREED if node.spent else number_of(node, k) for k, o in enumerate(places) if o is None}
        if attributes or numbers:
            try:
                hash((*attributes.values(), *numbers.values()))
            except TypeError:                # some of them is a list, or a slice
                attributes = {k: settled(v) for k, v in attributes.items()}
                numbers = {k: settled(v) for k, v in numbers.items()}
        rows.append((node.op, node.shape, node.dtype, node.device, node.is_leaf, node.requires_grad,
                     None if node.hooks is None else True, places, attributes, numbers))
    return rows


def restored(rows: Sequence[Row]) -> list[Kept]:
    """The nodes of which `kept` has made the rows."""
    out: list[Kept] = []
    for row in rows:
        out.append(Kept(row, out))
    return out


def convert(nodes: Sequence[Any], vocabulary: Vocabulary) -> Recorded:
    """Read the recorded nodes once.

    Raises
    ------
    Malformed : an operand is not a node of the list, or comes after its use.
    """
    recorded = Recorded(vocabulary, nodes, [], [], bytearray(len(nodes)), bytearray(len(nodes)))
    heads, operands, pure, grad = recorded.heads, recorded.operands, recorded.pure, recorded.grad
    position: dict[Any, int] = {}
    head_of, type_of = vocabulary.head, vocabulary.type
    devices: list[Any] = []
    for i, node in enumerate(nodes):
        op = node.op
        flags = op.flags
        places: tuple[int | None, ...]
        try:
            places = tuple([None if o is None else position[o] for o in node.operands])
        except KeyError:
            raise Malformed(f"node {i} ({op.name}) reads a node that is not in the graph before it") from None
        position[node] = i
        attributes = node.attributes
        effect = 0
        if node.is_leaf:
            effect = i + 1
        elif flags & (PURE | VIEW) or op.name == "output":
            pure[i] = 1
        else:
            effect = i + 1
        coded: tuple[tuple[str, str], ...] = ()
        if attributes or len(places) > 2:
            try:
                coded = attribute_bits(op, attributes, places, node)
            except Freed:                        # it is as pure as it was, but unlike any other
                coded, effect = (UNREAD,), i + 1
            except (TypeError, LookupError, RecursionError):
                coded, effect, pure[i] = (UNREAD,), i + 1, 0
        requires_grad = node.requires_grad
        grad[i] = requires_grad
        shape, dtype, device = node.shape, node.dtype, node.device
        if dtype is None:
            shape = tuple([None if m is None else (m[0], m[1], m[2] or home(places, devices)) for m in shape or ()])
            device = shape[0][2] if shape and shape[0] else home(places, devices)
            heads.append(head_of(op.name, coded, type_of(shape, None, None), requires_grad, effect))
        else:
            device = device or home(places, devices)
            heads.append(head_of(op.name, coded, type_of(shape, dtype, device), requires_grad, effect))
        devices.append(device)
        operands.append(places)
    return recorded


def home(places: Sequence[int | None], devices: Sequence[Any]) -> Any:
    """The device of the first operand, where a node does not say its own."""
    return next((devices[o] for o in places if o is not None), "cpu")


def attribute_bits(
    op: Any, attributes: dict[str, Any], places: Sequence[Any], node: Any
) -> tuple[tuple[str, str], ...]:
    """The attributes that differ from the operator's defaults, sorted by name, as text."""
    defaults = op.attributes
    out = []
    for name in sorted(attributes):
        value = attributes[name]
        if name == "dim" and op.name in FROM_EITHER_END and node.operands[0] is not None:
            value = from_the_front(value, node.operands[0].shape)
        text = encode(value, op.typed)
        if name not in defaults or encode(defaults[name], op.typed) != text:
            out.append((name, text))
    if len(places) > 2:
        for k, place in enumerate(places):
            if place is None:
                name = op.operands[k] if k < len(op.operands) else f"#{k}"
                if name not in attributes:
                    out.append((name, encode(number_of(node, k), op.typed)))
    return tuple(out)


def from_the_front(dim: Any, shape: Any) -> Any:
    """An axis of a tensor, or several, counted from the front: one attribute for one operation."""
    rank = len(shape or ())
    if type(dim) is int:
        return dim + rank if -rank <= dim < 0 else dim
    return tuple([from_the_front(d, shape) for d in dim]) if type(dim) in (tuple, list) else dim


def readable(node: Any) -> bool:
    """Can all attributes of a node be read, and the numbers among its operands?"""
    try:
        attribute_bits(node.op, node.attributes, node.operands, node)
    except (TypeError, LookupError, RecursionError):
        return False
    return True


def number_of(node: Any, k: int) -> Any:
    """The Python number (or None) at operand k of a node with three or more operands."""
    if isinstance(node, Kept):
        if node.numbers[k] is FREED:
            raise Freed
        return node.numbers[k]
    from autograd_opt.engine.saved_values import node_saved

    if node.spent:
        raise Freed
    value = node_saved(node, k)
    if isinstance(value, torch.Tensor):
        raise TypeError("a tensor that has no node")
    return value
