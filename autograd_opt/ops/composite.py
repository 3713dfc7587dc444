"""torch's composite functions, written as recordable calls with the same kernels in the same order."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.binding import of_one_shape
from autograd_opt.ops.helpers import H, broadcast_shape, primitive
from autograd_opt.ops.table import ELEMENTWISE, PURE, decompose, define


# ----- joining -----
@decompose("torch.broadcast_tensors torch._VF.broadcast_tensors")
def broadcast_tensors(*tensors: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if of_one_shape(tensors):
        return tuple(tensors)
    shape = broadcast_shape([t.shape for t in tensors])
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


@decompose("torch.meshgrid")
def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swap = indexing == "xy" and len(tensors) > 1
    if swap:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    if len({t.dtype for t in tensors}) > 1:
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    n = len(tensors)
    shape = [t.numel() for t in tensors]
    grids = [t.reshape((1,) * i + (-1,) + (1,) * (n - i - 1)).expand(shape) for i, t in enumerate(tensors)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def at_least(n: int) -> Any:
    def one(t: Any) -> Any:
        if t.ndim >= n:
            return t
        if n < 3 or not t.ndim:
            return t.reshape((1,) * (n - t.ndim) + tuple(t.shape))
        return t.reshape((1,) + tuple(t.shape) + (1,)) if t.ndim == 1 else t.unsqueeze(-1)

    def function(tensors: Any) -> Any:
        return tuple(one(t) for t in tensors) if isinstance(tensors, (tuple, list)) else one(tensors)
    return function


atleast_1d = decompose("torch._VF.atleast_1d")(at_least(1))
atleast_2d = decompose("torch._VF.atleast_2d")(at_least(2))
atleast_3d = decompose("torch._VF.atleast_3d")(at_least(3))


@decompose("torch.hstack")
def hstack(tensors: Any) -> Any:
    tensors = atleast_1d(list(tensors))
    return torch.cat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


@decompose("torch.vstack torch.row_stack")
def vstack(tensors: Any) -> Any:
    return torch.cat(atleast_2d(list(tensors)), 0)


@decompose("torch.dstack")
def dstack(tensors: Any) -> Any:
    return torch.cat(atleast_3d(list(tensors)), 2)


@decompose("torch.column_stack")
def column_stack(tensors: Any) -> Any:
    return hstack([t.reshape(t.numel(), 1) if t.ndim <= 1 else t for t in tensors])


@decompose("torch._VF.cartesian_prod")
def cartesian_prod(tensors: Any) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    return torch.stack([t.flatten() for t in meshgrid(*tensors)], 1)


@decompose("torch.combinations")
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """The elements at the places that increase from each column to the next."""
    if input.ndim != 1 or r < 1:
        return torch.combinations(input, r, with_replacement)       # which refuses it, or makes nothing
    n = input.numel()
    with private.DisableTorchFunction():                            # places have no gradient
        places = torch.meshgrid([torch.arange(n, device=input.device)] * r, indexing="ij")
        mask = torch.ones([n] * r, dtype=torch.bool, device=input.device)
        for before, after in itertools.pairwise(places):
            mask &= before <= after if with_replacement else before < after
    return torch.stack([grid.masked_select(mask) for grid in meshgrid([input] * r)], 1)


# ----- statistics -----
@decompose("torch.cov T.cov")
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    if input.ndim > 2 or fweights is not None or aweights is not None or not input.numel():
        return torch.cov(input, correction=correction, fweights=fweights, aweights=aweights)
    x = input if input.ndim == 2 else input.view(1, -1)
    n = x.shape[1]
    if n <= correction or x.dtype == torch.bool:
        return torch.cov(input, correction=correction)              # which warns, or refuses it
    x = x - (x.sum(1) / n).unsqueeze(1)
    return (torch.mm(x, H(x.t())) / (n - correction)).squeeze()


@decompose("torch.corrcoef T.corrcoef")
def corrcoef(input: Any) -> Any:
    if input.ndim > 2 or input.is_complex():
        return torch.corrcoef(input)
    c = torch.cov(input)
    if not c.ndim:
        return c / c
    spread = c.diag().sqrt()
    return (c / spread.view(-1, 1) / spread.view(1, -1)).clip(-1, 1)


# ----- distances -----
@primitive
def at_least_apart(x: Any, bound: float) -> Any:
    """`x.clamp_min(bound)` with the derivative of `x`: what torch writes in place where no gradient is followed."""
    return x.clamp_min(bound)


define("at_least_apart", "x, bound=0.0", ELEMENTWISE | PURE, forward=at_least_apart, x=lambda g: g)


@decompose("torch.cosine_similarity F.cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The product of both divided by their norms, whose bound torch does not differentiate."""
    if not x1.is_floating_point() or x1.dtype != x2.dtype:
        return torch.cosine_similarity(x1, x2, dim, eps)
    if x1.shape != x2.shape:
        x1, x2 = torch.broadcast_tensors(x1, x2)
    one, other = (at_least_apart(torch.linalg.vector_norm(x, 2, dim, True), eps) for x in (x1, x2))
    return (x1 / one * (x2 / other)).sum(dim)


@decompose("torch.pairwise_distance F.pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)


@decompose("torch.triplet_margin_loss")
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6,
                        swap: bool = False, reduction: int = 0) -> Any:
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    loss = (margin + near - far).clamp_min(0)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


@decompose("torch.cosine_embedding_loss")
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    if target.ndim > 1 or input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        return torch.cosine_embedding_loss(input1, input2, target, margin, reduction)        # which refuses it
    dim = target.ndim
    both = (input1 * input2).sum(dim)
    cosine = both / (((input1 * input1).sum(dim) + 1e-12) * ((input2 * input2).sum(dim) + 1e-12)).sqrt()
    zero = torch.zeros_like(cosine)
    loss = torch.where(target == 1, 1 - cosine, zero) + torch.where(target == -1, (cosine - margin).clamp_min(0), zero)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


# ----- rearrangements -----
@decompose("torch.diag T.diag")
def diag(input: Any, diagonal: int = 0) -> Any:
    return torch.diag_embed(input, diagonal) if input.ndim == 1 else torch.diagonal_copy(input, diagonal)


@decompose("torch.diagflat T.diagflat")
def diagflat(input: Any, offset: int = 0) -> Any:
    return torch.diag_embed(input.reshape(-1), offset)


@decompose("torch.msort T.msort")
def msort(input: Any) -> Any:
    return input.sort(0)[0]


@decompose("torch.diff T.diff")
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if n == 0:
        return input.clone()
    if not input.dim():
        raise RuntimeError("diff expects input to be at least one-dimensional")
    ends = [t for t in (prepend, input, append) if t is not None]
    x = torch.cat(ends, dim) if len(ends) > 1 else input
    for _ in range(min(n, x.shape[dim])):
        size = x.shape[dim]
        last, first = x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)
        x = last ^ first if x.dtype == torch.bool else last - first
    return x


@decompose("torch.nanmean T.nanmean")
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    factor = (~input.isnan()).sum(dim, keepdim)
    return torch.nansum(input, dim, keepdim, dtype=dtype) / factor
