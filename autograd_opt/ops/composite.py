"""torch's composite functions, written as recordable calls with the same kernels in the same order."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.binding import of_one_shape
from autograd_opt.ops.helpers import H, broadcast_shape, primitive
from autograd_opt.ops.neural import suggested
from autograd_opt.ops.table import ELEMENTWISE, PURE, decompose, define

NUMBER = (int, float)


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


# ----- norms -----
@decompose("torch.linalg.matrix_norm")
def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Frobenius' is the vector's; rows and columns have the largest or smallest sum; others read singular values."""
    if A.ndim < 2 or len(dim) != 2 or not (dim[0] - dim[1]) % A.ndim:
        return torch.linalg.matrix_norm(A, ord, dim, keepdim, dtype=dtype)       # which refuses it
    if ord == "fro":
        return torch.linalg.vector_norm(A, 2, dim, keepdim, dtype=dtype)
    rows, columns = (d % A.ndim for d in dim)
    if ord == "nuc" or abs(ord) == 2:
        A = A if dtype is None else A.to(dtype)
        order = [d for d in range(A.ndim) if d not in (rows, columns)] + [rows, columns]
        values = torch.linalg.svdvals(A if order == list(range(A.ndim)) else A.permute(order))
        norm = values.sum(-1, keepdim) if ord == "nuc" else (values.amax if ord > 0 else values.amin)(-1, keepdim)
        return norm.unsqueeze(-1).permute(sorted(range(A.ndim), key=order.__getitem__)) if keepdim else norm
    if math.isinf(ord):
        rows, columns = columns, rows
    sums = torch.linalg.vector_norm(A, 1, (rows,), keepdim, dtype=dtype)
    last = columns if keepdim or columns < rows else columns - 1
    return (sums.amax if ord > 0 else sums.amin)(last, keepdim)


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


# ----- products -----
@functools.lru_cache(1024)
def matrices_of(a: tuple[int, ...], b: tuple[int, ...], dims_a: tuple[int, ...], dims_b: tuple[int, ...]) -> Any:
    """How a tensordot of these shapes is a product of matrices: what is summed first, orders of axes, sizes, shape."""
    sizes_a, sizes_b = list(a), list(b)
    summed_a, summed_b = [], []
    for i, j in zip(dims_a, dims_b, strict=True):
        if sizes_a[i] == 1 != sizes_b[j]:
            summed_b.append(j)
            sizes_b[j] = 1
        elif sizes_b[j] == 1 != sizes_a[i]:
            summed_a.append(i)
            sizes_a[i] = 1
    last_a, first_b = [d % len(a) for d in dims_a], [d % len(b) for d in dims_b]
    free_a = [d for d in range(len(a)) if d not in last_a]
    free_b = [d for d in range(len(b)) if d not in first_b]
    rows, columns = [sizes_a[d] for d in free_a], [sizes_b[d] for d in free_b]
    inner = math.prod(sizes_a[d] for d in last_a)
    return (summed_a, summed_b, tuple(free_a + last_a), tuple(first_b + free_b), (math.prod(rows), inner),
            (inner, math.prod(columns)), tuple(rows + columns))


@decompose("torch._VF.tensordot")
def tensordot(a: Any, b: Any, dims_a: Any, dims_b: Any) -> Any:
    summed_a, summed_b, order_a, order_b, left, right, shape = matrices_of(
        tuple(a.shape), tuple(b.shape), tuple(dims_a), tuple(dims_b))
    for d in summed_a:
        a = a.sum(d, keepdim=True)
    for d in summed_b:
        b = b.sum(d, keepdim=True)
    a, b = in_order(a, order_a), in_order(b, order_b)
    if not shape and order_a:                        # in torch's order of summation
        whole = torch.dot(a.flatten(), b.flatten()) if a.is_contiguous() and b.is_contiguous() else (a * b).sum()
        return whole.view(())
    return of_shape(of_shape(a, left) @ of_shape(b, right), shape)


def in_order(t: Any, order: tuple[int, ...]) -> Any:
    """The tensor with its axes in this order; itself where they are."""
    return t if order == tuple(range(len(order))) else t.permute(order)


def of_shape(t: Any, shape: tuple[int, ...]) -> Any:
    """The tensor in this shape; itself where it has it."""
    return t if t.shape == shape else t.reshape(shape)


