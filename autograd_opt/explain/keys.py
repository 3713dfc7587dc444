"""The key of one call: what must be equal for two calls to have one value."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.explain.purity import Kind
from autograd_opt.explain.values import Memory, Values

Tensor = torch.Tensor


class Key:
    """The key of one call: exact, by location of its operands, by content of small unknown ones."""

    __slots__ = ("by_content", "by_location", "content_operand", "exact", "memories", "tensors")

    def __init__(self, values: Values, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        exact: list[Any] = [kind.number]
        location: list[Any] = [kind.number]
        content: list[Any] = [kind.number]
        self.content_operand = -1
        self.tensors = 0
        self.memories: list[Memory | None] = []

        def visit(value: Any) -> None:
            if isinstance(value, Tensor):
                number, where, known, memory = values.number(value)
                self.tensors += 1
                exact.append((number,))
                location.append((where,))
                if known is not None:
                    self.content_operand = self.tensors - 1
                content.append((number if known is None else known,))
                self.memories.append(memory)
                return
            if isinstance(value, (list, tuple)):
                parts = (f"[{len(value)}",)
                for table in (exact, location, content):
                    table.extend(parts)
                for v in value:
                    visit(v)
                return
            text = encode(value)
            exact.append(text)
            location.append(text)
            content.append(text)

        for i, value in enumerate(args):
            if i not in kind.ignored:
                visit(value)
        for name in sorted(kwargs):
            if name != "out":
                visit(name)
                visit(kwargs[name])
        self.exact, self.by_location = tuple(exact), tuple(location)
        self.by_content = tuple(content) if self.content_operand >= 0 else None


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
            name, place = memory.writer
            if place.in_optimizer or place.innermost is None:
                return None
            return f"operand {i} was written between them by {name} at {place.innermost}"
    return None
