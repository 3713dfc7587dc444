"""Which tensors hold the same value: numbers for the values in memory.

A value is told by where it lies (storage, offset, shape, strides, dtype) and by how often that
storage has been written.  An operation on operands of known numbers gives its outputs the
number of its key, so two equal computations have one number although their memory differs.
Storages are held weakly: watching keeps nothing alive.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

SMALL = 1 << 16
"""Bytes up to which the content of a tensor of unknown origin is looked at."""
SWEEP = 20_000
"""Storages seen between two removals of dead ones."""


class Memory:
    """One storage."""

    __slots__ = ("contents", "locations", "maker", "ref", "values", "writer", "writes")

    def __init__(self, ref: StorageWeakRef) -> None:
        self.ref = ref
        self.writes = 0
        self.values: dict[Any, int] = {}
        self.locations: dict[Any, int] | None = None
        self.contents: dict[Any, int] | None = None
        self.writer: Any = None          # (operator name, place) of the last write
        self.maker: Any = None           # the row that counts the repeat that made it


class Values:
    """The numbers of everything seen."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self.next = 0
        self.limit = SWEEP
        self.known: dict[Any, int] = {}  # content of small constants -> number

    def fresh(self) -> int:
        """A number never given before."""
        self.next += 1
        return self.next

    def forget(self) -> None:
        """Drop everything: memory may have been written unseen."""
        self.memories.clear()
        self.known.clear()

    def memory(self, t: torch.Tensor) -> Memory | None:
        """The storage of `t`; None for layouts that have none."""
        try:
            storage = t.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        address = storage._cdata
        memory = self.memories.get(address)
        if memory is None:
            if len(self.memories) >= self.limit:
                self.sweep()
            # while the weak reference lives, the address is not given to another storage
            memory = self.memories[address] = Memory(StorageWeakRef(storage))
        return memory

    def sweep(self) -> None:
        """Forget storages that are gone."""
        for address in [a for a, m in self.memories.items() if m.ref.expired()]:
            del self.memories[address]
        self.limit = 2 * len(self.memories) + SWEEP

    def number(self, t: torch.Tensor) -> tuple[int, int, int | None, Memory | None]:
        """(value number, location number, number of equal content or None, storage)."""
        memory = self.memory(t)
        if memory is None:
            return self.fresh(), 0, None, None
        where = geometry(t)
        value = memory.values.get(where)
        if value is None:
            value = memory.values[where] = self.fresh()
            if memory.writer is None and memory.maker is None and len(memory.values) == 1:
                content = content_of(t)
                if content is not None:
                    memory.contents = {where: self.known.setdefault(content, value)}
        if memory.locations is None:
            memory.locations = {}
        location = memory.locations.get(where)
        if location is None:
            location = memory.locations[where] = self.fresh()
        return value, location, None if memory.contents is None else memory.contents.get(where), memory

    def give(self, t: torch.Tensor, value: int, maker: Any = None) -> None:
        """Output `t` has the value `value`; an alias of what is known keeps its number."""
        memory = self.memory(t)
        if memory is not None:
            memory.values.setdefault(geometry(t), value)
            if maker is not None:
                memory.maker = maker

    def written(self, t: torch.Tensor, writer: Any) -> Any:
        """`t` was written: all values in its storage are gone.  Returns who made the storage."""
        memory = self.memory(t)
        if memory is None:
            return None
        memory.writes += 1
        memory.values.clear()
        memory.contents = None
        memory.writer = writer
        maker, memory.maker = memory.maker, None
        return maker


def geometry(t: torch.Tensor) -> Any:
    """Where a tensor lies in its storage, and how its bits are read."""
    if t.dtype.is_complex:
        return t.storage_offset(), t.shape, t.stride(), t.dtype, t.is_conj(), t.is_neg()
    return t.storage_offset(), t.shape, t.stride(), t.dtype


def content_of(t: torch.Tensor, largest: int = SMALL) -> Any:
    """The bytes of a small contiguous CPU tensor; None for others."""
    size = t.numel() * t.element_size()
    if not 0 < size <= largest or t.device.type != "cpu" or t.layout is not torch.strided or not t.is_contiguous():
        return None
    return t.dtype, t.shape, ctypes.string_at(t.data_ptr(), size)
