"""Rules: sums, means, products, norms, extrema over axes, scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.helpers import H, axes, count, expand_reduced, filled, masked, restore, summed
from autograd_opt.ops.table import MULTI, PURE, REDUCES, choose, define

A: Any = private.aten
R = PURE | REDUCES


def where_extreme(g: Any, x: Any, ans: Any, dim: Any, keepdim: bool) -> Any:
    """The cotangent of an extremum, shared evenly among the elements that attain it."""
    at = x == restore(ans, x.shape, dim, keepdim)
    g = restore(g, x.shape, dim, keepdim)
    return g * at / (at.sum() if dim is None else at.sum(axes(dim, x.ndim), keepdim=True) if x.ndim else at.sum())


def all_extreme(g: Any, x: Any, ans: Any) -> Any:
    at = torch.where(ans.isnan(), x.isnan(), x == ans)
    return masked(at, (g / at.sum()).expand(x.shape))


def put_back(g: Any, x_shape: Any, index: Any, dim: int, keepdim: bool) -> Any:
    if len(x_shape) and not keepdim:
        g, index = g.unsqueeze(dim), index.unsqueeze(dim)
    return torch.zeros(x_shape, dtype=g.dtype, device=g.device).scatter(dim, index, g)


def prod_x(g: Any, x: Any, ans: Any, *, dim: Any, keepdim: bool) -> Any:
    """g * ans / x, and the product of the others where an element is 0."""
    if not x.ndim:
        return g
    g, ans = restore(g, x.shape, dim, keepdim), restore(ans, x.shape, dim, keepdim)
    if x.dtype != ans.dtype:
        x = x.to(ans.dtype)
    if not bool((x == 0).any()):
        return g * H(ans / x)
    if dim is None and not torch.is_grad_enabled() and int((x == 0).sum()) > 1:
        return torch.zeros_like(x)              # as in torch also where the cotangent is NaN
    flat = x.reshape(-1) if dim is None else x
    d = 0 if dim is None else dim
    n = flat.shape[d]
    if n == 1:
        return g.reshape(x.shape)               # as torch: no function of `x` that could be differentiated again
    one = torch.ones_like(flat.narrow(d, 0, 1))
    before = torch.cat([one, flat.narrow(d, 0, n - 1)], d).cumprod(d)
    after = torch.cat([one, flat.narrow(d, 1, n - 1).flip(d)], d).cumprod(d).flip(d)
    return g * H((before * after).reshape(x.shape))


def var_x(g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    n = count(x.shape, dim) - correction
    if n <= 0 and (dim is None or not x.ndim):          # as torch says it, which does not depend on `x` further
        return g * torch.where(x == x.mean(), math.nan, math.inf)
    mean = x.mean(axes(dim, x.ndim), keepdim=True) if x.ndim else x
    g = restore(g, x.shape, dim, keepdim)
    return (2.0 / n if n else math.inf) * g * (x - mean)


def std_x(g: Any, x: Any, ans: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return var_x((g / (ans * 2)).masked_fill(ans == 0, 0), x, dim, correction, keepdim)


def with_mean(total: Any, mean: Any, x_shape: Any, dim: Any, keepdim: bool) -> Any:
    """A cotangent, or None, and that of the mean beside it."""
    if mean is None:
        return total
    part = expand_reduced(mean, x_shape, dim, keepdim) / count(x_shape, dim)
    return part if total is None else total + part


def var_mean_x(g: Any, x: Any, x_shape: Any, *, dim: Any, correction: Any, keepdim: bool) -> Any:
    spread, mean = g.parts
    total = None if spread is None else var_x(spread, x, dim, correction, keepdim)
    return with_mean(total, mean, x_shape, dim, keepdim)


def std_mean_kernel(x: Any, *, dim: Any, correction: Any, keepdim: bool) -> Any:
    result = torch.std_mean(x, dim, correction=correction, keepdim=keepdim)
    return result, (result[0].detach(), None)


def std_mean_x(g: Any, x: Any, x_shape: Any, results: Any, *, dim: Any, correction: Any, keepdim: bool) -> Any:
    spread, mean = g.parts
    total = None if spread is None else std_x(spread, x, results[0], dim, correction, keepdim)
    return with_mean(total, mean, x_shape, dim, keepdim)


def bind_var(x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    return (x,), {"dim": dim, "correction": 1 if correction is None else correction, "keepdim": keepdim}


def norm_x(g: Any, x: Any, ans: Any, *, ord: Any, dim: Any, keepdim: bool) -> Any:
    """The subgradients of least norm, as torch chooses them; none for the count of non-zeros."""
    if ord == 0:
        return None
    g, ans = restore(g, x.shape, dim, keepdim), restore(ans, x.shape, dim, keepdim)
    if x.dtype != ans.dtype and not x.is_complex():
        x = x.to(ans.dtype)
    if ord == 1:
        return x.sgn() * g
    if ord == 2:
        return g * (x / ans).masked_fill(ans == 0, 0)
    if math.isinf(ord):
        at = (x.abs() == ans) | x.isnan() if x.ndim else torch.ones_like(x, dtype=torch.bool)
        return x.sgn() * (g / at.sum(axes(dim, x.ndim), keepdim=True) if x.ndim else g) * at
    if ord < 1:
        return x.sgn() * (x.abs() ** (ord - 1)).masked_fill(x == 0, 0) * g * ans ** (1 - ord)
    scaled = (g / ans ** (ord - 1)).masked_fill(ans == 0, 0)
    return (x.sgn() * x.abs() ** (ord - 1) if ord < 2 else x * x.abs() ** (ord - 2)) * scaled


def dist_x(g: Any, x: Any, y: Any, ans: Any, *, p: Any) -> Any:
    d = x - y
    g = norm_x(g, d, ans, ord=p, dim=None, keepdim=False)
    return g if g is None else filled(summed(g, x.shape))


def dist_y(g: Any, x: Any, y: Any, ans: Any, *, p: Any) -> Any:
    return dist_x(g, y, x, ans, p=p)


def sums_from_each(g: Any, dim: int) -> Any:
    """The sums of the elements from each one on."""
    return g.flip(dim).cumsum(dim).flip(dim)


def cumsum_x(g: Any, x_dtype: Any, *, dim: int, dtype: Any) -> Any:
    """Sums in the operand's type; where there is one summand, the gradient itself, as in torch."""
    if dtype is not None and isinstance(g, torch.Tensor):
        g = g.to(x_dtype)
    return g if not g.ndim or g.shape[dim] == 1 or g.numel() <= 1 else sums_from_each(g, dim)


