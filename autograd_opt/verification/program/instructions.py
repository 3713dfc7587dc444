"""The checker's own data: heads, programs, and the conversion of a recorded graph.

A *head* is everything about an instruction but its operands: operator, attributes by their
bits, type of the result, grad flag, and a token that sets effects and leaves apart.  A
*program* is a list of (head, operand positions); position i of a forward program is the
recorded node i.  Nothing here runs a kernel, a pass or the executor.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autograd_opt.verification.program.attribute_encoding import decode

PURE, VIEW, MULTI = 4, 8, 32
ADD = "add"
UNREAD = ("#unread", "T")
"""Stands for the attributes of a node where one cannot be read: nothing is known of its operator then."""
DRAWS = frozenset({"dropout", "rand_like", "randn_like", "bernoulli", "normal", "feature_dropout", "alpha_dropout"})
"""Operators whose result is a random draw: two of them are two free values."""
FOREIGN = frozenset({"written", "overwrite"})
"""Memory that was written without a record: any value."""


class Malformed(Exception):
    """The input is not a graph that can be verified."""


class Released(Malformed):
    """There is no graph any more."""


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

    @property
    def unread(self) -> bool:
        """Is nothing known of the attributes?"""
        return UNREAD in self.attributes

    def value(self, name: str, default: Any = None) -> Any:
        """The attribute `name`, decoded."""
        for key, text in self.attributes:
            if key == name:
                return decode(text)
        return default

    def values(self) -> dict[str, Any]:
        """All attributes, decoded."""
        return {k: decode(t) for k, t in self.attributes}


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

    def floating(self, type: int) -> bool:
        """Are its elements, or those of all its parts, real or complex numbers?"""
        t = self.types[type]
        if t.parts:
            return all(p is None or self.floating(p) for p in t.parts)
        return t.dtype.startswith(("float", "bfloat", "complex"))

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
    `cotangents` maps a recorded node to the position of its whole cotangent, `sent` says which node sent which
    part of one to which of its operands (-1: a seed, to which node).
    """

    vocabulary: Vocabulary
    heads: list[int]
    operands: list[tuple[int, ...]]
    origin: array[int]
    forward: int = 0
    values: list[int] = field(default_factory=list)
    gradients: list[int | None] = field(default_factory=list)
    cotangents: dict[int, int] = field(default_factory=dict)
    sent: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, head: int, operands: tuple[int, ...], origin: int) -> int:
        self.heads.append(head)
        self.operands.append(operands)
        self.origin.append(origin)
        return len(self.heads) - 1

    def type_of(self, k: int) -> Type:
        return self.vocabulary.types[self.vocabulary.heads[self.heads[k]].type]

    def copy(self) -> Program:
        """Another program of the same instructions."""
        return Program(self.vocabulary, list(self.heads), list(self.operands), self.origin[:], self.forward,
                       list(self.values), list(self.gradients), dict(self.cotangents), list(self.sent))

    def same(self, other: Program) -> bool:
        """The same instructions in the same places, and the same goals?"""
        return (
            self.vocabulary is other.vocabulary
            and self.heads == other.heads
            and self.operands == other.operands
            and self.values == other.values
            and self.gradients == other.gradients
        )

    def digest(self) -> str:
        """sha256 over heads (by content), operands and goals."""
        h = hashlib.sha256()
        words: dict[int, int] = {}
        for number in self.heads:
            if number not in words:
                words[number] = len(words)
                head = self.vocabulary.heads[number]
                h.update(repr((head[:2], self.vocabulary.spelled(head.type), head[3:])).encode())
        h.update(array("q", [words[n] for n in self.heads]).tobytes())
        flat = array("q")
        for o in self.operands:
            flat.append(-len(o) - 1)
            flat.extend(o)
        h.update(flat.tobytes())
        h.update(repr((self.values, self.gradients)).encode())
        return h.hexdigest()
