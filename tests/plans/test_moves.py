"""Operators that only move elements: regions that a plan copies beside torch's kernels, on every layout."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.plans.moves import Region, simplified

Tensor = torch.Tensor
MOVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cat": lambda x, y: torch.cat([x, y, x], 0),
    "cat, last axis": lambda x, y: torch.cat([x, y], -1),
    "cat of nothing": lambda x, y: torch.cat([x, x[:0], y]),
    "stack": lambda x, y: torch.stack([x, y, y]),
    "stack, last axis": lambda x, y: torch.stack([x, y], -1),
    "stack, inner axis": lambda x, y: torch.stack([x, y], 1),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "pad of two axes with a number": lambda x, y: F.pad(x, (0, 1, 2, 0), value=3),
    "reflected pad": lambda x, y: F.pad(x, (1, 1), "reflect") if 1 < x.dim() < 4 and x.is_floating_point() else x + y,
    "pad that leaves out": lambda x, y: F.pad(x, (-1, 2, 1, -1)),
    "contiguous": lambda x, y: x.transpose(0, -1).contiguous(),
    "reshape": lambda x, y: x.transpose(0, -1).reshape(-1),
    "flatten": lambda x, y: x.transpose(0, 1).flatten(),
    "clone": lambda x, y: x.transpose(0, -1).clone(memory_format=torch.contiguous_format),
    "expanded": lambda x, y: x[0].expand(3, *x[0].shape).reshape(-1),
    "slice backward": lambda x, y: torch.ops.aten.slice_backward(x, [9, *x.shape[1:]], 0, -8, 9, 2),
    "select backward": lambda x, y: torch.ops.aten.select_backward(x, [*x.shape, 3], x.dim(), -1),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "turned": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "every second": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "with an offset": lambda t: torch.cat([t[:1], t])[1:],
    "broadcast": lambda t: t[..., :1].expand(t.shape),
}
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.complex128, torch.float16]


def drawn(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int) -> Tensor:
    values = torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=torch.Generator().manual_seed(seed))
    return LAYOUTS[layout](values.to(dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("move", MOVES)
def test_moved_as_torch_moves(move: str, layout: str) -> None:
    repeated = ao.compile(lambda x, y: MOVES[move](x, y) + 0 if x.is_floating_point() else MOVES[move](x, y))
    for dtype in DTYPES:
        for shape in [(4, 3), (4, 3, 2), (4, 1, 3, 2)]:
            for seed in range(3):
                x, y = (drawn(shape, dtype, layout, 2 * seed + k) for k in (0, 1))
                assert torch.equal(repeated(x, y), MOVES[move](x, y)), (dtype, shape, seed)


def test_moves_are_no_kernels() -> None:
    """What the tests above compare is a copied region, and the report says so."""
    repeated = ao.compile(lambda x, y: torch.cat([F.pad(x, (1, 0)), y, torch.stack([x[0], x[1]])], 1))
    x, y = torch.randn(2, 3), torch.randn(2, 4)
    for _ in range(2):
        repeated(x, y)
    (kind,) = repeated.report().kinds
    assert kind.moves == 3
    assert not {"cat.default", "constant_pad_nd.default", "stack.default"} & set(kind.kernels)
    assert "3 moves" in str(kind)


def test_what_is_written_in_place_after_a_move_keeps_its_order() -> None:
    def function(x: Tensor) -> Tensor:
        padded = F.pad(x, (1, 1))
        before = padded.sum()
        padded[1:-1].mul_(2)
        padded[0].add_(before)
        return torch.stack([padded, padded * padded])

    repeated = ao.compile(function)
    for seed in range(4):
        x = torch.randn(5, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(repeated(x), function(x))


def test_large_results_are_left_to_torch() -> None:
    repeated = ao.compile(lambda x: torch.cat([x, x]))
    x = torch.randn(1 << 15)
    assert torch.equal(repeated(x), torch.cat([x, x]))
    repeated(x)
    (kind,) = repeated.report().kinds
    assert kind.kernels == {"cat.default": 1}


@pytest.mark.parametrize("seed", range(20))
def test_a_simplified_region_has_the_same_elements(seed: int) -> None:
    rng = random.Random(seed)
    sizes = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 5)))
    order = rng.sample(range(len(sizes)), len(sizes))
    strides = dict.fromkeys(order, 1)
    for inner, outer in itertools.pairwise(order):
        strides[outer] = strides[inner] * sizes[inner]
    write = torch.empty(sizes).stride()
    region = Region(0, sizes, 0, tuple(strides[k] for k in range(len(sizes))), 0, write)

    def pairs(r: Region) -> list[Any]:
        found = [(0, 0)]
        for size, a, b in zip(r.sizes, r.read_strides, r.write_strides, strict=True):
            found = [(p + i * a, q + i * b) for p, q in found for i in range(size)]
        return found

    assert sorted(pairs(simplified(region))) == sorted(pairs(region))
    assert len(simplified(region).sizes) <= max(1, len(sizes))