def cumprod_x(g: Any, x: Any, ans: Any, *, dim: int, dtype: Any) -> Any:
    """The sums of g * ans from each element on, divided by it.

    Where an element is 0: by the product of those before it, times the products of those after it up to each.
    """
    if dtype is not None:
        g = g.to(x.dtype)
    if x.numel() <= 1 or x.shape[dim] == 1:
        return g
    if not bool((x == 0).any()):
        return sums_from_each(H(ans) * g, dim) / H(x)
    if not torch.is_grad_enabled():
        return A.cumprod_backward(g, x, dim, ans)
    parts, n = [], x.shape[dim]
    for k in range(n):
        omitted = torch.ones_like(x.narrow(dim, k, 1))
        if k + 1 < n:
            omitted = torch.cat([omitted, x.narrow(dim, k + 1, n - k - 1).cumprod(dim)], dim)
        if k:
            omitted = x.narrow(dim, 0, k).prod(dim, keepdim=True) * omitted
        parts.append((g.narrow(dim, k, n - k) * H(omitted)).sum(dim))
    return torch.stack(parts, dim)


def logcumsumexp_x(g: Any, x: Any, ans: Any, *, dim: int) -> Any:
    """Positive and negative cotangents apart, each in logarithms (the least finite one for 0)."""
    if not x.ndim:
        return g
    least = torch.finfo(g.dtype).min
    log_g = g.abs().log()
    up = torch.where(g > 0, log_g, least)
    down = torch.where(g < 0, log_g, least)

    def back(t: Any) -> Any:
        return ((t - ans).flip(dim).logcumsumexp(dim).flip(dim) + x).exp()
    return back(up) - back(down)


