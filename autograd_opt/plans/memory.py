"""Memory of a plan: what stays from call to call, and what is made for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
SMALL, MOST = 1 << 18, 1 << 24
"""Bytes of a result, or of all results of a batch, that stay a plan's own from call to call; and of all of them."""


class Buffers:
    """Memory that a plan keeps from call to call; what is not read any more is used again."""

    def __init__(self) -> None:
        self.bytes = 0
        self.last: dict[int, int] = {}
        self.all: dict[Any, list[Tensor]] = {}

    def room(self, sample: Tensor) -> bool:
        """True if memory like that of `sample` may be kept."""
        return sample.nbytes <= SMALL and self.bytes + sample.nbytes <= MOST

    def take(self, shape: tuple[int, ...], like: Tensor, number: int, last: int) -> Tensor:
        """Memory from step `number` to step `last`, of the dtype and on the device of `like`."""
        count = math.prod(shape)
        alike = self.all.setdefault((count, like.dtype, like.device), [])
        for memory in alike:
            if self.last[address(memory)] < number:
                break
        else:
            memory = torch.empty(count, dtype=like.dtype, device=like.device)
            self.bytes += memory.nbytes
            alike.append(memory)
        self.use(memory, last)
        return memory.view(shape)

    def use(self, memory: Tensor, last: int) -> None:
        """Note that memory of this plan's, or a part of it, is read until step `last`."""
        self.last[address(memory)] = max(last, self.last.get(address(memory), -1))


def address(memory: Tensor) -> int:
    """Where the memory begins that a tensor is a part of."""
    return memory.untyped_storage().data_ptr()


def maker(sample: Tensor) -> Callable[[], Tensor]:
    """A function that makes memory for a value like this one."""
    shape, dtype, device = tuple(sample.shape), sample.dtype, sample.device
    return lambda: torch.empty(shape, dtype=dtype, device=device)
