
"""Words that meanings are written in: reductions, kinks, products, losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from autograd_opt.ops.helpers import NUMBER, TIES_SHARE
from autograd_opt.verification.semantics.domain import Array, Domain, Outside

Meaning = Callable[..., Any]


HALF = Fraction(1, 2)


def axes_of(dim: Any, n: int) -> tuple[int, ...]:
    if dim is None or dim == () or dim == []:
        return tuple(range(n))
    return tuple(d % n if n else 0 for d in ((dim,) if isinstance(dim, int) else dim)) if n else ()


def packed(shape: Any) -> tuple[int, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)


def sigmoid(D: Domain, x: Array) -> Array:
    return D.div(D.number(1), D.add(D.number(1), D.call("exp", D.neg(x))))


def elu(D: Domain, x: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Array:
    below = D.scale(alpha * scale, D.sub(D.call("exp", D.scale(input_scale, x)), D.number(1)))
    return D.branch(x, D.scale(scale, x), below, 0)


def mean(D: Domain, x: Array, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Array:
    axes = axes_of(dim, x.ndim)
    n = math.prod(x.shape[a] for a in axes)
    return D.div(D.sum(x, axes, keepdim), D.number(n))


def var(D: Domain, x: Array, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Array:
    axes = axes_of(dim, x.ndim)
    n = math.prod(x.shape[a] for a in axes)
    d = D.sub(x, mean(D, x, dim, True))
    return D.div(D.sum(D.mul(d, d), axes, keepdim), D.number(n - correction))


def softmax(D: Domain, x: Array, dim: int = -1, dtype: Any = None) -> Array:
    e = D.call("exp", x)
    return D.div(e, D.sum(e, axes_of(dim, x.ndim), True))


def logsumexp(D: Domain, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    return D.call("log", D.sum(D.call("exp", x), axes_of(dim, x.ndim), keepdim))


def layer_norm(D: Domain, x: Array, weight: Array | None = None, bias: Array | None = None, normalized_shape: Any = (),
               eps: float = 1e-5) -> Array:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    out = D.div(D.sub(x, mean(D, x, dims, True)), D.call("sqrt", D.add(var(D, x, dims, 0, True), D.number(eps))))
    out = out if weight is None else D.mul(out, weight)
    return out if bias is None else D.add(out, bias)


def layer_norm_back(D: Domain, g: Array, x: Array, mean: Array, rstd: Array, *more: Array, **a: Any) -> tuple[Any, ...]:
    """aten::native_layer_norm_backward: the cotangents of input, weight and bias."""
    weight = more[0] if "#5" not in a else None
    axes = tuple(range(x.ndim - len(a["#2"]), x.ndim))
    return normalized_back(D, g, D.mul(D.sub(x, mean), rstd), rstd, weight, axes, tuple(range(x.ndim - len(a["#2"]))))


def normalized_back(D: Domain, g: Array, z: Array, rstd: Array, weight: Any, axes: Any, rest: Any) -> tuple[Any, ...]:
    """Cotangents of input, weight and bias of z = (x - mean) rstd; weights vary along all axes but `rest`."""
    h = g if weight is None else D.mul(g, weight)
    back = D.sub(D.sub(h, mean(D, h, axes, True)), D.mul(z, mean(D, D.mul(h, z), axes, True)))
    return D.mul(rstd, back), D.sum(D.mul(g, z), rest), D.sum(g, rest)


def group_norm(D: Domain, x: Array, weight: Array | None = None, bias: Array | None = None, num_groups: int = 1,
               eps: float = 1e-5) -> Array:
    grouped = x.reshape(x.shape[0], num_groups, -1)
    out = D.div(D.sub(grouped, mean(D, grouped, -1, True)),
                D.call("sqrt", D.add(var(D, grouped, -1, 0, True), D.number(eps)))).reshape(x.shape)
    channel = (-1, *[1] * (x.ndim - 2))
    out = out if weight is None else D.mul(out, weight.reshape(channel))
    return out if bias is None else D.add(out, bias.reshape(channel))


def group_norm_back(D: Domain, g: Array, x: Array, mean_: Array, rstd: Array, *more: Array, **_: Any) -> Any:
    """aten::native_group_norm_backward: the cotangents of input, weight and bias."""
    rstd, mean_ = rstd[..., None], mean_[..., None]
    each = (x.shape[0], rstd.shape[1], -1)
    z = D.mul(D.sub(x.reshape(each), mean_), rstd)
    h = g if not more else D.mul(g, more[0].reshape((-1, *[1] * (x.ndim - 2))))
    back = normalized_back(D, h.reshape(each), z, rstd, None, (2,), ())[0]
    rest = tuple(d for d in range(x.ndim) if d != 1)
    return back.reshape(x.shape), D.sum(D.mul(g, z.reshape(x.shape)), rest), D.sum(g, rest)


def reduce_loss(D: Domain, loss: Array, how: Any) -> Array:
    return mean(D, loss) if how in (1, "mean") else D.sum(loss, axes_of(None, loss.ndim)) if how in (2, "sum") else loss


def product(D: Domain, x: Array, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Array:
    if dim is None:
        x, dim = x.reshape(-1), 0
    parts = [np.take(x, [k], axis=dim) for k in range(x.shape[dim])]
    out = parts[0]
    for part in parts[1:]:
        out = D.mul(out, part)
    return out if keepdim else out.squeeze(dim)


def extreme(D: Domain, x: Array, dim: Any, keepdim: bool, s: int) -> Array:
    """The largest (s = 1) or smallest element; ties share evenly, here for two elements."""
    axes = axes_of(dim, x.ndim)
    flat = np.moveaxis(x, axes, range(len(axes))).reshape(-1, *[x.shape[a] for a in range(x.ndim) if a not in axes])
    if flat.shape[0] > 2:
        raise Outside("an extremum of more than two elements")
    out = flat[0]
    for other in flat[1:]:
        out = D.branch(D.scale(s, D.sub(out, other)), out, other, Fraction(1, 2))
    return np.asarray(out).reshape([1 if a in axes else x.shape[a] for a in range(x.ndim)]) if keepdim else out


def clamp(D: Domain, x: Array, lo: Any = None, hi: Any = None) -> Array:
    if lo is not None:
        x = D.branch(D.sub(x, lo), x, lo, kept_at(lo))
    return x if hi is None else D.branch(D.sub(x, hi), hi, x, 1 - kept_at(hi))


def kept_at(bound: Any) -> Any:
    """Which part of the derivative `x` has at a bound of it; since torch 2.14 as `TIES_SHARE` says."""
    return (0 if isinstance(bound, NUMBER) else HALF) if TIES_SHARE else 1


def unary(name: str) -> Meaning:
    return lambda D, x: D.call(name, x)


def compare(test: Callable[[Any], Any]) -> Meaning:
    return lambda D, x, y: test(D.compare(x, y))


def logical(op: Callable[..., Any]) -> Meaning:
    return lambda D, *xs: op(*[D.truth(x) for x in xs])


def bitwise(op: Callable[..., Any]) -> Meaning:
    def meaning(D: Domain, *xs: Any) -> Any:
        if any(np.asarray(x).dtype.kind not in "bi" for x in xs):
            raise Outside("bits of numbers that are not known")
        return op(*xs)

    return meaning


def matmul_affine(D: Domain, x: Array, y: Array, z: Array, beta: Any = 1, alpha: Any = 1) -> Array:
    return D.add(D.scale(beta, x), D.scale(alpha, D.matmul(y, z)))


def linear(D: Domain, x: Array, weight: Array, bias: Array | None = None) -> Array:
    out = D.matmul(x, np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight)
    return out if bias is None else D.add(out, bias)


def einsum(D: Domain, *xs: Array, equation: str = "", path: Any = None) -> Array:
    """Operands side by side over all letters, multiplied, and summed over the letters that are dropped."""
    left, _, out = equation.partition("->")
    letters = out + "".join(sorted({c for c in left if c.isalpha()} - set(out)))
    total = None
    for term, x in zip(left.split(","), xs, strict=True):
        if len(set(term)) != len(term):
            raise Outside("a diagonal in an einsum")
        x = x.transpose([term.index(c) for c in letters if c in term])
        shape = iter(x.shape)
        x = x.reshape([next(shape) if c in term else 1 for c in letters])
        total = x if total is None else D.mul(total, x)
    return D.sum(total, tuple(range(len(out), len(letters)))) if len(letters) > len(out) else total


def scan(join: str) -> Callable[..., Array]:
    """The operator that joins each element with all before it on an axis, by `add` or `mul` of a domain."""
    def semantics(D: Domain, x: Array, dim: int = 0, dtype: Any = None) -> Array:
        out = x.copy()
        for k in range(1, x.shape[dim]):
            before, at = [(*(slice(None),) * (dim % x.ndim), slice(j, j + 1)) for j in (k - 1, k)]
            out[at] = getattr(D, join)(out[before], x[at])
        return out
    return semantics


def huber(D: Domain, d: Array, delta: float, factor: Fraction) -> Array:
    size = D.branch(d, d, D.neg(d), HALF)
    inner = D.scale(factor * HALF, D.mul(d, d))
    outer = D.scale(factor * Fraction(delta), D.sub(size, D.number(Fraction(delta) * HALF)))
    return D.branch(D.sub(size, D.number(delta)), outer, inner, 0)


def cast(x: Any, to: Any = (), options: Any = ()) -> Any:
    """The same real number in another floating dtype."""
    for value in (*to, *[v for _, v in options]):
        if isinstance(value, torch.dtype) and not value.is_floating_point:
            refuse("a cast to integers")
    return x


def refuse(what: str) -> Any:
    raise Outside(what)
