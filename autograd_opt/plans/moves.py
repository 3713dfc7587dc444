"""Operators that only move elements: pads, joins and copies of strided memory, as regions that are copied."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from autograd_opt.plans.operators import parts
from autograd_opt.plans.program import Instruction, Ref, lazy

Tensor = torch.Tensor
MOST = 1 << 15
"""Elements of a result at most; torch's kernels are as fast from there on, and take more threads."""


@dataclass(frozen=True)
class Region:
    """Elements of a value that are copied into a result; offsets and strides in elements."""

    value: int
    sizes: tuple[int, ...]
    read: int
    read_strides: tuple[int, ...]
    write: int
    write_strides: tuple[int, ...]


@dataclass(frozen=True)
class Movement:
    """What fills a result first, or None, and the regions that are copied into it."""

    fill: complex | None
    regions: list[Region]


def whole(number: int, t: Tensor, write: int, strides: tuple[int, ...]) -> Region:
    """All elements of a value."""
    return Region(number, tuple(t.shape), 0, t.stride(), write, strides)


def joined(one: Instruction, samples: list[Tensor], out: Tensor) -> Movement | None:
    """`cat` and `stack`."""
    refs = one.args[0]
    dim = (one.args[1] if len(one.args) > 1 else one.kwargs.get("dim", 0)) % max(1, out.dim())
    at, regions = 0, []
    for ref in refs:
        t = samples[ref.number]
        if one.name == "stack.default":
            strides = (*out.stride()[:dim], *out.stride()[dim + 1 :])
            regions.append(whole(ref.number, t, at * out.stride(dim), strides))
            at += 1
        elif t.numel():
            regions.append(whole(ref.number, t, at * out.stride(dim), out.stride()))
            at += t.shape[dim]
    return Movement(None, regions)


def padded(one: Instruction, samples: list[Tensor], out: Tensor) -> Movement | None:
    """`constant_pad_nd` and `pad`; where a pad is negative, elements are left out."""
    names = ("mode", "value") if one.name == "pad.default" else ("value",)
    x, pad, *rest = one.args
    options = dict(zip(names, rest, strict=False)) | one.kwargs
    if options.get("mode", "constant") != "constant":
        return None
    value = options.get("value") or 0
    t = samples[x.number]
    sizes, read, write = list(t.shape), 0, 0
    for k in range(len(pad) // 2):
        dim, (before, after) = t.dim() - 1 - k, pad[2 * k : 2 * k + 2]
        read += max(0, -before) * t.stride(dim)
        write += max(0, before) * out.stride(dim)
        sizes[dim] += min(0, before) + min(0, after)
    region = Region(x.number, tuple(sizes), read, t.stride(), write, out.stride())
    return Movement(value, [region])


def sliced_back(one: Instruction, samples: list[Tensor], out: Tensor) -> Movement | None:
    """`slice_backward` and `select_backward`: zeros with the cotangent in a slice."""
    g, _, dim, start, *rest = one.args
    t = samples[g.number]
    dim %= out.dim()
    start = max(0, start + out.shape[dim]) if start < 0 else start
    strides = list(out.stride())
    if one.name == "select_backward.default":
        del strides[dim]
    else:
        strides[dim] *= rest[1]
    return Movement(0, [whole(g.number, t, start * out.stride(dim), tuple(strides))])


def copied(one: Instruction, samples: list[Tensor], out: Tensor) -> Movement | None:
    """A copy in the order of the operand's shape, whatever the shape of the result."""
    number = one.args[0].number
    t = samples[number]
    strides = tuple([math.prod(t.shape[k + 1 :]) for k in range(t.dim())])
    return Movement(None, [whole(number, t, 0, strides)]) if t.numel() == out.numel() else None


MOVES: dict[str, Callable[[Instruction, list[Tensor], Tensor], Movement | None]] = {
    "cat.default": joined,
    "stack.default": joined,
    "constant_pad_nd.default": padded,
    "pad.default": padded,
    "slice_backward.default": sliced_back,
    "select_backward.default": sliced_back,
    "clone.default": copied,
    "contiguous.default": copied,
    "reshape.default": copied,
    "flatten.using_ints": copied,
}
"""Operators that only move elements -> how."""


def movement_of(one: Instruction, samples: list[Tensor]) -> Movement | None:
    """The regions that an instruction copies into its result, where that is all it does; else None."""
    if one.name not in MOVES or one.aliases or len(one.outs) != 1:
        return None
    out = samples[one.outs[0]]
    operands = [samples[n] for n in one.operands]
    if not out.is_contiguous() or not 0 < out.numel() <= MOST or out.device.type != "cpu" or not operands:
        return None
    if any(t.dtype != out.dtype or t.device.type != "cpu" or t.layout != torch.strided for t in operands):
        return None
    if any(map(lazy, (*operands, out))):
        return None
    if any(isinstance(x, torch.SymInt) for x in parts((one.args, one.kwargs))) or not isinstance(
        one.args[0], (Ref, list, tuple)
    ):
        return None
    found = MOVES[one.name](one, samples, out)
    if found is None or any(len(r.sizes) > 8 or 0 in r.sizes for r in found.regions):
        return None
    return Movement(found.fill, [simplified(r) for r in found.regions])


def simplified(r: Region) -> Region:
    """The region over as few axes as possible: those that lie together in both memories are one."""
    axes: list[tuple[int, int, int]] = []
    for size, read, write in zip(r.sizes, r.read_strides, r.write_strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * read and axes[-1][2] == size * write:
            axes[-1] = (axes[-1][0] * size, read, write)
        else:
            axes.append((size, read, write))
    sizes, reads, writes = zip(*axes, strict=True) if axes else ((1,), (1,), (1,))
    return Region(r.value, sizes, r.read, reads, r.write, writes)