@decompose("torch.kron T.kron")
def kron(input: Any, other: Any) -> Any:
    n = max(input.ndim, other.ndim)
    a = (1,) * (n - input.ndim) + tuple(input.shape)
    b = (1,) * (n - other.ndim) + tuple(other.shape)
    left = input.reshape([k for d in a for k in (d, 1)])
    right = other.reshape([k for d in b for k in (1, d)])
    return private.aten._unsafe_view(left * right, [i * j for i, j in zip(a, b, strict=True)])


@decompose("torch.linalg.multi_dot")
def multi_dot(tensors: Any) -> Any:
    """Up to three matrices, in the cheaper order; of more torch finds the order."""
    axes = [t.ndim for t in tensors]
    if not 2 <= len(axes) <= 3 or not {1, 2}.issuperset(axes) or 1 in axes[1:-1]:
        return torch.linalg.multi_dot(tensors)
    first, last = tensors[0], tensors[-1]
    shape = (*first.shape[:-1], *last.shape[1:])
    a = first.unsqueeze(0) if first.ndim == 1 else first
    c = last.unsqueeze(-1) if last.ndim == 1 else last
    if len(tensors) == 2:
        return torch.mm(a, c).view(shape)
    b = tensors[1]
    (rows, left), (right, columns) = a.shape, c.shape
    return (torch.mm(a, torch.mm(b, c)) if rows * right * (left + columns) > left * columns * (rows + right)
            else torch.mm(torch.mm(a, b), c)).view(shape)


