"""Memory of a plan: what stays from call to call, and what is made for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
BATCH, LARGEST = 1 << 18, 1 << 22
"""Bytes of the results of a batch, and of a result that stays a plan's own from call to call, at most."""
MOST, ALL = 1 << 26, 1 << 28
"""Bytes that one plan keeps, and all plans of the process, at most."""
KEPT: dict[int, int] = {}
"""Bytes that each plan's buffers keep; dictionaries need no lock."""
ALIGNMENT = 64
"""Bytes; torch's kernels read and write whole vectors from here on."""


@dataclass
class Block:
    """A part of a chunk of memory, and the last step that reads what lies there."""

    chunk: Tensor
    begin: int
    end: int
    last: int


class Buffers:
    """Memory that a plan keeps from call to call; what is not read any more is used again.

    Memory is asked for in the order of the steps. The smallest free stretch that is large enough is divided, and free
    neighbours are one again (best fit with coalescing), so that little more is kept than is in use at once.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.blocks: dict[Any, list[Block]] = {}
        """By device, those of a chunk in their order, chunks as they were made: no choice depends on an address."""

    def expect(self, lives: Iterable[tuple[Tensor, int, int]]) -> None:
        """Make one chunk for values of these samples, first and last steps, as large as they need at once."""
        changes: dict[torch.device, dict[int, int]] = {}
        for sample, first, last in lives:
            steps = changes.setdefault(sample.device, {})
            steps[first] = steps.get(first, 0) + rounded(sample.nbytes)
            steps[last + 1] = steps.get(last + 1, 0) - rounded(sample.nbytes)
        for device, steps in changes.items():
            most = min(max(itertools.accumulate(steps[k] for k in sorted(steps))), self.left())
            if most:
                self.add_chunk(most, device, -1)

    def left(self) -> int:
        """Bytes that may still be kept."""
        return max(0, min(MOST - self.bytes, ALL - sum(list(KEPT.values()))))

    def __del__(self) -> None:
        KEPT.pop(id(self), None)

    def add_chunk(self, size: int, device: torch.device, last: int) -> Block:
        """More memory, as one block."""
        block = Block(torch.empty(size, dtype=torch.uint8, device=device), 0, size, last)
        self.bytes += size
        KEPT[id(self)] = self.bytes
        self.blocks.setdefault(device, []).append(block)
        return block

    def room(self, sample: Tensor, number: int) -> bool:
        """True if memory like that of `sample` may be kept from step `number` on."""
        size = rounded(sample.nbytes)
        return size <= self.left() or self.fit(size, sample.device, number) is not None

    def fit(self, size: int, device: torch.device, number: int) -> tuple[int, int] | None:
        """The first and the last of the neighbours whose memory is free at step `number` and fits best, by place."""
        blocks = self.blocks.get(device, [])
        found = []

        def kind(k: int) -> tuple[int, bool]:
            return id(blocks[k].chunk), blocks[k].last < number

        for (_, free), run in itertools.groupby(range(len(blocks)), kind):
            first, *rest = run
            last = rest[-1] if rest else first
            if free and blocks[last].end - blocks[first].begin >= size:
                found.append((blocks[last].end - blocks[first].begin, first, last))
        return min(found)[1:] if found else None

    def take(self, shape: tuple[int, ...], like: Tensor, number: int, last: int) -> Tensor:
        """Memory from step `number` to step `last`, of the dtype and on the device of `like`."""
        nbytes = math.prod(shape) * like.element_size()
        size = rounded(nbytes)
        blocks = self.blocks.setdefault(like.device, [])
        found = self.fit(size, like.device, number)
        if found is None:
            block = self.add_chunk(size, like.device, last)
        else:
            first, final = blocks[found[0]], blocks[found[1]]
            block = Block(first.chunk, first.begin, first.begin + size, last)
            rest = Block(first.chunk, block.end, final.end, number - 1)
            blocks[found[0] : found[1] + 1] = [block, rest] if rest.begin < rest.end else [block]
        part = block.chunk.untyped_storage()[block.begin : block.begin + nbytes]     # `as_strided` counts from there
        return torch.empty(0, dtype=like.dtype, device=like.device).set_(part).view(shape)

    def use(self, memory: Tensor, last: int) -> None:
        """Note that memory of this plan's, or a part of it, is read until step `last`."""
        for block in self.blocks.get(memory.device, []):
            if block.begin <= memory.data_ptr() - block.chunk.data_ptr() < block.end:
                block.last = max(last, block.last)


def rounded(size: int) -> int:
    """The size with which memory is kept."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def maker(sample: Tensor) -> Callable[[], Tensor]:
    """A function that makes memory for a value like this one."""
    shape, dtype, device = tuple(sample.shape), sample.dtype, sample.device
    return lambda: torch.empty(shape, dtype=dtype, device=device)
