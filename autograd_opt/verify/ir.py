"""The checker's own data: heads, programs, and the conversion of a recorded graph.

A *head* is everything about an instruction but its operands: operator, attributes by their
bits, type of the result, grad flag, and a token that sets effects and leaves apart.  A
*program* is a list of (head, operand positions); position i of a forward program is the
recorded node i.  Nothing here runs a kernel, a pass or the executor.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

PURE, VIEW, MULTI = 4, 8, 32
ADD = "add"
DRAWS = frozenset({"dropout", "rand_like", "randn_like", "bernoulli", "normal", "feature_dropout", "alpha_dropout"})
"""Operators whose result is a random draw: two of them are two free values."""


class Malformed(Exception):
    """The input is not a graph that can be verified."""


class Type(NamedTuple):
    """Shape, dtype and device; a node with several outputs lists theirs in `parts`."""

    shape: tuple[int, ...] | None
    dtype: str
    device: str
    parts: tuple[Any, ...] = ()


class Head(NamedTuple):
    """An instruction without its operands."""

    op: str
    attributes: tuple[tuple[str, str], ...]
    type: int
    grad: bool
    effect: int

    def value(self, name: str, default: Any = None) -> Any:
        """The attribute `name`, decoded."""
        for key, text in self.attributes:
            if key == name:
                return decode(text)
        return default

    def values(self) -> dict[str, Any]:
        """All attributes, decoded."""
        return {k: decode(t) for k, t in self.attributes if k != "@"}


def encode(value: Any) -> str:
    """Text that is equal exactly when two attribute values are the same, bit for bit.

    >>> [encode(v) for v in (1, 1.0, True, -0.0)]
    ['i1', 'f000000000000f03f', 'T', 'f0000000000000080']
    """
    kind = type(value)
    if value is None:
        return "N"
    if kind is bool:
        return "T" if value else "F"
    if kind is int:
        return f"i{value}"
    if kind is float:
        return "f" + struct.pack("<d", value).hex()
    if kind is str:
        return f"s{value!r}"
    if kind is complex:
        return "c" + struct.pack("<dd", value.real, value.imag).hex()
    if kind is tuple or kind is list or kind is torch.Size:
        return "(" + ",".join([f"{len(e)}:{e}" for e in map(encode, value)]) + ")"
    if kind is slice:
        return "l" + encode((value.start, value.stop, value.step))
    if value is Ellipsis:
        return "E"
    if kind in (torch.dtype, torch.layout, torch.memory_format):
        return f"d{value!r}"
    if kind is torch.device:
        return f"v{value}"
    raise TypeError(kind)


def decode(text: str) -> Any:
    """The value that `encode` wrote."""
    tag, rest = text[0], text[1:]
    if tag in "NTFE":
        return {"N": None, "T": True, "F": False, "E": Ellipsis}[tag]
    if tag == "i":
        return int(rest)
    if tag == "f":
        return struct.unpack("<d", bytes.fromhex(rest))[0]
    if tag == "c":
        return complex(*struct.unpack("<dd", bytes.fromhex(rest)))
    if tag == "s":
        return rest[1:-1].encode().decode("unicode_escape")
    if tag == "d":
        return getattr(torch, rest.removeprefix("torch."))
    if tag == "v":
        return torch.device(rest)
    if tag == "l":
        return slice(*decode(rest))
    out, k, body = [], 0, rest[:-1]
    while k < len(body):
        colon = body.index(":", k)
        size = int(body[k:colon])
        out.append(decode(body[colon + 1 : colon + 1 + size]))
        k = colon + 2 + size
    return tuple(out)


class Vocabulary:
    """Types and heads, numbered; shared by the programs that are compared."""

    def __init__(self) -> None:
        self.types: list[Type] = []
        self.heads: list[Head] = []
        self._types: dict[Any, int] = {}
        self._heads: dict[Head, int] = {}

    def type(self, shape: Any, dtype: Any, device: Any) -> int:
        """The number of this type."""
        key = (shape, dtype, device)
        found = self._types.get(key)
        if found is None:
            if dtype is None:
                value = Type(None, "", "", tuple(None if p is None else self.type(*p) for p in shape or ()))
            else:
                value = Type(tuple(int(d) for d in shape), str(dtype).removeprefix("torch."), str(device))
            found = self._types.setdefault(value, len(self.types))
            if found == len(self.types):
                self.types.append(value)
            self._types[key] = found
        return found

    def spelled(self, type: int | None) -> Any:
        """A type that means the same in every vocabulary."""
        if type is None:
            return None
        t = self.types[type]
        return t if not t.parts else t._replace(parts=tuple(map(self.spelled, t.parts)))

    def intern(self, spelled: Any) -> int:
        """The number of a type that `spelled` gave."""
        t = spelled._replace(parts=tuple(None if p is None else self.intern(p) for p in spelled.parts))
        found = self._types.setdefault(t, len(self.types))
        if found == len(self.types):
            self.types.append(t)
        return found

    def head(
        self, op: str, attributes: tuple[tuple[str, str], ...], type: int, grad: bool = False, effect: int = 0
    ) -> int:
        """The number of this head."""
        head = Head(op, attributes, type, grad, effect)
        found = self._heads.get(head)
        if found is None:
            found = self._heads[head] = len(self.heads)
            self.heads.append(head)
        return found


@dataclass
class Program:
    """Straight-line code: instruction k has head `heads[k]` and operands `operands[k]` (positions before k).

    `origin[k]` is the recorded node an instruction belongs to; `values` are the positions
    of the outputs, `gradients` those of the wanted leaves' cotangents (None: no path),
    `cotangents` maps a recorded node to the position of its whole cotangent.
    """

    vocabulary: Vocabulary
    heads: list[int]
    operands: list[tuple[int, ...]]
    origin: array[int]
    forward: int = 0
    values: list[int] = field(default_factory=list)
    gradients: list[int | None] = field(default_factory=list)
    cotangents: dict[int, int] = field(default_factory=dict)

    def append(self, head: int, operands: tuple[int, ...], origin: int) -> int:
        self.heads.append(head)
        self.operands.append(operands)
        self.origin.append(origin)
        return len(self.heads) - 1

    def type_of(self, k: int) -> Type:
        return self.vocabulary.types[self.vocabulary.heads[self.heads[k]].type]

    def digest(self) -> str:
        """sha256 over heads (by content), operands and goals."""
        h = hashlib.sha256()
        words: dict[int, int] = {}
        for number in self.heads:
            if number not in words:
                words[number] = len(words)
                head = self.vocabulary.heads[number]
                h.update(repr((head[:2], self.vocabulary.types[head.type], head[3:])).encode())
        h.update(array("q", [words[n] for n in self.heads]).tobytes())
        flat = array("q")
        for o in self.operands:
            flat.append(-len(o) - 1)
            flat.extend(o)
        h.update(flat.tobytes())
        h.update(repr((self.values, self.gradients)).encode())
        return h.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a certificate file."""
        return {
            "heads": self.heads,
            "operands": [list(o) for o in self.operands],
            "origin": list(self.origin),
            "forward": self.forward,
            "values": self.values,
            "gradients": self.gradients,
            "cotangents": sorted(self.cotangents.items()),
        }


