"""Shape and dtype of frequent functions' results, where they need not be asked of torch: what they compute is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Result = tuple[tuple[int, ...], torch.dtype] | None
"""Of a result; None where torch has to be asked."""
DESCRIBED: set[type] = set()
"""Kinds of tensors without data: their shape and dtype are what is asked."""


def described(x: Any) -> bool:
    return type(x) in DESCRIBED


def sized(shape: Any, dtype: torch.dtype) -> Result:
    return tuple(shape), dtype


def broadcast(a: Any, b: Any) -> tuple[int, ...]:
    """The shape of an elementwise operation; `torch.broadcast_shapes` loads sympy."""
    a, b = (tuple(a), tuple(b)) if len(a) >= len(b) else (tuple(b), tuple(a))
    tail = a[len(a) - len(b):]
    if any(n != m and n != 1 and m != 1 for n, m in zip(tail, b, strict=True)):
        raise RuntimeError(f"the shapes {a} and {b} do not fit")
    return (*a[: len(a) - len(b)], *[m if n == 1 else n for n, m in zip(tail, b, strict=True)])


def elementwise(*args: Any) -> Result:
    """The broadcast shape of the operands and their dtype; None where they are not traces of one dtype, and numbers."""
    shape: Any = None
    dtype: Any = None
    for a in args:
        if described(a):
            if dtype is None:
                shape, dtype = a.shape, a.dtype
            elif a.dtype is not dtype:
                return None
            elif a.shape != shape:
                shape = broadcast(shape, a.shape)
        elif type(a) not in (int, float):
            return None
    return sized(shape, dtype) if dtype is not None and dtype.is_floating_point else None


def summed(x: Any, *size: Any) -> Result:
    """The result of `sum_to_size`."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    lead = x.ndim - len(size) if described(x) and x.dtype.is_floating_point else -1
    fits = lead >= 0 and all(type(n) is int and n in (1, m) for n, m in zip(size, x.shape[lead:], strict=True))
    return sized(size, x.dtype) if fits else None


def stacked(tensors: Any, dim: int = 0) -> Result:
    """The result of `stack`."""
    first: Any = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else None
    alike = described(first) and all(
        described(t) and t.dtype is first.dtype and t.shape == first.shape for t in tensors)
    if not alike or type(dim) is not int or not -first.ndim - 1 <= dim <= first.ndim:
        return None
    at = dim % (first.ndim + 1)
    return sized((*first.shape[:at], len(tensors), *first.shape[at:]), first.dtype)


def joined(tensors: Any, dim: int = 0) -> Result:
    """The result of `cat`."""
    first: Any = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else None
    if not described(first) or type(dim) is not int or not -first.ndim <= dim < first.ndim:
        return None
    at = dim % first.ndim
    rest = (*first.shape[:at], *first.shape[at + 1 :])
    alike = all(described(t) and t.dtype is first.dtype and t.ndim == first.ndim
                and (*t.shape[:at], *t.shape[at + 1 :]) == rest for t in tensors)
    size = sum(t.shape[at] for t in tensors) if alike else 0
    return sized((*first.shape[:at], size, *first.shape[at + 1 :]), first.dtype) if alike else None


def reduced(x: Any, dim: Any = None, keepdim: Any = False) -> Result:
    """The result of `sum` and `mean`."""
    if not described(x) or not x.dtype.is_floating_point or type(keepdim) is not bool:
        return None
    dims = range(x.ndim) if dim is None or dim in ((), []) else dim if isinstance(dim, (tuple, list)) else (dim,)
    if not all(type(d) is int and -x.ndim <= d < x.ndim for d in dims):
        return None
    gone = {d % x.ndim for d in dims}
    kept = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    return sized(kept, x.dtype) if len(gone) == len(dims) else None


def product(x: Any, y: Any) -> Result:
    """The result of `matmul` and of its kinds for one rank."""
    if not (described(x) and described(y) and x.dtype is y.dtype and x.dtype.is_floating_point):
        return None
    if not (x.ndim and y.ndim):
        return None
    left = x.shape if x.ndim > 1 else (1, *x.shape)
    right = y.shape if y.ndim > 1 else (*y.shape, 1)
    if left[-1] != right[-2]:
        return None
    batch = left[:-2] if left[:-2] == right[:-2] else broadcast(left[:-2], right[:-2])
    return sized((*batch, *left[-2:-1][: x.ndim > 1], *right[-1:][: y.ndim > 1]), x.dtype)


def placed(g: Any, shape: Any, *where: Any) -> Result:
    """The result of the backward of an index: g in zeros of this shape."""
    sizes = isinstance(shape, (tuple, list)) and all(type(n) is int and n >= 0 for n in shape)
    fits = sizes and described(g) and g.dtype.is_floating_point and all(type(w) is int for w in where)
    return sized(shape, g.dtype) if fits else None


def like_both(g: Any, ans: Any, dim: Any, dtype: Any) -> Result:
    """The result of the backward of `softmax` and `log_softmax`."""
    alike = described(g) and described(ans) and g.dtype is ans.dtype is dtype and g.shape == ans.shape
    return sized(g.shape, dtype) if alike and type(dim) is int and -g.ndim <= dim < g.ndim else None


def chosen(condition: Any, x: Any, y: Any) -> Result:
    """The result of `where`."""
    if not described(condition) or condition.dtype is not torch.bool:
        return None
    found = elementwise(x, y)
    return None if found is None else sized(broadcast(condition.shape, found[0]), found[1])


def compared(x: Any, y: Any) -> Result:
    """The result of a comparison."""
    found = elementwise(x, y)
    return None if found is None else sized(found[0], torch.bool)


SHAPED: dict[str, Callable[..., Result]] = {
    **dict.fromkeys(
        """add sub rsub mul div neg pow exp log sqrt rsqrt sin cos tanh sigmoid square reciprocal tanh_backward
        sigmoid_backward threshold_backward""".split(),
        elementwise,
    ),
    "sum_to_size": summed,
    "stack": stacked,
    "cat": joined,
    **dict.fromkeys(("select_backward", "slice_backward", "diagonal_backward"), placed),
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), product),
    **dict.fromkeys(("sum", "mean"), reduced),
    **dict.fromkeys(("softmax_backward", "log_softmax_backward"), like_both),
    "where": chosen,
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), compared),
}
"""By the operator's name; called as torch's function is."""


def shaped(name: str, args: Any, kwargs: Any) -> Result:
    """The result of a call of one of `SHAPED`."""
    try:
        return SHAPED[name](*args, **kwargs)
    except TypeError:  # an argument that is seldom there
        return None
