"""The samples of torch's database once more, with operands and cotangents that lie otherwise in memory.

Numbers and shapes are those of the sample (rows of an expanded operand repeat the first one), so
whatever torch's function does with a layout before it comes to its kernels, this library has to do as well.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

KINDS = ("stepped", "turned", "channels last", "expanded", "offset")
COTANGENTS = ("stepped", "turned", "one number", "channels last", "expanded")


def laid(t: torch.Tensor, kind: str) -> torch.Tensor:
    """A tensor like `t` in another layout; `t` itself where that is no other."""
    n, d = t.ndim, t.detach()
    if not kind or n == 0 or d.layout is not torch.strided or d.numel() < 2:
        return t
    if kind == "stepped":                       # every second element
        found = torch.stack([d, torch.zeros_like(d)], -1)[..., 0]
    elif kind == "expanded":                    # the first row again and again
        found = d[:1].expand(d.shape)
    elif kind == "one number":
        found = d.reshape(-1)[0].expand(d.shape)
    elif kind == "offset":                      # behind the beginning of its memory
        found = torch.cat([d.reshape(-1)[:1], d.reshape(-1)])[1:].view(d.shape)
    else:
        order = list(range(n))[::-1] if kind == "turned" else [0, *range(2, n), 1]
        if n < (2 if kind == "turned" else 3):
            return t
        found = d.permute(order).contiguous().permute([order.index(i) for i in range(n)])
    if found.stride() == d.stride() and found.storage_offset() == d.storage_offset():
        return t
    return found.requires_grad_(t.requires_grad)


def cases(samples: list[Any], most: int) -> Iterator[tuple[str, Any, str]]:
    """(what is laid how, the sample so, the layout of its cotangents); `most` layouts of each operand, 0 for all."""
    ways = itertools.cycle(("", *COTANGENTS))
    for k, sample in enumerate(samples):
        for way in COTANGENTS[:most or None]:
            yield f"sample {k}, cotangents {way}", sample, way
        flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        kinds = KINDS[k % len(KINDS):] + KINDS[:k % len(KINDS)]
        for i, t in enumerate(flat):
            if not isinstance(t, torch.Tensor) or any(t is other for other in flat[:i]):
                continue
            others = ((kind, found) for kind in kinds if (found := laid(t, kind)) is not t)
            for kind, found in itertools.islice(others, most or None):
                changed, way = copy.copy(sample), next(ways)
                changed.input, changed.args, changed.kwargs = tree_unflatten(
                    [found if x is t else x for x in flat], spec)
                yield f"sample {k}, tensor {i} {kind}, cotangents {way or 'contiguous'}", changed, way
