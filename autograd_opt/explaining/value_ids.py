"""Which tensors hold the same value: numbers for the values in memory.

A value is told by where it lies (storage, offset, shape, strides, dtype) and by how often that
storage has been written.  An operation on operands of known numbers gives its outputs the
number of its key, so two equal computations have one number although their memory differs.
Storages are held weakly: watching keeps nothing alive.
"""

from __future__ import annotations

import ctypes
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from autograd_opt.abi import torch_private as private

SMALL = 1 << 16
"""Bytes up to which the content of a tensor of unknown origin is looked at."""
READ = 1 << 20
"""Bytes of an output up to which it is compared with another one that was made before a pause."""
COMPARED = 1 << 24
"""Bytes of a storage that are compared with those before a pause."""
SWEEP = 20_000
"""Storages seen between two removals of dead ones."""


class Memory(StorageWeakRef):
    """One storage, held weakly: while this lives, its address is not given to another storage."""

    __slots__ = ("birth", "changed", "contents", "locations", "maker", "values", "writer", "writes")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        super().__init__(storage)
        self.writes = 0
        self.values: dict[int, int] = {}
        """The numbers of the values in it, by where they lie."""
        self.locations: dict[int, int] = {}
        """The numbers of the places themselves, whatever lies there."""
        self.contents: dict[int, int] = {}
        """The numbers of equal bytes, for a value of unknown origin."""
        self.birth = -1
        """When an operation was seen to make it, by the count of operations."""
        self.changed = -1
        """When an operation was last seen to write it."""
        self.writer: Any = None          # (operator name, site) of the last write
        self.maker: Any = None           # the operation that made what it holds


class Values:
    """The numbers of everything seen."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self.next = 0
        self.limit = SWEEP
        self.known: dict[Any, int] = {}  # content of small constants -> number
        self.geometries: dict[Any, int] = {}
        self.layouts: dict[int, Any] = {}
        """The number of a geometry, and the geometry of a number."""
        self.leaves: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """Leaves by their addresses, each with its number."""

    def fresh(self) -> int:
        """A number never given before."""
        self.next += 1
        return self.next

    def leaf(self, t: torch.Tensor) -> int:
        """The number of a leaf: another one on the same memory has a gradient of its own."""
        known = self.leaves.get(id(t))
        if known is None or known[0]() is not t:
            known = self.leaves[id(t)] = weakref.ref(t), self.fresh()
        return known[1]

    def forget(self) -> None:
        """Drop everything: memory may have been written unseen."""
        self.memories.clear()
        self.known.clear()
        if len(self.geometries) > SWEEP:
            self.geometries.clear()
            self.layouts.clear()

    def where(self, t: torch.Tensor) -> int:
        """The number of the geometry of `t`."""
        if t.dtype.is_complex:
            found: Any = (t.storage_offset(), t.shape, t.stride(), t.dtype, t.is_conj(), t.is_neg())
        else:
            found = (t.storage_offset(), t.shape, t.stride(), t.dtype)
        number = self.geometries.get(found)
        if number is None:
            number = self.geometries[found] = self.fresh()
            self.layouts[number] = found
        return number

    def memory(self, t: torch.Tensor) -> Memory | None:
        """The storage of `t`; None for layouts that have none."""
        if not is_dense(t):
            return None
        try:
            storage = t.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        memory = self.memories.get(private.storage_id(storage))
        if memory is None:
            memory = self.memories[private.storage_id(storage)] = Memory(storage)
        return memory

    def sweep(self) -> None:
        """Forget storages that are gone, where there are many."""
        if len(self.memories) < self.limit:
            return
        for address in [a for a, m in self.memories.items() if m.expired()]:
            del self.memories[address]
        self.limit = 2 * len(self.memories) + SWEEP

    def number(self, t: torch.Tensor, memory: Memory, where: int) -> int:
        """The number of the value of an operand."""
        value = memory.values.get(where)
        if value is not None:
            return value
        alone = not memory.values
        value = memory.values[where] = self.fresh()
        if alone and memory.writer is None and memory.maker is None:
            content = content_of(t)
            if content is not None:
                memory.contents = {where: self.known.setdefault(content, value)}
        return value

    def location(self, memory: Memory, where: int) -> int:
        """The number of a place in memory, whatever is written there."""
        if where not in memory.locations:
            memory.locations[where] = self.fresh()
        return memory.locations[where]

    def give(self, t: torch.Tensor, value: int, maker: Any, clock: int) -> tuple[Memory, int] | None:
        """Output `t` has the value `value`; an alias of what is known keeps its number."""
        before = len(self.memories)
        memory = self.memory(t)
        if memory is None:
            return None
        if len(self.memories) > before:
            memory.birth = memory.changed = clock
        where = self.where(t)
        memory.values.setdefault(where, value)
        if maker is not None:
            memory.maker = maker
        return memory, where

    def contents(self, chosen: Callable[[Any], bool]) -> list[Held]:
        """What storages hold that are alive, of the makers chosen."""
        return [(m, m.maker, checksum(m)) for m in self.memories.values()
                if m.maker is not None and chosen(m.maker) and not m.expired()]

    def written(self, memory: Memory, writer: Any, clock: int) -> None:
        """A storage was written: all values in it are gone."""
        memory.changed = clock
        memory.writes += 1
        memory.values, memory.contents = {}, {}
        memory.writer = writer


Held = tuple[Memory, Any, int | None]
"""A storage, the operation that made what it holds, and a checksum of its bytes; None where they cannot be read."""


def checksum(memory: Memory) -> int | None:
    """A checksum of the first bytes of a storage; None on other devices than the CPU, and of one that is gone."""
    storage: Any = private.storage_new_with_weak_ptr(memory.cdata)
    if storage is None or storage.device.type != "cpu":
        return None
    return zlib.crc32(ctypes.string_at(storage.data_ptr(), min(storage.nbytes(), COMPARED)))


def changed(held: list[Held]) -> list[Any]:
    """The makers of what was written since; what is gone counts as unwritten, what cannot be read as written."""
    return [maker for memory, maker, before in held
            if not memory.expired() and (before is None or checksum(memory) != before)]


def is_dense(t: torch.Tensor) -> bool:
    """Has it strides?  A nested one of torch's older kind says so, and has neither those nor a shape."""
    return t.layout is torch.strided and not t.is_nested


def content_of(t: torch.Tensor, largest: int = SMALL) -> Any:
    """The bytes of a small contiguous CPU tensor; None for others."""
    size = t.nbytes if is_dense(t) else 0
    if not 0 < size <= largest or not t.is_cpu or not t.is_contiguous():
        return None
    return t.dtype, t.shape, ctypes.string_at(t.data_ptr(), size)


def bytes_of(t: torch.Tensor) -> int | None:
    """A checksum of the first bytes of a tensor's part of its storage; None for others than dense ones on the CPU."""
    if not is_dense(t) or not t.is_cpu:
        return None
    size = t.untyped_storage().nbytes() - t.storage_offset() * t.itemsize
    return zlib.crc32(ctypes.string_at(t.data_ptr(), min(int(size), READ)), hash((t.dtype, t.shape)) & 0xFFFFFFFF)
