"""What torch's own schemas and tags say about an operation: may its value be shared?

Purity is an allow-list.  An operation counts as repeatable work only where torch's schema
says that it writes nothing, its tags say that it draws nothing, it belongs to torch's own
namespaces, and its output does not show memory as it happened to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

PURE, VIEW, RANDOM, EFFECT, UNKNOWN, UNDEFINED = "pure", "view", "random", "effect", "unknown", "undefined"

NAMESPACES = frozenset({"aten", "prims", "torchvision", "quantized", "mkldnn", "mkldnn_prims"})
UNDEFINED_NAMES = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "_efficientzerotensor",
    "resize_", "resize", "set_", "_resize_output_",
})
"""Operations whose output holds whatever the memory held, or changes what memory is shown."""
VIEWS = frozenset({"_unsafe_view", "_reshape_alias"})
"""Views that the schema does not call so."""
HIDDEN_WRITES: dict[str, tuple[int, ...]] = {
    "native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4), "miopen_batch_norm": (3, 4),
}
"""Running statistics that are written although the schema does not say so, by position."""
OVERWRITES = frozenset({"copy_", "fill_", "zero_"})
"""In-place operations whose result does not depend on the old value."""
RANDOM_UNLESS_ZERO = ("dropout_p", "p", "dropout")
"""Arguments that make a random operation a certain one when they are 0."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of one operator."""

    number: int
    name: str
    verdict: str
    written: tuple[int, ...] = ()
    """Positions of arguments that are written."""
    ignored: tuple[int, ...] = ()
    """Positions of arguments on which the result does not depend."""
    in_place: bool = False
    """True if an argument is written: the result has memory that is someone's own."""
    chance: tuple[str, int] | None = None
    """Name and position of the probability of a random operation."""


_kinds: dict[Any, Kind] = {}


def kind_of(func: Any) -> Kind:
    """The kind of an operator overload, looked up once."""
    kind = _kinds.get(func)
    if kind is None:
        kind = _kinds[func] = classify(func)
    return kind


def classify(func: Any) -> Kind:
    """Read schema and tags.

    >>> classify(torch.ops.aten.mul.Tensor).verdict, classify(torch.ops.aten.bernoulli.default).verdict
    ('pure', 'random')
    >>> classify(torch.ops.aten.add_.Tensor).written
    (0,)
    """
    number, schema = len(_kinds), func._schema
    name = schema.name.partition("::")[2]
    arguments = schema.arguments
    written = tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)
    outs = tuple(i for i in written if arguments[i].is_out)
    if func.namespace not in NAMESPACES:
        return Kind(number, f"{func.namespace}.{name}", UNKNOWN, written)
    if name in HIDDEN_WRITES:
        return Kind(number, name, EFFECT, HIDDEN_WRITES[name], HIDDEN_WRITES[name])
    if torch.Tag.nondeterministic_seeded in func.tags:
        chance = next(((a.name, i) for i, a in enumerate(arguments) if a.name in RANDOM_UNLESS_ZERO), None)
        return Kind(number, name, RANDOM, written, outs, chance=chance)
    if name in UNDEFINED_NAMES:
        return Kind(number, name, UNDEFINED, written, outs)
    if any("Tensor" not in str(a.type) and a.type.kind() == "ClassType" for a in arguments):
        return Kind(number, name, UNKNOWN, written, outs)
    if any("[]" in str(arguments[i].type) for i in written):
        return Kind(number, name, EFFECT, written, outs)
    if name in VIEWS or (not written and any(r.alias_info is not None for r in schema.returns)):
        return Kind(number, name, VIEW)
    if name in OVERWRITES:               # the value may repeat; the memory is someone's own
        return Kind(number, name, EFFECT, written, (*outs, 0))
    return Kind(number, name, PURE, written, outs, in_place=bool(written))


def is_certain(kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is this call of a random operator without chance, its probability being 0?"""
    if kind.chance is None:
        return False
    name, position = kind.chance
    value = args[position] if position < len(args) else kwargs.get(name, 0.0 if name == "dropout_p" else None)
    return isinstance(value, (int, float)) and value == 0
