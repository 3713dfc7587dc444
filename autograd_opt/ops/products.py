"""Rules: matrix products."""

from __future__ import annotations

from typing import Any

from autograd_opt.ops.helpers import H, times, view_of
from autograd_opt.ops.table import FOLDS, PURE, REDUCES, define

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


def forms(g: Any, weight: Any) -> Any:
    """The bilinear forms of `weight`, summed with the entries of `g` as factors: a matrix for each row of `g`."""
    return (g @ H(weight).flatten(1)).unflatten(-1, weight.shape[1:])


def bilinear_weight(g: Any, x: Any, y: Any, weight_shape: Any) -> Any:
    g, x, y = (t.reshape(-1, t.shape[-1]) for t in (g, H(x), H(y)))
    pairs = x.unsqueeze(-1) * y.unsqueeze(-2)
    return (g.mT @ pairs.flatten(1)).unflatten(1, weight_shape[1:])


def linear_of_rows(x: Any, weight: Any, bias: Any) -> Any:
    """A linear layer as torch computes it of rows that it has copied."""
    out = x.matmul(weight.t())
    return out if bias is None else out.add_(bias)


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
       x=lambda g, y, weight: (forms(g, weight) @ H(y).unsqueeze(-1)).squeeze(-1),
       y=lambda g, x, weight: (forms(g, weight).mT @ H(x).unsqueeze(-1)).squeeze(-1),
       weight=bilinear_weight, bias=lambda g: g)
define("linear", "x, weight, bias=?", R | FOLDS, "torch._C._nn.linear",
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
