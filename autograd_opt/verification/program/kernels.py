"""What torch's own backward kernels compute, in torch's operations.

A rule that calls such a kernel cannot be traced; its formula stands here, is proved to be the
derivative by `lemmas` and `allsizes`, and gives the kernel's result a meaning.  That the kernel
computes its formula is trusted, as it is of every kernel, and tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def standardized(x: Any, normalized_shape: Any, eps: float) -> tuple[Any, Any, tuple[int, ...]]:
    """(x - mean) / std, 1 / std, and the axes they are taken over."""
    axes = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    scale = ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()
    return centred * scale, scale, axes


def layer_norm_x(g: Any, x: Any, weight: Any, bias: Any, *, normalized_shape: Any, eps: float) -> Any:
    """rstd (h - mean h - x^ mean(h x^)), h = g weight: the backward of layer_norm in its input."""
    h = g if weight is None else g * weight
    z, scale, axes = standardized(x, normalized_shape, eps)
    return scale * (h - h.mean(axes, keepdim=True) - z * (h * z).mean(axes, keepdim=True))


def layer_norm_weight(g: Any, x: Any, weight: Any, bias: Any, *, normalized_shape: Any, eps: float) -> Any:
    return (g * standardized(x, normalized_shape, eps)[0]).sum_to_size(weight.shape)


def layer_norm_bias(g: Any, x: Any, weight: Any, bias: Any, *, normalized_shape: Any, eps: float) -> Any:
    return g.sum_to_size(bias.shape)


KERNELS: dict[str, tuple[Callable[..., Any], ...]] = {
    "layer_norm": (layer_norm_x, layer_norm_weight, layer_norm_bias),
}
"""Operator -> for each operand what its cotangent is, from (g, *operands, **attributes)."""


# ----- what forward kernels keep for their backward -----
def layer_norm_kept(x: Any, weight: Any, bias: Any, *, normalized_shape: Any, eps: float) -> tuple[Any, Any]:
    """Mean and 1 / std, as `native_layer_norm` returns them."""
    axes = tuple(range(-len(normalized_shape), 0))
    return x.mean(axes, keepdim=True), standardized(x, normalized_shape, eps)[1]


def group_norm_kept(x: Any, weight: Any, bias: Any, *, num_groups: int, eps: float) -> tuple[Any, Any, Any]:
    """Mean and 1 / std of each group, and the memory format."""
    grouped = x.reshape(x.shape[0], num_groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    return grouped.mean(-1), ((centred * centred).mean(-1) + eps).rsqrt(), torch.contiguous_format


def nll_loss_kept(x: Any, target: Any, weight: Any, *, reduction: int, ignore_index: int) -> Any:
    """The total weight of the targets that count."""
    counts = target != ignore_index
    if weight is None:
        return counts.sum().to(x.dtype)
    return torch.where(counts, weight[target], 0.0).sum()          # of targets in range, as in the lemma


KEPT: dict[str, Callable[..., Any]] = {
    "layer_norm": layer_norm_kept, "group_norm": group_norm_kept, "nll_loss": nll_loss_kept,
}
"""Operator -> what its rule reads besides operands and result, from (*operands, **attributes); for lemmas."""
