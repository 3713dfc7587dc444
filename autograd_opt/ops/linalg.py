"""Rules: linear algebra (formulas: Giles 2008; torch's conventions for complex numbers)."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph.thread_state import get_active
from autograd_opt.graph.values import known, value_number, waiting
from autograd_opt.ops.helpers import H
from autograd_opt.ops.products import T
from autograd_opt.ops.table import MULTI, PURE, REDUCES, define

R = PURE | REDUCES


def solve_is_vector(a_shape: Any, b_shape: Any) -> bool:
    return len(b_shape) == 1 or (len(a_shape) - 1 == len(b_shape) and tuple(a_shape[:-1]) == tuple(b_shape))


class Factors:
    """What torch makes of one matrix when it solves with it, or inverts it, before it looks at the right-hand side."""

    __slots__ = ("__weakref__", "lu", "pivots")

    def __init__(self, lu: Any, pivots: Any):
        self.lu, self.pivots = lu, pivots


FACTORS: weakref.WeakValueDictionary[int, Factors] = weakref.WeakValueDictionary()
"""Value number of a matrix -> its factors, while a node that has solved with it keeps them."""
WORTH = 32
"""Rows from which factors cost more than to look for them."""


def number_of(a: Any) -> int:
    """Under which number the factors of `a` can be found again; 0 for none."""
    if a.ndim != 2 or a.shape[0] < WORTH or a.shape[0] != a.shape[1] or not a.is_cpu \
            or private.transforms_active():
        return 0
    return value_number(a)


def solve_kernel(a: Any, b: Any, *, left: bool) -> Any:
    """The solution, and the factors of `a` that the rule solves with again."""
    number = number_of(a)
    factors = FACTORS.get(number) if number else None
    if factors is not None and a.dtype is b.dtype and 0 < b.ndim <= 2 and b.shape[0 if left else -1] == a.shape[0]:
        lu, pivots = factors.lu, factors.pivots
        ans = torch.linalg.lu_solve(lu, pivots, b, left=left) if b.ndim == 2 else \
            torch.linalg.lu_solve(lu, pivots, b.unsqueeze(1)).squeeze(1)
    else:
        ans, lu, pivots, info = private.aten._linalg_solve_ex(a, b, left=left, check_errors=False)
        torch._linalg_check_errors(info, "torch.linalg.solve", is_matrix=a.ndim == 2)
        factors = Factors(lu, pivots)
        if number:
            FACTORS[number] = factors
    return ans, (lu, pivots, True, factors)


def inv_kernel(x: Any) -> Any:
    """The inverse: torch solves for the identity, here with factors that are there already."""
    number = number_of(x)
    factors = FACTORS.get(number) if number else None
    if factors is None:
        return torch.linalg.inv(x), ()
    identity = torch.eye(x.shape[0], dtype=x.dtype, device=x.device)
    return torch.linalg.lu_solve(factors.lu, factors.pivots, identity), ()


def inv_back(g: Any, ans: Any, node: Any) -> Any:
    """A determinant of the same matrix, whose turn is later in this run, reads the inverse as well."""
    if not torch.is_grad_enabled():
        kept = waiting(LOGDET, node.operands[0])
        if kept is not None:
            kept[-1].append((ans, private.version_of(ans)))
    return -(T(ans) @ (g @ T(ans)))


def solve_again(a: Any, g: Any, factors: Any, left: bool = True) -> Any:
    """a^-H g (or g a^-H) with factors of `a`, or of its transpose; recorded runs differentiate through `a`."""
    if torch.is_grad_enabled():
        return torch.linalg.solve(T(a), g, left=left)
    lu, pivots, adjoint = factors[:3]
    return torch.linalg.lu_solve(lu, pivots, g, left=left, adjoint=adjoint)


def solve_back(g: Any, needs: Any, a: Any, ans: Any, a_shape: Any, b_shape: Any, extra: Any, *,
               left: bool) -> list[Any]:
    vector = solve_is_vector(a_shape, b_shape)
    if vector:
        gb = solve_again(a, g.unsqueeze(-1), extra).squeeze(-1)
    else:
        gb = solve_again(a, g, extra, left)
    if not needs[0]:
        return [None, gb]
    if vector:
        return [-gb.unsqueeze(-1) * H(ans).unsqueeze(-2), gb]
    return [-(gb @ T(ans)) if left else -(T(ans) @ gb), gb]


def triangle(g: Any, upper: bool, unitriangular: bool) -> Any:
    k = 1 if unitriangular else 0
    return g.triu(k) if upper else g.tril(-k)


def solve_triangular_back(g: Any, needs: Any, a: Any, ans: Any, *, upper: bool, left: bool,
                          unitriangular: bool) -> list[Any]:
    gb = torch.linalg.solve_triangular(T(a), g, upper=not upper, left=left, unitriangular=unitriangular)
    ga = triangle(-(gb @ T(ans)) if left else -(T(ans) @ gb), upper, unitriangular) if needs[0] else None
    return [ga, gb]


def cholesky_back(g: Any, ans: Any, *, upper: bool) -> Any:
    """L^-H phi(L^H g) L^-1, phi halving the diagonal of the lower triangle; symmetrized."""
    lower, g = (T(ans), T(g)) if upper else (ans, g)
    phi = (T(lower) @ g).tril()
    middle = (phi + T(phi.tril(-1))) / 2
    left = torch.linalg.solve_triangular(T(lower), middle, upper=True)
    return torch.linalg.solve_triangular(lower, left, upper=False, left=False)


SLOGDET: Any = torch.return_types.linalg_slogdet  # type: ignore[attr-defined]
"""The pair that torch gives, by name."""


def slogdet_kernel(a: Any) -> Any:
    """Sign and logarithm; torch factorizes the transpose of a matrix that lies by rows, as LAPACK reads it."""
    sign, log, lu, pivots = private.aten._linalg_slogdet(a)
    return SLOGDET((sign, log)), (lu, pivots, a.is_complex() or not a.is_contiguous())


def sign_kernel(a: Any) -> Any:
    """The same with the sign, which torch saves besides."""
    result, factors = slogdet_kernel(a)
    return result, (*factors, result[0].detach(), None)


def logdet_kernel(a: Any) -> Any:
    """Beside the factors, where the result is NaN, and a place for an inverse that a run comes by."""
    (sign, log), factors = slogdet_kernel(a)
    if a.is_complex():
        return sign.log() + log, (*factors, None, [])
    negative = sign == -1
    return torch.where(negative, math.nan, log), (*factors, negative, [])


def inverse_of(node: Any, left: Any) -> Any:
    """The inverse of a matrix as the program has computed it: a value that is alive, or what this run was `left`.

    A product with it is not what torch rounds: nothing for `optimize="exact"`.
    """
    tape = get_active()
    if tape is None or tape.graph().exact:
        return None
    found = known(INVERSE, node.operands[0])
    if found is None and left and private.version_of(left[-1][0]) == left[-1][1]:
        found = left[-1][0]
    left.clear()
    return found


def det_like(g: Any, a: Any, extra: Any, node: Any) -> Any:
    """g times the conjugate transpose of the inverse, which the program may have computed itself."""
    inverse = None if torch.is_grad_enabled() else inverse_of(node, extra[4] if len(extra) > 4 else [])
    if inverse is not None:
        return g.unsqueeze(-1).unsqueeze(-1) * T(inverse)
    return solve_again(a, torch.diag_embed(g.unsqueeze(-1).expand(a.shape[:-1])), extra)


def logdet_back(g: Any, a: Any, extra: Any, node: Any) -> Any:
    """As torch: none where the determinant is negative, and the result NaN whatever the numbers are."""
    return det_like(g if extra[3] is None else g.masked_fill(extra[3], 0), a, extra, node)


def slogdet_back(g: Any, a: Any, extra: Any, results: Any, node: Any) -> Any:
    sign, log = g.parts
    extra = extra[:3]
    if not a.is_complex():
        return None if log is None else det_like(log, a, extra, node)
    found = results[0]
    total = 0 if log is None else log
    if sign is not None:
        total = total - 1j * (H(sign) * found).imag
    return det_like((total if isinstance(total, torch.Tensor) else torch.zeros_like(found)).to(a.dtype), a, extra, node)


def eigh_kernel(x: Any, *, UPLO: str) -> Any:
    result = torch.linalg.eigh(x, UPLO)
    return result, tuple(t.detach() for t in result)


def eigh_back(g: Any, results: Any, *, UPLO: str) -> Any:
    """V (diag(gL) + skew(V^H gV) / (Lj - Li)) V^H, skew(M) = (M - M^H) / 2.

    The matrix is hermitian, and so is its gradient.
    """
    values, vectors = results
    g_values, g_vectors = g.parts
    middle = torch.diag_embed(g_values).to(vectors.dtype) if g_values is not None else 0
    if g_vectors is not None:
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        gaps = gaps.masked_fill(torch.eye(values.shape[-1], dtype=torch.bool, device=values.device), 1)
        inner = skew(T(vectors) @ g_vectors) / (2 * gaps)
        middle = middle + inner - torch.diag_embed(inner.diagonal(0, -2, -1))
    return vectors @ middle @ T(vectors)


def eig_kernel(x: Any) -> Any:
    result = torch.linalg.eig(x)
    return result, tuple(t.detach() for t in result)


def eig_back(g: Any, results: Any) -> Any:
    """V^-H (diag(gL) + (V^H gV - V^H V Re diag(V^H gV)) / conj(Lj - Li)) V^H (Boeddeker et al. 2017).

    Each eigenvector is normal up to its phase.  A cotangent that asks for the phase is refused as torch refuses it.
    """
    values, vectors = results
    g_values, g_vectors = g.parts
    adjoint = T(vectors)
    if g_vectors is None:
        return torch.linalg.solve(adjoint, g_values.unsqueeze(-1) * adjoint)
    inner = adjoint @ g_vectors
    diagonal = inner.diagonal(0, -2, -1)
    if bool((diagonal.imag.abs() > 1e-2).any()):
        raise RuntimeError(
            "linalg_eig_backward: The eigenvectors in the complex case are specified up to multiplication by "
            "e^{i phi}. The specified loss function depends on this quantity, so it is ill-defined.")
    gaps = H(values.unsqueeze(-2) - values.unsqueeze(-1))
    gaps = gaps.masked_fill(torch.eye(values.shape[-1], dtype=torch.bool, device=values.device), 1)
    middle = (inner - adjoint @ (vectors * diagonal.real.unsqueeze(-2))) / gaps
    if g_values is not None:
        middle = middle + torch.diag_embed(g_values - middle.diagonal(0, -2, -1))
    return torch.linalg.solve(adjoint, middle @ adjoint)


def svd_kernel(x: Any, *, full_matrices: bool, driver: Any) -> Any:
    result = torch.linalg.svd(x, full_matrices, driver=driver)
    return result, tuple(t.detach() for t in result)


def skew(x: Any) -> Any:
    return x - T(x)


def require_no_phase(left: Any, right: Any) -> None:
    """Refuse, as torch does, cotangents that depend on the common phase of a pair of singular vectors."""
    zero = torch.zeros(())
    phase = [zero if part is None else part.diagonal(0, -2, -1).imag for part in (left, right)]
    if not bool(((phase[0] + phase[1]).abs() <= 1e-2 + 1e-2 * phase[1].abs()).all()):
        raise RuntimeError(
            "svd_backward: The singular vectors in the complex case are specified up to multiplication by e^{i phi}. "
            "The specified loss function depends on this phase term, making it ill-defined.")


def svd_back(g: Any, x_shape: Any, results: Any, *, full_matrices: bool, driver: Any) -> Any:
    """The formula of reduced factors (Townsend 2016; the complex diagonal: Wan and Zhang 2019).

    Of full factors only the first columns are determined, and only their cotangents count.
    """
    u, s, vh = results
    gu, gs, gvh = g.parts
    m, n = x_shape[-2:]
    k = s.shape[-1]
    if full_matrices and m != n:
        u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
        gu, gvh = None if gu is None else gu.narrow(-1, 0, k), None if gvh is None else gvh.narrow(-2, 0, k)
    if gu is None and gvh is None:
        return (u * gs.to(u.dtype).unsqueeze(-2)) @ vh
    left = skew(T(u) @ gu) if gu is not None else None
    right = skew(vh @ T(gvh)) if gvh is not None else None
    if u.is_complex():
        require_no_phase(left, right)
    squares, diagonal = s * s, torch.eye(k, dtype=torch.bool, device=u.device)
    gaps = (squares.unsqueeze(-2) - squares.unsqueeze(-1)).masked_fill(diagonal, 1)
    rows, columns = s.unsqueeze(-1), s.unsqueeze(-2)
    if left is None or right is None:
        middle = left / gaps * columns if left is not None else rows * (right / gaps)
    else:
        middle = (left * columns + rows * right) / gaps
    if gs is not None:
        middle = middle + torch.diag_embed(gs)
    if u.is_complex() and left is not None and right is not None:
        middle = middle + torch.diag_embed(left.diagonal(0, -2, -1) / (2 * s))
    out = u @ middle @ vh
    if gu is not None and m > n:
        rest = gu / columns
        out = out + (rest - u @ (T(u) @ rest)) @ vh
    if gvh is not None and n > m:
        rest = gvh / rows
        out = out + u @ (rest - (rest @ T(vh)) @ vh)
    return out


define("linalg_cross", "x, y, *, dim=-1", R, "torch.linalg.cross",
       x=lambda g, y, *, dim: torch.linalg.cross(H(y), g, dim=dim),
       y=lambda g, x, *, dim: torch.linalg.cross(g, H(x), dim=dim))
define("linalg_eigh", "x, UPLO='L'", MULTI | PURE, "torch.linalg.eigh", kernel=eigh_kernel, x=eigh_back)
define("linalg_eig", "x", MULTI | PURE | REDUCES, "torch.linalg.eig", kernel=eig_kernel, x=eig_back)
define("linalg_svd", "x, full_matrices=True, *, driver=None", MULTI | PURE, "torch.linalg.svd", kernel=svd_kernel,
       x=svd_back)
INVERSE = define("linalg_inv", "x", PURE, "torch.linalg.inv torch.inverse T.inverse", kernel=inv_kernel, x=inv_back)
define("linalg_solve", "a, b, *, left=True", R, "torch.linalg.solve", kernel=solve_kernel, joint=solve_back)
define("linalg_solve_triangular", "a, b, *, upper=False, left=True, unitriangular=False", R,
       "torch.linalg.solve_triangular",
       joint=solve_triangular_back)
define("linalg_cholesky", "x, *, upper=False", PURE, "torch.linalg.cholesky", x=cholesky_back)
define("cholesky", "x, upper=False", PURE, "torch.cholesky T.cholesky", x=cholesky_back)
define("linalg_slogdet", "a", MULTI | PURE, "torch.linalg.slogdet torch.slogdet T.slogdet", kernel=sign_kernel,
       a=slogdet_back)
LOGDET = define("logdet", "a", PURE, "torch.logdet T.logdet", kernel=logdet_kernel, a=logdet_back)
