"""What torch's own backward kernels compute, in torch's operations.

A rule that calls such a kernel cannot be traced; its formula stands here, is proved to be the
derivative by `lemmas` and `allsizes`, and gives the kernel's result a meaning.  That the kernel
computes its formula is trusted, as it is of every kernel, and tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
