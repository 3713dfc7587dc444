"""Workloads of elementwise chains: overhead alone, and repeated work of a known share."""

from __future__ import annotations

import torch
from torch import Tensor

from .workload import Leaf, Workload, torch_leaf


def chain(leaf: Leaf = torch_leaf, length: int = 1000, size: int = 8) -> Workload:
    """`length` times (mul, add) on small matrices, nothing repeated: pure overhead."""
    generator = torch.Generator().manual_seed(0)
    factor, summand, start = (torch.randn(size, size, generator=generator) for _ in range(3))

    def forward(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        for _ in range(length):
            x = x * a
            x = x + b
        return x.sum()

    return Workload("chain", [leaf(start), leaf(factor * 0.1), leaf(summand * 0.1)], forward, data={"length": length})


BLOCKS, ROUNDS = 20, 16
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)


def sharing(leaf: Leaf = torch_leaf, share: float = 0.9, size: int = 64) -> Workload:
    """The `t1 + t2` example, scaled: 20 blocks of the same length, a share of them repeats.

    Only the sum over the blocks is never a repeat.
    """
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(size, size, generator=generator) for _ in range(2))
    distinct = max(1, round(BLOCKS * (1 - share)))

    def block(t1: Tensor, t2: Tensor, number: int) -> Tensor:
        h = (t1 + t2) * (1.0 + number)
        for _ in range(ROUNDS):
            h = torch.tanh(h * t1 + t2)
        return h

    def forward(t1: Tensor, t2: Tensor) -> Tensor:
        total = block(t1, t2, 0)
        for i in range(1, BLOCKS):
            total = total + block(t1, t2, i % distinct)
        return total.sum()

    return Workload(f"sharing {share:g}", [leaf(first), leaf(second)], forward, facts={"share of repeats": share},
                    data={"distinct": distinct})