@decompose("torch.linalg.matrix_power torch.matrix_power T.matrix_power")
def matrix_power(A: Any, n: int) -> Any:
    """By repeated squaring."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        return torch.linalg.matrix_power(A, n)                      # which refuses it
    if n == 0:
        return A.clone().copy_(torch.eye(A.shape[-1], dtype=A.dtype, device=A.device))
    if n == 1:
        return A.clone()
    if n < 0:
        A, n = torch.linalg.inv(A), -n
    if n == 1:
        return A
    if n <= 3:
        return A @ A if n == 2 else (A @ A) @ A
    result, square = None, A
    while True:
        if n % 2:
            result = square if result is None else result @ square
        n //= 2
        if not n:
            return result
        square = square @ square


@decompose("torch.linalg.tensorsolve")
def tensorsolve(A: Any, B: Any, dims: Any = None) -> Any:
    if dims is not None:
        A = A.movedim(dims, tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim:]
    n = math.prod(shape)
    if A.numel() != n * n:
        return torch.linalg.tensorsolve(A, B)                       # which refuses it
    return torch.linalg.solve(A.reshape(n, n), B.reshape(n)).reshape(shape)


@decompose("torch.linalg.tensorinv")
def tensorinv(A: Any, ind: int = 2) -> Any:
    rows, columns = A.shape[:ind], A.shape[ind:]
    n = math.prod(columns)
    if ind <= 0 or A.numel() != n * n:
        return torch.linalg.tensorinv(A, ind)                       # which refuses it
    return torch.linalg.inv(A.reshape(n, n)).reshape(*columns, *rows)


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


@decompose("torch.inner T.inner")
def inner(input: Any, other: Any) -> Any:
    return input * other if not input.ndim or not other.ndim else tensordot(input, other, [-1], [-1])


@decompose("torch.linalg.vecdot")
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    return (H(x) * y).sum(dim)


# ----- decompositions -----
@decompose("torch.svd T.svd")
def svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        s = torch.linalg.svdvals(input)
        *batch, m, n = input.shape
        return torch.return_types.svd((input.new_zeros((*batch, m, m)), s, input.new_zeros((*batch, n, n))))
    u, s, vh = torch.linalg.svd(input, full_matrices=not some)
    return torch.return_types.svd((u, s, H(vh).mT))


@decompose("torch.linalg.vander")
def vander(x: Any, *, N: int | None = None) -> Any:
    row = x.unsqueeze(-1) if x.ndim == 0 else x
    n = row.shape[-1] if N is None else N
    if n <= 1:
        return torch.linalg.vander(x, N=N)                          # which refuses it
    powers = row.unsqueeze(-1).expand(*row.shape, n - 1).cumprod(-1)
    return torch.cat((torch.ones((*row.shape, 1), dtype=x.dtype, device=x.device), powers), -1)


# ----- norms -----
@decompose("torch.linalg.cond")
def cond(A: Any, p: Any = None) -> Any:
    """Of the norm 2, the quotient of the largest and the least singular value."""
    if A.ndim < 2 or not A.numel() or not (p is None or (isinstance(p, NUMBER) and abs(p) == 2)):
        return torch.linalg.cond(A, p)
    s = torch.linalg.svdvals(A)
    most, least = s.narrow(-1, 0, 1), s.narrow(-1, s.shape[-1] - 1, 1)
    return (least / most if p == -2 else most / least).squeeze(-1)


def vector_norm(x: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return torch.linalg.vector_norm(x, ord, dim, keepdim, dtype=dtype)


@decompose("torch.linalg.norm")
def linalg_norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if isinstance(dim, int):
        dim = (dim,)
    if ord is None or (dim is not None and len(dim) == 1) or (dim is None and A.ndim == 1):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype)
    return torch.linalg.matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


@decompose("torch.pairwise_distance F.pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return vector_norm(x1 - x2 + eps, p, -1, keepdim, None)


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


# ----- integrals -----
@decompose("torch.trapezoid torch.trapz")
def trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Any:
    if not y.shape[dim] or isinstance(dx, torch.Tensor):            # zeros, which follow nothing; torch takes the number
        return torch.trapezoid(y, dx=dx, dim=dim)
    if x is None:
        return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx
    return pairs(y, x, dim).sum(dim) / 2.0


@decompose("torch.cumulative_trapezoid")
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Any:
    if not y.shape[dim] or isinstance(dx, torch.Tensor):
        return torch.cumulative_trapezoid(y, **({"dx": dx} if x is None else {"x": x}), dim=dim)
    if x is None:
        first, last = neighbours(y, dim)
        return ((first + last) * (dx / 2.0)).cumsum(dim)
    return pairs(y, x, dim).cumsum(dim) / 2.0


def pairs(y: Any, x: Any, dim: int) -> Any:
    """The sums of neighbours in `y`, each times the distance of their places in `x`."""
    dim %= y.ndim
    if x.ndim == 1:
        x = x.view([x.shape[0] if d == dim else 1 for d in range(y.ndim)])
    elif x.ndim < y.ndim:
        x = x.view((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    left, right = neighbours(x, dim)
    distance = right - left
    left, right = neighbours(y, dim)
    return (left + right) * distance


def neighbours(t: Any, dim: int) -> tuple[Any, Any]:
    """All elements along an axis but the last, and all but the first."""
    n = t.shape[dim] - 1
    return t.narrow(dim, 0, n), t.narrow(dim, 1, n)


# ----- layers -----
PADDINGS = {"reflect": "reflection", "replicate": "replication"}


@decompose("F.pad torch._C._nn.pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """What is no constant padding: copies of the edge, or of what lies inside."""
    axes = len(pad) // 2
    if not 1 <= axes <= 3 or len(pad) != 2 * axes or not axes + 1 <= input.ndim <= axes + 2 or value not in (None, 0) \
            or (input.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return torch.nn.functional.pad(input, pad, mode, value)
    if mode in PADDINGS:
        return getattr(private.nn, f"{PADDINGS[mode]}_pad{axes}d")(input, pad)
    sizes = input.shape[::-1]
    if mode == "circular" and input.is_contiguous() and all(0 <= p <= sizes[i // 2] for i, p in enumerate(pad)):
        for axis, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
            size = input.shape[-axis]
            input = torch.cat([input.narrow(-axis, size - before, before), input, input.narrow(-axis, 0, after)], -axis)
        return input
    return torch.nn.functional.pad(input, pad, mode, value)


@decompose("torch.prelu T.prelu F.prelu")
def prelu(input: Any, weight: Any) -> Any:
    if input.ndim != weight.ndim:
        weight = weight.reshape([weight.numel() if d == 1 else 1 for d in range(input.ndim)])
    return torch._prelu_kernel(input, weight)


def single(option: Any) -> Any:
    """An option of a layer over one axis, given as a number or as a list of one."""
    return option[0] if isinstance(option, (tuple, list)) and option else option


@decompose("torch.avg_pool1d F.avg_pool1d")
def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Any:
    k, s, p = map(single, (kernel_size, stride or kernel_size, padding))
    return private.nn.avg_pool2d(
        input.unsqueeze(-2), (1, k), (1, s), (0, p), ceil_mode, count_include_pad).squeeze(-2)


@decompose("torch.adaptive_avg_pool1d F.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, single(output_size))).squeeze(-2)


@decompose("torch.max_pool1d_with_indices")
def max_pool1d_with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                            ceil_mode: bool = False) -> Any:
    k, s, p, d = map(single, (kernel_size, stride or kernel_size, padding, dilation))
    pooled, indices = private.nn.max_pool2d_with_indices(
        input.unsqueeze(-2), (1, k), (1, s), (0, p), (1, d), ceil_mode)
    return pooled.squeeze(-2), indices.squeeze(-2)


@decompose("torch.adaptive_max_pool1d")
def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    pooled, indices = private.nn.adaptive_max_pool2d(input.unsqueeze(-2), (1, single(output_size)))
    return pooled.squeeze(-2), indices.squeeze(-2)


def adaptive_max_pool(n: int) -> Any:
    """The pooling over `n` axes; torch computes the indices in any case."""
    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        found = getattr(torch.nn.functional, f"adaptive_max_pool{n}d_with_indices")(input, output_size)
        return found if return_indices else found[0]
    return function


for _n in (1, 2, 3):
    decompose(f"F.adaptive_max_pool{_n}d")(adaptive_max_pool(_n))


def wanted_size(size: Any, shape: Any) -> list[int]:
    sizes = [size] * len(shape) if isinstance(size, int) else list(size)
    return [n if s is None else s for s, n in zip(sizes, shape, strict=True)]


def mean_of_channels(x: Any, axes: int) -> Any:
    """The mean over the last `axes` axes, channels last where those of a batch `x` are."""
    mean = x.mean(tuple(range(-1, -1 - axes, -1)), keepdim=True)
    if x.ndim != axes + 2 or suggested(x) is torch.contiguous_format:
        return mean
    channels = x.shape[1]
    return mean.as_strided(mean.shape, (channels, 1, *[channels] * axes))


@decompose("torch._C._nn.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    size = wanted_size(output_size, input.shape[-2:])
    return mean_of_channels(input, 2) if size == [1, 1] else torch._adaptive_avg_pool2d(input, size)


@decompose("torch._C._nn.adaptive_avg_pool3d")
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    size = wanted_size(output_size, input.shape[-3:])
    return mean_of_channels(input, 3) if size == [1, 1, 1] else torch._adaptive_avg_pool3d(input, size)


@decompose("torch.max_pool1d")
def max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False) -> Any:
    from autograd_opt.graph.references import requires_grad
    if isinstance(input, torch.Tensor) and not (torch.is_grad_enabled() and requires_grad(input)):
        # torch's own kernel for it, whose result is no view
        with private.DisableTorchFunction():
            return torch.max_pool1d(input, kernel_size, stride or (), padding, dilation, ceil_mode)
    k, s, p, d = map(single, (kernel_size, stride or kernel_size, padding, dilation))
    return torch.max_pool2d(input.unsqueeze(-2), (1, k), (1, s), (0, p), (1, d), ceil_mode).squeeze(-2)


@decompose("F.max_pool1d")
def max_pool1d_of_module(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                         ceil_mode: bool = False, return_indices: bool = False) -> Any:
    if return_indices:
        return torch.max_pool1d_with_indices(input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


# ----- cells of recurrent networks -----
def composed(call: Any) -> Any:
    """A cell that torch composes of these calls on the CPU; elsewhere, or where sizes do not fit, it is torch's own."""
    count = call.__code__.co_argcount - 2

    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        states = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        fits = input.ndim == w_ih.ndim == w_hh.ndim == 2 and input.shape[1] == w_ih.shape[1]
        shape = (input.shape[0], w_hh.shape[1]) if fits else None
        tensors = [input, *states, w_ih, w_hh, *(b for b in (b_ih, b_hh) if b is not None)]
        if len(states) != count or any(h.shape != shape for h in states) or (b_ih is None) is not (b_hh is None) \
                or any(not t.is_cpu or t.layout is not torch.strided or t.dtype is not input.dtype for t in tensors):
            return getattr(torch, call.__name__)(input, hx, w_ih, w_hh, b_ih, b_hh)
        linear = torch.nn.functional.linear
        return call(linear(input, w_ih, b_ih), linear(states[0], w_hh, b_hh), *states)
    return decompose(f"torch.{call.__name__}")(cell)


@composed
def gru_cell(own: Any, past: Any, h: Any) -> Any:
    own_reset, own_input, own_new = own.chunk(3, 1)
    past_reset, past_input, past_new = past.chunk(3, 1)
    reset, gate = (past_reset + own_reset).sigmoid(), (past_input + own_input).sigmoid()
    new = (own_new + past_new * reset).tanh()
    return (h - new) * gate + new


@composed
def lstm_cell(own: Any, past: Any, h: Any, c: Any) -> Any:
    gates = (past + own).chunk(4, 1)
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh()
    return gates[3].sigmoid() * c.tanh(), c


@composed
def rnn_tanh_cell(own: Any, past: Any, h: Any) -> Any:
    return (past + own).tanh()


@composed
def rnn_relu_cell(own: Any, past: Any, h: Any) -> Any:
    return (past + own).relu()