@dataclass
class Recorded:
    """A recorded graph as plain data, before any optimization.

    `operands[i]` holds a node number, or None for a number or an absent operand;
    `numbers[i]` says which numbers stand at those places; `needs[i]` which operands want a cotangent.
    """

    vocabulary: Vocabulary
    nodes: Sequence[Any]
    heads: list[int]
    operands: list[tuple[int | None, ...]]
    pure: bytearray
    grad: bytearray
    unique: list[str]


def convert(nodes: Sequence[Any], vocabulary: Vocabulary) -> Recorded:
    """Read the recorded nodes once.

    Raises
    ------
    Malformed : an operand is not a node of the list, or comes after its use.
    """
    recorded = Recorded(vocabulary, nodes, [], [], bytearray(len(nodes)), bytearray(len(nodes)), [])
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
        versions = getattr(node, "operand_versions", None)
        if attributes or len(places) > 2 or versions:
            try:
                coded = attribute_bits(op, attributes, places, node, versions)
            except (TypeError, LookupError):
                recorded.unique.append(op.name)
                effect, pure[i] = i + 1, 0
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
    op: Any, attributes: dict[str, Any], places: tuple[int | None, ...], node: Any, versions: Any
) -> tuple[tuple[str, str], ...]:
    """The attributes that differ from the operator's defaults, sorted by name, as text."""
    defaults = op.attributes
    out = []
    for name in sorted(attributes):
        text = encode(attributes[name])
        if name not in defaults or encode(defaults[name]) != text:
            out.append((name, text))
    if len(places) > 2:
        for k, place in enumerate(places):
            if place is None:
                name = op.operands[k] if k < len(op.operands) else f"#{k}"
                if name not in attributes:
                    out.append((name, encode(number_of(node, k))))
    if versions and any(versions):
        out.append(("@", encode(tuple(versions))))
    return tuple(out)


def number_of(node: Any, k: int) -> Any:
    """The Python number (or None) at operand k of a node with three or more operands."""
    from autograd_opt.executor import node_saved

    if node.spent:
        raise LookupError("released")
    value = node_saved(node, k)
    if isinstance(value, torch.Tensor):
        raise TypeError("a tensor that has no node")
    return value