def bind_logcumsumexp(x: Any, dim: int) -> Any:
    if x.is_complex():
        raise TypeError("no rule for complex")
    return (x,), {"dim": dim}


def logsumexp_x(g: Any, x: Any, ans: Any, *, dim: Any, keepdim: bool) -> Any:
    g, ans = restore(g, x.shape, dim, keepdim), restore(ans, x.shape, dim, keepdim)
    return g * H((x - ans).exp())


# ----- sums -----
define("sum", "x, dim=None, keepdim=False, *, dtype=None", R, "torch.sum T.sum",
       x=lambda g, x_shape, *, dim, keepdim: expand_reduced(g, x_shape, dim, keepdim))
define("nansum", "x, dim=None, keepdim=False, *, dtype=None", R, "torch.nansum T.nansum",
       x=lambda g, x, x_shape, *, dim, keepdim: expand_reduced(g, x_shape, dim, keepdim) * ~x.isnan())
define("mean", "x, dim=None, keepdim=False, *, dtype=None", R, "torch.mean T.mean",
       x=lambda g, x_shape, *, dim, keepdim: filled(expand_reduced(g, x_shape, dim, keepdim) / count(x_shape, dim)))
define("sum_to_size", "x, *size", R, "T.sum_to_size", x=lambda g, x_shape: g.expand(x_shape))
define("prod", "x, dim=None, keepdim=False, *, dtype=None", R, "torch.prod T.prod", x=prod_x)
define("logsumexp", "x, dim=None, keepdim=False", R, "torch.logsumexp T.logsumexp torch.special.logsumexp",
       x=logsumexp_x)
define("var", "x, dim=None, *, correction=1, keepdim=False", R, "torch.var T.var", bind=bind_var,
       x=lambda g, x, *, dim, correction, keepdim: var_x(g, x, dim, correction, keepdim))
define("std", "x, dim=None, *, correction=1, keepdim=False", R, "torch.std T.std", bind=bind_var,
       x=lambda g, x, ans, *, dim, correction, keepdim: std_x(g, x, ans, dim, correction, keepdim))
define("var_mean", "x, dim=None, *, correction=1, keepdim=False", R | MULTI, "torch.var_mean", bind=bind_var,
       x=var_mean_x)
define("std_mean", "x, dim=None, *, correction=1, keepdim=False", R | MULTI, "torch.std_mean", bind=bind_var,
       kernel=std_mean_kernel, x=std_mean_x)
# ----- norms -----
define("vector_norm", "x, ord=2, dim=None, keepdim=False, *, dtype=None", R, "torch.linalg.vector_norm", x=norm_x)
define("dist", "x, y, p=2", R, "torch.dist T.dist", x=dist_x,
       y=dist_y)
# ----- extrema -----
for _name in ("amax", "amin"):
    define(_name, "x, dim=None, keepdim=False", R, f"torch.{_name} T.{_name}",
           bind=lambda x, dim=(), keepdim=False: ((x,), {"dim": dim, "keepdim": keepdim}),
           x=lambda g, x, ans, *, dim, keepdim: where_extreme(g, x, ans, dim, keepdim))


