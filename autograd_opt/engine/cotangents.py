"""The cotangents that a backward run starts from, checked as torch checks them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import view_history

Tensor = torch.Tensor


def make_cotangents(tape: Any, roots: Sequence[Any], found: Sequence[Any], given: Sequence[Any],
                    batched: bool = False) -> list[Tensor]:
    """Cotangents of the roots, whose nodes are `found`: ones for a real scalar, else what the caller gave, checked."""
    given = given[:len(roots)]
    if len(given) != len(roots):
        raise errors.GraphError(errors.at(f"got {len(roots)} tensors and {len(given)} gradients"))
    out = []
    for i, (root, node, g) in enumerate(zip(roots, found, given, strict=True)):
        if g is None:
            out.append(implicit(tape, root, node))
            continue
        if not isinstance(g, Tensor):
            raise errors.ArgumentTypeError(errors.at(
                f"gradients can be either Tensors or None, but got {type(g).__name__}"
            ))
        # of an edge the node alone tells; a tensor may have been given other memory since its node was recorded
        wanted, dtype = (root.shape, root.dtype) if isinstance(root, Tensor) else (torch.Size(node.shape), node.dtype)
        shape = g.shape[1:] if batched else g.shape
        if shape != wanted:
            if batched:
                if not isinstance(root, Tensor):
                    raise errors.GraphError(errors.at("Batched grads are not supported with GradientEdge"))
                raise errors.GraphError(errors.at(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                    "dimension. The sizes of the remaining dimensions are expected to match the shape of "
                    f"corresponding output, but a mismatch was detected: grad_output[{i}] has a shape of {g.shape} "
                    f"and output[{i}] has a shape of {wanted}."
                ))
            raise errors.GraphError(errors.at(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                f"{wanted}."
            ))
        if g.is_complex() != dtype.is_complex:
            raise errors.GraphError(errors.at(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {dtype}."
            ))
        g = g if g.dtype is dtype else g.to(dtype)
        computed = view_history.origin(node)
        if tuple(shape) != tuple(computed.shape) and not computed.is_leaf:
            summed = of_the_shape(i, g, computed.shape, batched)
            # with what comes from other roots it is added as it is, and summed below the node of the write
            g = g if len(roots) > 1 and node is not computed and tuple(shape) == tuple(node.shape) else summed
        out.append(g)
    return out


def of_the_shape(index: int, g: Tensor, shape: Any, batched: bool) -> Tensor:
    """The cotangent of a root that has another shape since its node was recorded, summed to the node's; or refused."""
    slices, sizes = (g.shape[:1], g.shape[1:]) if batched else (g.shape[:0], g.shape)
    aligned = (1,) * (len(sizes) - len(shape)) + tuple(shape)
    if len(aligned) > len(sizes) or any(n not in (1, m) for n, m in zip(aligned, sizes, strict=True)):
        raise errors.GraphError(errors.at(
            f"invalid gradient at index {index} - got {list(sizes)} but expected shape compatible with {list(shape)}"
        ))
    return g.sum_to_size((*slices, *aligned)).reshape((*slices, *shape))


def implicit(tape: Any, root: Any, node: Any) -> Tensor:
    """The cotangent of a root that is one real number, where the caller gave none."""
    real = node.dtype.is_floating_point
    if math.prod(node.shape) != 1 or not (real or isinstance(root, Tensor)):
        raise errors.GraphError(errors.at(
            f"grad can be implicitly created only for scalar outputs, not for one of shape {list(node.shape)}: reduce "
            "it by sum() or mean(), or give its cotangent"
        ))
    if not real:
        raise errors.GraphError(errors.at(
            f"grad can be implicitly created only for real scalar outputs but got {node.dtype}"
        ))
    return shared_ones(tape, node.shape, node.dtype, node.device)


def shared_ones(tape: Any, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Ones of a shape: where values are numbered, the same tensor as before unless it was written."""
    key = (shape, dtype, device)
    ones, version = tape.seeds.get(key, (None, 0))
    if ones is None or private.version_of(ones) != version:
        known = not shape and not private.len_torch_dispatch_stack()      # a dispatch mode makes tensors of its own
        ones = one_of(dtype, device).clone() if known else torch.ones(shape, dtype=dtype, device=device)
        if tape.optimize:
            tape.seeds[key] = ones, private.version_of(ones)
    return ones


@functools.cache
def one_of(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The number one; never handed out itself."""
    return torch.ones((), dtype=dtype, device=device)
