"""Rules: matrix products."""

from __future__ import annotations

import functools
import string
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.helpers import H, times, view_of
from autograd_opt.ops.table import FOLDS, OTHERS, PURE, REDUCES, VARIADIC, define

R = PURE | REDUCES
einsum: Any = private.VariableFunctions.einsum
"""What `torch.einsum` calls, which looks for an order of its operands first: for two there is none."""


def T(x: Any) -> Any:
    """Conjugate transpose of the last two axes."""
    return H(x).mT


def first(g: Any, y: Any, turned: bool) -> Any:
    """The cotangent of `x` in `x @ y`, two matrices; as torch's, a `turned` one has the strides of a transpose."""
    return (H(y) @ g.mT).mT if turned else g @ T(y)


def second(g: Any, x: Any, turned: bool) -> Any:
    """The cotangent of `y` in `x @ y`."""
    return (g.mT @ H(x)).mT if turned else T(x) @ g


def matmul_x(g: Any, y: Any, x_shape: Any, y_shape: Any, x_turned: bool) -> Any:
    if len(y_shape) == 1:
        return g * H(y) if len(x_shape) == 1 else g.unsqueeze(-1) * H(y)
    if len(x_shape) == 1:
        return (H(y) @ g.unsqueeze(-1)).squeeze(-1)
    return first(g, y, x_turned and len(y_shape) == 2)


def matmul_y(g: Any, x: Any, x_shape: Any, y_shape: Any, y_turned: bool) -> Any:
    if len(x_shape) == 1:
        return g * H(x) if len(y_shape) == 1 else H(x).unsqueeze(-1) * g.unsqueeze(-2)
    if len(y_shape) == 1:
        return T(x) @ g if len(x_shape) == 2 else T(x.flatten(0, -2)) @ g.flatten()
    if len(y_shape) == 2 and len(x_shape) > 2:
        return second(g.flatten(0, -2), x.flatten(0, -2), y_turned)
    return second(g, x, y_turned and len(x_shape) == 2)


def linear_x(g: Any, weight: Any, weight_shape: Any, x_turned: bool) -> Any:
    if len(weight_shape) == 1:
        return g.unsqueeze(-1) * H(weight)
    if x_turned:
        return (T(weight) @ g.mT).mT
    return g @ H(weight) if g.ndim > 1 else view_of(g @ H(weight))


def linear_weight(g: Any, x: Any, x_shape: Any, weight_shape: Any, weight_turned: bool) -> Any:
    if len(weight_shape) == 1:
        return g * H(x) if len(x_shape) == 1 else T(x.flatten(0, -2)) @ g.flatten()
    if len(x_shape) == 1:
        return g.unsqueeze(-1) * H(x)
    g, x = (g, x) if len(x_shape) == 2 else (g.flatten(0, -2), x.flatten(0, -2))
    return (T(x) @ g).mT if weight_turned else g.mT @ H(x)


