"""Samples of torch's database of operators whose numbers lie where functions have kinks.

The operands of a sample are filled again from a few numbers: halves and small integers with many ties, zeros
of both signs, the sample's own numbers (bounds, margins, thresholds), and in a class of their own infinities
and NaN.  What a tensor shares (one tensor twice, expanded axes, views) stays shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

HALVES = (-2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0)
LIMITS = (-20.0, -6.0, -3.0, 3.0, 6.0, 20.0)
"""Where functions without numbers of their own have their bounds."""


@dataclass(frozen=True)
class Fill:
    """Which numbers replace the operands', and which cotangents are given."""

    palette: tuple[float, ...]
    cotangents: str
    own: bool = True
    """Are the sample's own numbers, of either sign, among the palette?"""


FILLS = {
    "finite": (Fill(HALVES, "same"), Fill((0.0, -0.0, 1.0), "ones"), Fill((0.0, 0.5, 1.0), "same", own=False),
               Fill(HALVES + LIMITS, "ones"), Fill((1.0, 2.0), "same", own=False), Fill((0.0,), "same", own=False)),
    "special": (Fill((*HALVES, torch.inf, -torch.inf, torch.nan), "zeros"),
                Fill((0.0, 1.0, -torch.inf), "same"), Fill((0.5, 1.0, torch.inf), "ones", own=False),
                Fill((-1.0, 0.0, 2.0, torch.nan), "ones", own=False)),
}

LEFT_OUT = {
    **{(op, "special"): "torch's kernel ends the process at NaN"
       for op in ("grid_sampler_2d", "nn.functional.grid_sample")},
    ("nn.functional.bilinear", "special"): "torch adds infinite terms in another order",
    ("nn.functional.group_norm", "special"): "torch adds infinite terms in another order",
    **{(op, kind): "the basis of equal columns is not determined" for op in ("svd_lowrank", "pca_lowrank")
       for kind in FILLS},
}
"""(entry, kind) -> why there is nothing to compare."""


def own_numbers(sample: Any) -> list[float]:
    """The floating numbers of a call, and whole ones, with both signs."""
    found = [float(v) for v in tree_leaves((sample.args, sample.kwargs)) if type(v) in (int, float) and abs(v) < 1e3]
    return [s * v for v in dict.fromkeys(found) for s in (1.0, -1.0)]


def filled(tree: Any, palette: torch.Tensor, seed: int) -> Any:
    """The same arguments, floating and complex operands filled from the palette."""
    generator = torch.Generator().manual_seed(seed)
    known: dict[int, torch.Tensor] = {}

    def pick(n: int) -> torch.Tensor:
        return palette[torch.randint(len(palette), (n,), generator=generator)]

    def fill(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()) \
                or t.layout is not torch.strided:
            return t
        if id(t) not in known:
            memory = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage().clone())
            numbers = pick(memory.numel())
            if t.is_complex():
                imaginary = torch.where(torch.rand(numbers.shape, generator=generator) < 0.5, 0.0, pick(len(numbers)))
                numbers = torch.complex(numbers, imaginary)
            memory.copy_(numbers)
            shaped = memory.as_strided(t.shape, t.stride(), t.storage_offset())
            shaped = shaped.conj() if t.is_conj() else torch._neg_view(shaped) if t.is_neg() else shaped
            known[id(t)] = shaped.detach().requires_grad_(t.requires_grad)
        return known[id(t)]
    return tree_map(fill, tree)


def kinked(sample: Any, kind: str, seed: int = 0, most: int = 0) -> Iterator[tuple[Any, str]]:
    """A sample with other numbers and the cotangents to give it, for each fill of a kind (at most so many, in turn)."""
    from torch.testing._internal.opinfo.core import SampleInput

    fills = FILLS[kind]
    for k in range(most or len(fills)):
        fill = fills[(seed * (most or 1) + k) % len(fills)]
        numbers = torch.tensor([*fill.palette, *(own_numbers(sample) if fill.own else ())], dtype=torch.float64)
        x, args, kwargs = filled((sample.input, sample.args, sample.kwargs), numbers, 100 * seed + k)
        yield SampleInput(x, args=args, kwargs=kwargs, output_process_fn_grad=sample.output_process_fn_grad,
                          broadcasts_input=sample.broadcasts_input), fill.cotangents
