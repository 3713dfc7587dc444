"""Rules: matrix products."""

from __future__ import annotations

import string
from typing import Any

import torch

from autograd_opt.ops.helpers import H, times, view_of
from autograd_opt.ops.table import OTHERS, PURE, REDUCES, VARIADIC, define

R = PURE | REDUCES


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


def spelled_out(equation: str, operands: Any) -> tuple[str, str, str]:
    """The equation in three parts, the axes of its ellipses named by letters that it does not have."""
    left, arrow, out = equation.partition("->")
    if "." not in equation:
        return left, arrow, out
    counts = {t.ndim - len(term) + 3 for term, t in zip(left.split(","), operands, strict=False) if "..." in term}
    free = [c for c in string.ascii_letters if c not in equation]
    if len(counts) != 1 or not 0 <= min(counts) <= len(free) or equation.replace("...", "").count("."):
        raise TypeError("no rule for this equation")
    axes = "".join(free[:counts.pop()])
    if not arrow:
        out = "..." + "".join(sorted(c for c in set(left) - set(".,") if left.count(c) == 1))
    return left.replace("...", axes), "->", out.replace("...", axes)


def bind_einsum(equation: str, operands: Any, path: Any = None) -> Any:
    """Only plain equations have a rule: no letter twice in an operand, equal sizes, also of the axes of an ellipsis."""
    left, arrow, out = spelled_out(equation.replace(" ", ""), operands)
    terms = left.split(",")
    sizes: dict[str, int] = {}
    if len(terms) != len(operands):
        raise TypeError("no rule for this equation")
    for term, t in zip(terms, operands, strict=True):
        if len(set(term)) != len(term) or len(term) != t.ndim:
            raise TypeError("no rule for this equation")
        for letter, n in zip(term, t.shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise TypeError("no rule for broadcasting")
    if not arrow:
        out = "".join(sorted(c for c in sizes if left.count(c) == 1))
    return tuple(operands), {"equation": f"{left}->{out}", "path": path}


def einsum_back(g: Any, needs: Any, values: Any, shapes: Any, *, equation: str, path: Any) -> list[Any]:
    """The cotangents of the operands, handed down the pairs of operands that `path` contracts, last pair first.

    With n operands these are 3 n contractions of two; an einsum of `g` and all others for each operand takes n times n.
    """
    left, _, out = equation.partition("->")
    terms = left.split(",")
    pairs = contracted(terms, out, path)
    needed = [*needs]
    for a, b in pairs:
        needed.append(needed[a] or needed[b])
    products: dict[int, Any] = {}

    def product(number: int) -> Any:
        if number < len(values):
            return H(values[number])
        if number not in products:
            a, b = pairs[number - len(values)]
            products[number] = torch.einsum(f"{terms[a]},{terms[b]}->{terms[number]}", product(a), product(b))
        return products[number]

    cotangents: list[Any] = [None] * len(terms)
    cotangents[-1] = g
    for number in range(len(terms) - 1, len(values) - 1, -1):
        for one, other in (pairs[number - len(values)], pairs[number - len(values)][::-1]):
            if needed[one]:
                cotangents[one] = cotangent(cotangents[number], terms[number], terms[one], terms[other], product(other))
    if not pairs and needed[0]:
        cotangents[0] = cotangent(g, out, terms[0], "", None)
    return [None if c is None else c.expand(shape) if c.shape != shape else c
            for c, shape in zip(cotangents, shapes, strict=False)]


def contracted(terms: list[str], out: str, path: Any) -> list[tuple[int, int]]:
    """The pairs of numbers of what is contracted in turn; the letters of what each makes are appended to `terms`."""
    left, pairs = list(range(len(terms))), []
    order = list(path) if path else [0, 1] * (len(terms) - 1)
    while len(left) > 1:
        i, j = sorted((order.pop(0), order.pop(0)))
        b, a = left.pop(j), left.pop(i)
        kept = set(out).union(*(terms[k] for k in left))
        terms.append("".join(dict.fromkeys(c for c in terms[a] + terms[b] if c in kept)) if left else out)
        left.append(len(terms) - 1)
        pairs.append((a, b))
    return pairs


def cotangent(g: Any, letters: str, term: str, rest: str, other: Any) -> Any:
    """The cotangent of one of two factors, from that of their product; a letter that was summed alone has size 1."""
    seen = "".join(c for c in term if c in letters or c in rest)
    part = torch.einsum(f"{letters}->{seen}", g) if other is None else \
        torch.einsum(f"{letters},{rest}->{seen}", g, other)
    for i, c in enumerate(term):
        if c not in seen:
            part = part.unsqueeze(i)
    return part


# ----- two operands -----
define("matmul", "x, y", R, "torch.matmul T.matmul T.__matmul__ torch.linalg.matmul", x=matmul_x, y=matmul_y)
define("mm", "x, y", PURE, "torch.mm T.mm", x=lambda g, y, x_turned: first(g, y, x_turned),
       y=lambda g, x, y_turned: second(g, x, y_turned))
define("bmm", "x, y", PURE, "torch.bmm T.bmm", x=lambda g, y: g.bmm(T(y)), y=lambda g, x: T(x).bmm(g))
define("mv", "x, y", PURE, "torch.mv T.mv", x=lambda g, y: g.unsqueeze(-1) * H(y), y=lambda g, x: T(x) @ g)
define("dot", "x, y", PURE, "torch.dot T.dot", x=lambda g, y: g * H(y), y=lambda g, x: g * H(x))
define("vdot", "x, y", PURE, "torch.vdot T.vdot", x=lambda g, y: H(g) * y, y=lambda g, x: g * x)
define("outer", "x, y", PURE, "torch.outer torch.ger T.outer T.ger", x=lambda g, y: g @ H(y),
       y=lambda g, x: g.mT @ H(x))
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