@functools.lru_cache(1024)
def spelled_out(equation: str, dims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of the operands, of these numbers of axes, and of the result, those of an ellipsis among them.

    Only plain equations have a rule: no letter twice in an operand.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    if "." in equation:
        counts = {n - len(term) + 3 for term, n in zip(left.split(","), dims, strict=False) if "..." in term}
        free = [c for c in string.ascii_letters if c not in equation]
        if len(counts) != 1 or not 0 <= min(counts) <= len(free) or equation.replace("...", "").count("."):
            raise TypeError("no rule for this equation")
        axes = "".join(free[:counts.pop()])
        if not arrow:
            out, arrow = "..." + "".join(sorted(c for c in set(left) - set(".,") if left.count(c) == 1)), "->"
        left, out = left.replace("...", axes), out.replace("...", axes)
    terms = tuple(left.split(","))
    if len(terms) != len(dims) or any(len(set(term)) != len(term) or len(term) != n
                                      for term, n in zip(terms, dims, strict=True)):
        raise TypeError("no rule for this equation")
    return terms, out if arrow else "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))


def bind_einsum(equation: str, operands: Any, path: Any = None) -> Any:
    """Operands of one type; equal letters stand for equal sizes, also those of the axes of an ellipsis."""
    if any(t.dtype != operands[0].dtype for t in operands):
        raise TypeError("no rule for operands of several types")
    shapes = [t.shape for t in operands]
    terms, out = spelled_out(equation, tuple(map(len, shapes)))
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, n in zip(term, shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise TypeError("no rule for broadcasting")
    return tuple(operands), {"equation": f"{','.join(terms)}->{out}", "path": path}


def einsum_back(g: Any, needs: Any, values: Any, shapes: Any, *, equation: str, path: Any) -> list[Any]:
    """The cotangents of the operands, handed down the pairs of operands that `path` contracts, last pair first.

    With n operands these are 3 n contractions of two; an einsum of `g` and all others for each operand takes n times n.
    """
    terms, pairs = contracted(equation, tuple(path) if path else ())
    needed = [*needs]
    for a, b in pairs:
        needed.append(needed[a] or needed[b])
    products: dict[int, Any] = {}

    def product(number: int) -> Any:
        if number < len(values):
            return H(values[number])
        if number not in products:
            a, b = pairs[number - len(values)]
            products[number] = einsum(f"{terms[a]},{terms[b]}->{terms[number]}", (product(a), product(b)))
        return products[number]

    cotangents: list[Any] = [None] * len(terms)
    cotangents[-1] = g
    for number in range(len(terms) - 1, len(values) - 1, -1):
        for one, other in (pairs[number - len(values)], pairs[number - len(values)][::-1]):
            if needed[one]:
                cotangents[one] = cotangent(cotangents[number], terms[number], terms[one], terms[other], product(other))
    if not pairs and needed[0]:
        cotangents[0] = cotangent(g, equation.partition("->")[2], terms[0], "", None)
    return [None if c is None else c.expand(shape) if c.shape != shape else c
            for c, shape in zip(cotangents, shapes, strict=False)]


@functools.lru_cache(1024)
def contracted(equation: str, path: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The letters of the operands and of what is contracted in turn, and the pairs of numbers of what makes each."""
    inputs, _, out = equation.partition("->")
    terms = inputs.split(",")
    left, pairs = list(range(len(terms))), []
    order = list(path) or [0, 1] * (len(terms) - 1)
    while len(left) > 1:
        i, j = sorted((order.pop(0), order.pop(0)))
        b, a = left.pop(j), left.pop(i)
        kept = set(out).union(*(terms[k] for k in left))
        terms.append("".join(dict.fromkeys(c for c in terms[a] + terms[b] if c in kept)) if left else out)
        left.append(len(terms) - 1)
        pairs.append((a, b))
    return tuple(terms), tuple(pairs)


@functools.lru_cache(1024)
def factor(letters: str, term: str, rest: str | None) -> tuple[str, tuple[int, ...]]:
    """The equation of a cotangent, and the axes that it lacks: those of letters that were summed alone."""
    seen = "".join(c for c in term if c in letters or c in (rest or ""))
    lacking = tuple(i for i, c in enumerate(term) if c not in seen)
    return f"{letters}->{seen}" if rest is None else f"{letters},{rest}->{seen}", lacking


def cotangent(g: Any, letters: str, term: str, rest: str, other: Any) -> Any:
    """The cotangent of one of two factors, from that of their product; a letter that was summed alone has size 1."""
    equation, lacking = factor(letters, term, None if other is None else rest)
    part = einsum(equation, (g,) if other is None else (g, other))
    for i in lacking:
        part = part.unsqueeze(i)
    return part


# ----- two operands -----
define("matmul", "x, y", R | FOLDS, "torch.matmul T.matmul T.__matmul__ torch.linalg.matmul", x=matmul_x, y=matmul_y)
define("mm", "x, y", PURE, "torch.mm T.mm", x=lambda g, y, x_turned: first(g, y, x_turned),
       y=lambda g, x, y_turned: second(g, x, y_turned))
define("bmm", "x, y", PURE, "torch.bmm T.bmm", x=lambda g, y: g.bmm(T(y)), y=lambda g, x: T(x).bmm(g))
define("mv", "x, y", PURE, "torch.mv T.mv", x=lambda g, y: g.unsqueeze(-1) * H(y), y=lambda g, x: T(x) @ g)
define("dot", "x, y", PURE, "torch.dot T.dot", x=lambda g, y: g * H(y), y=lambda g, x: g * H(x))
define("vdot", "x, y", PURE, "torch.vdot T.vdot", x=lambda g, y: H(g) * y, y=lambda g, x: g * x)
define("outer", "x, y", PURE, "torch.outer torch.ger T.outer T.ger", x=lambda g, y: g @ H(y.to(g.dtype)),
       y=lambda g, x: g.mT @ H(x.to(g.dtype)))
define("bilinear", "x, y, weight, bias=?", R, "torch.bilinear",
       x=lambda g, y, weight: torch.einsum("...o,oij,...j->...i", g, H(weight), H(y)),
       y=lambda g, x, weight: torch.einsum("...o,oij,...i->...j", g, H(weight), H(x)),
       weight=lambda g, x, y: torch.einsum(
           "no,ni,nj->oij", *(t.reshape(-1, t.shape[-1]) for t in (g, H(x), H(y)))), bias=lambda g: g)
define("linear", "x, weight, bias=?", R, "torch._C._nn.linear",
       x=linear_x, weight=linear_weight, bias=lambda g: g)
# ----- with a summand -----
define("addmm", "x, y, z, *, beta=1, alpha=1", R, "torch.addmm T.addmm", inplace="T.addmm_",
       x=lambda g, *, beta: times(g, beta), y=lambda g, z, y_turned, *, alpha: times(first(g, z, y_turned), alpha),
       z=lambda g, y, z_turned, *, alpha: times(second(g, y, z_turned), alpha))
define("baddbmm", "x, y, z, *, beta=1, alpha=1", R, "torch.baddbmm T.baddbmm", inplace="T.baddbmm_",
       x=lambda g, *, beta: times(g, beta), y=lambda g, z, *, alpha: times(g.bmm(T(z)), alpha),
       z=lambda g, y, *, alpha: times(T(y).bmm(g), alpha))
define("addbmm", "x, y, z, *, beta=1, alpha=1", R, "torch.addbmm T.addbmm", inplace="T.addbmm_",
       x=lambda g, *, beta: times(g, beta), y=lambda g, z, *, alpha: times(g @ T(z), alpha),
       z=lambda g, y, *, alpha: times(T(y) @ g, alpha))
define("addmv", "x, y, z, *, beta=1, alpha=1", R, "torch.addmv T.addmv", inplace="T.addmv_",
       x=lambda g, *, beta: times(g, beta), y=lambda g, z, *, alpha: times(g.unsqueeze(-1) * H(z), alpha),
       z=lambda g, y, *, alpha: times(T(y) @ g, alpha))
define("addr", "x, y, z, *, beta=1, alpha=1", R, "torch.addr T.addr", inplace="T.addr_",
       x=lambda g, *, beta: times(g, beta), y=lambda g, z, *, alpha: times(g @ H(z), alpha),
       z=lambda g, y, *, alpha: times(g.mT @ H(y), alpha))
define("einsum", "*tensors, equation='', path=None", VARIADIC | PURE | OTHERS, "torch._VF.einsum", bind=bind_einsum,
       joint=einsum_back,
       forward=lambda *tensors, equation, path: torch.einsum(equation, *tensors))