def bind_sort(x: Any, *order: Any, **named: Any) -> Any:
    """torch takes `stable` where the axis and the direction are named, too."""
    names = ("dim", "descending")
    given = dict(zip(names, order, strict=False))
    if len(order) > 2 or (order and "stable" in named) or given.keys() & named.keys() \
            or named.keys() - {*names, "stable"}:
        raise TypeError("torch has no such call")
    return (x,), {"dim": -1, "descending": False, "stable": False, **given, **named}


def define_picked(name: str, attributes: str, calls: str, function: Callable[..., Any],
                  bind: Callable[..., Any] | None = None) -> None:
    """An operator that returns (values, indices); the rule reads the indices."""
    def kernel(x: Any, **found: Any) -> Any:
        result = function(x, **found)
        return result, result[1].detach()

    def rule(g: Any, x_shape: Any, extra: Any, node: Any) -> Any:
        found = {**node.op.attributes, **node.attributes}
        return put_back(g.parts[0], x_shape, extra, found.get("dim", -1), found.get("keepdim", True))
    define(name, f"x, {attributes}", R | MULTI, calls, forward=function, kernel=kernel, bind=bind, x=rule)


def scan_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Any, *, dim: int) -> Any:
        result = function(x, dim)
        return result, result[1].detach()
    return kernel


def scan_back(g: Any, x_shape: Any, index: Any, dim: int) -> Any:
    return torch.zeros(x_shape, dtype=g.dtype, device=g.device).scatter_add(dim, index, g)


for _name in ("max", "min"):
    define(f"{_name}_all", "x", R, forward=getattr(torch, _name), x=all_extreme)
define_picked("max_dim", "dim=0, keepdim=False", "", torch.max)
define_picked("min_dim", "dim=0, keepdim=False", "", torch.min)
define_picked("sort", "dim=-1, descending=False, *, stable=False", "torch.sort T.sort",
              lambda x, dim, descending, stable: torch.sort(x, stable=stable, dim=dim, descending=descending),
              bind_sort)
define_picked("topk", "k=None, dim=-1, largest=True, sorted=True", "torch.topk T.topk", torch.topk)
define_picked("kthvalue", "k=None, dim=-1, keepdim=False", "torch.kthvalue T.kthvalue", torch.kthvalue)
define_picked("mode", "dim=-1, keepdim=False", "torch.mode T.mode", torch.mode)


def overloaded(name: str, both: str | None = None) -> Callable[..., str | None]:
    """Tell apart: of all elements, over an axis, of two tensors; options need an axis."""
    def pick(x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> str | None:
        if (isinstance(dim, torch.Tensor) and both) or "other" in kwargs:
            return both
        if dim is None and not args and not kwargs:
            return f"{name}_all"
        return None if dim is None and "axis" not in kwargs else f"{name}_dim"
    return pick


for _name in ("median", "nanmedian"):
    define(f"{_name}_all", "x", R, forward=getattr(torch, _name), x=all_extreme)
    define_picked(f"{_name}_dim", "dim=0, keepdim=False", "", getattr(torch, _name))
    choose(f"torch.{_name} T.{_name}", overloaded(_name))
for _name in ("cummax", "cummin"):
    define(_name, "x, dim=None", R | MULTI, f"torch.{_name} T.{_name}", kernel=scan_kernel(getattr(torch, _name)),
           keeps="x",
           x=lambda g, x_shape, extra, *, dim: scan_back(g.parts[0], x_shape, extra, dim))


choose("torch.max T.max", overloaded("max", "maximum"))
choose("torch.min T.min", overloaded("min", "minimum"))
# ----- scans -----
define("cumsum", "x, dim=0, *, dtype=None", R, "torch.cumsum T.cumsum", inplace="T.cumsum_",
       x=cumsum_x)
define("cumprod", "x, dim=0, *, dtype=None", R, "torch.cumprod T.cumprod", inplace="T.cumprod_", x=cumprod_x)
define("logcumsumexp", "x, dim=0", R, "torch.logcumsumexp T.logcumsumexp", bind=bind_logcumsumexp, x=logcumsumexp_x)
