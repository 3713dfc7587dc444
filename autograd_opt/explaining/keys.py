"""The key of one call: what must be equal for two calls to have one value."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.explaining.purity import Kind
from autograd_opt.explaining.value_ids import Memory, Values

Tensor = torch.Tensor
NOTHING = "None"
"""Stands for an argument that is None."""


class Key:
    """The key of one call.

    Whether a tensor or an attribute stands in a position follows from the operator's schema, so
    that the numbers of values and of attributes need nothing to tell them apart.
    """

    __slots__ = ("elsewhere", "exact", "grads", "inference", "leaves", "memories", "numbers", "parts", "recorded",
                 "values", "wheres")

    def __init__(self, values: Values, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.values = values
        self.memories: list[Memory | None] = []
        self.recorded, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.grads = 0
        """Which tensors gradients flow to: two bits for each, that of a leaf and that of another one."""
        self.leaves: tuple[int, ...] = ()
        """Numbers of the leaves among the operands."""
        self.elsewhere = False
        """True if gradients flow to an operand whose own flow elsewhere than those of what it repeats."""
        self.wheres: list[int] = []
        self.numbers: list[int] = []
        """Those of the tensors' values."""
        self.parts: list[Any] = [kind.number]
        """What `exact` is made of, with None in the place of each tensor."""
        for i, value in enumerate(args):
            if i not in kind.ignored:
                self.add(value)
        for name in sorted(kwargs) if kwargs else ():
            if name != "out":
                self.parts.append(name)
                self.add(kwargs[name])
        self.exact = self.with_tensors(self.numbers)
        """Equal for calls of one operator on equal values."""

    def add(self, value: Any) -> None:
        """One argument."""
        if isinstance(value, Tensor):
            memory = self.values.memory(value)
            self.memories.append(memory)
            self.parts.append(None)
            if self.recorded:
                self.grads *= 4
                if value.requires_grad:
                    self.flow(value, memory)
            where = 0 if memory is None else self.values.where(value)
            self.wheres.append(where)
            self.numbers.append(
                self.values.fresh() if memory is None else self.values.number(value, memory, where))
        elif isinstance(value, (list, tuple)):
            self.parts.append(f"[{len(value)}")
            for v in value:
                self.add(v)
        else:
            text = encode(value)
            self.parts.append(NOTHING if text is None else text)

    def flow(self, value: Tensor, memory: Memory | None) -> None:
        """Note where the gradients of an operand flow."""
        if value.is_leaf:
            self.grads += 1
            self.leaves = (*self.leaves, self.values.leaf(value))
        else:
            self.grads += 2
            self.elsewhere |= memory is not None and memory.maker is not None and memory.maker.elsewhere

    def with_tensors(self, numbers: list[int]) -> tuple[Any, ...]:
        """The key with other numbers in the place of the values'."""
        each = iter(numbers)
        return tuple([next(each) if part is None else part for part in self.parts])

    def by_location(self) -> tuple[Any, ...]:
        """Equal for calls on the same memory, whatever is written there."""
        return self.with_tensors([
            0 if memory is None else self.values.location(memory, where)
            for memory, where in zip(self.memories, self.wheres, strict=True)])

    def by_content(self) -> tuple[tuple[Any, ...], int] | None:
        """Equal for calls on equal bytes of small operands of unknown origin, and the last of those operands."""
        numbers, last = [], -1
        for i, (memory, where, number) in enumerate(zip(self.memories, self.wheres, self.numbers, strict=True)):
            known = None if memory is None else memory.contents.get(where)
            if known is not None:
                last = i
            numbers.append(number if known is None else known)
        return (self.with_tensors(numbers), last) if last >= 0 else None


def encode(value: Any) -> Any:
    """A hashable that is equal for equal arguments only: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    kind = type(value)
    if kind is float:
        return value.hex()
    if kind is int:
        return value
    if kind is bool:
        return "T" if value else "F"
    if kind is str:
        return f"s{value}"
    if value is None or kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return value
    try:
        hash(value)
    except TypeError:
        return object()
    return (kind, value)


def written_reason(key: Key) -> str | None:
    """Which operand was written since, by what and where; None for an optimizer's step."""
    for i, memory in enumerate(key.memories):
        if memory is not None and memory.writer is not None:
            name, site = memory.writer
            if site.inside is not None or site.spot is None:
                return None
            return f"operand {i} was written between them by {name} at {site.spot}"
    return None
