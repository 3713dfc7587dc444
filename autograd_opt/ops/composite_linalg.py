"""torch's composite functions of linear algebra, written as recordable calls."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.helpers import H
from autograd_opt.ops.table import decompose

NUMBER = (int, float)


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
@decompose("torch.linalg.matrix_norm")
def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Frobenius' is the vector's; rows and columns have the largest or smallest sum; others read singular values."""
    if A.ndim < 2 or len(dim) != 2 or not (dim[0] - dim[1]) % A.ndim or not A.numel():
        return torch.linalg.matrix_norm(A, ord, dim, keepdim, dtype=dtype)    # which refuses or knows it
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


@decompose("torch.linalg.norm")
def linalg_norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if isinstance(dim, int):
        dim = (dim,)
    if ord is None or (dim is not None and len(dim) == 1) or (dim is None and A.ndim == 1):
        return torch.linalg.vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return torch.linalg.matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


@decompose("torch.linalg.cond")
def cond(A: Any, p: Any = None) -> Any:
    """Of the norm 2, the quotient of the largest and the least singular value."""
    if A.ndim < 2 or not A.numel() or not (p is None or (isinstance(p, NUMBER) and abs(p) == 2)):
        return torch.linalg.cond(A, p)
    s = torch.linalg.svdvals(A)
    most, least = s.narrow(-1, 0, 1), s.narrow(-1, s.shape[-1] - 1, 1)
    return (least / most if p == -2 else most / least).squeeze(-1)
