# ruff: noqa: B008  (a default argument binds the loop variable of a row)
"""One row an operator form: name, function, inputs by domain.

A domain is a shape with an interval: `N` any sign and away from 0, `P` positive, `U` inside
(-1, 1), `G` above 1, `C` complex.  Everything else in a row is passed as it is.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

A = torch.ops.aten


@dataclass(frozen=True)
class Domain:
    """A random leaf of `shape` with elements in [low, high], of either sign where `signed`."""

    shape: tuple[int, ...]
    low: float
    high: float
    signed: bool = False
    dtype: torch.dtype = torch.float64

    def make(self, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        t = self.low + (self.high - self.low) * torch.rand(self.shape, generator=generator, dtype=self.dtype)
        if self.signed:
            t = torch.where(torch.rand(self.shape, generator=generator) < 0.5, -t, t)
        return t.requires_grad_()


def N(*shape: int) -> Domain:
    return Domain(shape, 0.2, 1.7, True)


def P(*shape: int) -> Domain:
    return Domain(shape, 0.3, 1.9)


def U(*shape: int) -> Domain:
    return Domain(shape, 0.1, 0.9, True)


def I01(*shape: int) -> Domain:
    return Domain(shape, 0.15, 0.85)


def G(*shape: int) -> Domain:
    return Domain(shape, 1.2, 2.9)


def C(*shape: int) -> Domain:
    return Domain(shape, 0.4, 1.5, dtype=torch.complex128)


@dataclass(frozen=True)
class Row:
    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    order: int = 2

    def make(self) -> list[Any]:
        seed = zlib.crc32(self.name.partition("-")[2].encode())  # a row added above changes nothing here
        return [d.make(seed + k) if isinstance(d, Domain) else d for k, d in enumerate(self.inputs)]


ROWS: list[Row] = []


def row(name: str, function: Callable[..., Any], *inputs: Any, order: int = 2) -> None:
    ROWS.append(Row(f"{len(ROWS)}-{name}", function, inputs, order))


def same(names: str, *inputs: Any, of: Any = torch, order: int = 2) -> None:
    """Rows for functions that take the inputs and nothing else."""
    for name in names.split():
        row(name, getattr(of, name), *inputs, order=order)


mask = torch.tensor([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
index = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
few = torch.tensor([2, 0, 2])
target = torch.tensor([1, 0, 3])
signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)

# ----- arithmetic -----
same("add sub mul div rsub fmod remainder hypot atan2 copysign maximum minimum fmax fmin", N(3, 4), N(4))
same("add sub mul div", C(3, 4), C(4))
same("mul div", C(3), N(3))
row("add", lambda x, y: torch.add(x, y, alpha=2), N(3, 4), N(3, 1))
row("sub", lambda x, y: torch.sub(x, y, alpha=3), N(3, 4), N(3, 1))
row("rsub", lambda x, y: torch.rsub(x, y, alpha=0.5), N(3), N(3))
row("clone", lambda x: x.clone() * x, N(3, 4))
row("alias", lambda x: torch.ops.aten.alias(x) * x, N(3, 4))
row("contiguous", lambda x: x.t().contiguous() * 2, N(3, 4))
row("cast", lambda x: x.to(torch.float32).to(torch.float64) * 2, N(3, 4), order=1)
row("float", lambda x: x.float().double() * 2, N(3, 4), order=1)
row("double", lambda x: x.float().double() * 2, N(3, 4), order=1)
row("half", lambda x: x.half().double() * 2, N(3, 4), order=1)
row("bfloat16", lambda x: x.bfloat16().double() * 2, N(3, 4), order=1)
row("numbers", lambda x: 2 - x + x / 3 - 4 / x + x * 2 % 0.7, N(3, 4))
row("complex numbers", lambda x: (2j - x) * (1 + 1j) / x, C(3))
row("real times complex", lambda x: x * 1j, N(3))
row("div rounded", lambda x, y: torch.div(x, y, rounding_mode="floor"), N(3), N(3))
same("neg reciprocal square sqrt rsqrt abs frac floor ceil trunc sign round nan_to_num positive deg2rad rad2deg",
    P(3, 4))
same("neg reciprocal square sqrt rsqrt abs sgn exp log sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh "
     "sigmoid log2 log10 log1p expm1 exp2", C(5))
same("addcmul addcdiv", N(3, 4), N(4), P(3, 1))
row("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), C(3), C(3), C(3))
row("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=2), C(3), C(3), C(3))
row("lerp", lambda x, y: torch.lerp(x, y, 0.3), N(3, 4), N(4))
same("lerp", N(3, 4), N(4), I01(3, 1))
same("pow float_power", P(3, 4), N(4))
for exponent in (0, 1, 2, 3, -1, 0.5, 2.5):
    row(f"pow {exponent}", lambda x, e=exponent: x ** e, P(3))
row("pow at 0", lambda x: x ** 2 + x ** 3, torch.tensor([0.0, -2.0], dtype=torch.float64, requires_grad=True))
row("pow at 0", lambda x, y: x ** y, torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True), P(2), order=1)
row("rpow", lambda x: 2 ** x + 0.0 ** x, P(3))
row("rpow negative", lambda x: (-2.0) ** x, torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True), order=1)
row("complex pow", lambda x, y: x ** y + x ** 2 + 2j ** y, C(3), C(3))
row("float_power", lambda x: torch.float_power(x, 3), N(3))
row("ldexp", lambda x, y: torch.ldexp(x, y), N(3), N(3))
row("round", lambda x: torch.round(x, decimals=1), N(3))
row("ties", lambda x: torch.maximum(x, x * 1) + torch.minimum(x * 1, x) + torch.fmax(x, x) + torch.fmin(x, x), N(3))
for bounds in ((-0.5, 0.5), (None, 0.5), (-0.5, None)):
    row(f"clamp {bounds}", lambda x, b=bounds: torch.clamp(x, *b), N(3, 4))
row("clamp tensors", lambda x, a, b: torch.clamp(x, a, b), N(3, 4), U(4), U(3, 1))
row("clamp tensors", lambda x, a: torch.clamp(x, min=a) + torch.clamp(x, max=a), N(3, 4), U(4))
row("clamp_min clamp_max", lambda x, a: torch.clamp_min(x, a) * torch.clamp_max(x, a) + x.clamp_min(0.1), N(3), U(3))
row("where", lambda x, y: torch.where(mask, x, y), N(3, 4), N(4))
row("where number", lambda x: torch.where(mask, x, 0.0) + torch.where(mask, 1.0, x), N(3, 4))
row("where method", lambda x, y: x.where(mask, y), N(3, 4), N(4))
row("masked_fill", lambda x, v: x.masked_fill(mask, v) + x.masked_fill(mask, 2.0), N(3, 4), N())
row("fill", lambda x, v: torch.fill(x, v) * x, N(3), N())
# ----- elementary and special functions -----
same("exp exp2 expm1 log log2 log10 log1p sin cos tan atan sinh cosh asinh tanh sigmoid erf erfc lgamma digamma "
     "sinc i0", P(3, 4))
same("asin acos atanh erfinv", U(3, 4))
same("acosh", G(3))
same("logaddexp logaddexp2 xlogy", P(3, 4), P(4))
same("logaddexp", C(3), C(3))
row("xlog1py", torch.special.xlog1py, P(3), P(3))
row("xlogy at 0", lambda y: torch.xlogy(0.0, y) + torch.xlogy(2.0, y), P(3))
row("logit", torch.logit, I01(3))
row("logit", lambda x: torch.logit(x, 0.2), I01(3))
same("i0e i1 i1e ndtr ndtri log_ndtr erfcx entr", I01(4), of=torch.special)
row("polygamma", lambda x: torch.polygamma(1, x) + x.polygamma(2), P(3))
row("mvlgamma", lambda x: torch.mvlgamma(x, 2), G(3))
# ----- activations -----
same("relu relu6 leaky_relu elu celu selu gelu silu mish softplus softsign tanhshrink softshrink hardshrink hardtanh "
     "hardswish logsigmoid sigmoid tanh", N(3, 4), of=F)
row("hardsigmoid", F.hardsigmoid, N(3, 4), order=1)
row("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), N(3))
row("elu", lambda x: F.elu(x, 0.7), N(3))
row("celu", lambda x: F.celu(x, 0.7), N(3))
row("leaky_relu in place", lambda x: F.leaky_relu(x * 1, 0.2, inplace=True), N(3, 4))
row("elu in place", lambda x: F.elu(x * 1, 0.7, inplace=True), N(3, 4))
row("celu in place", lambda x: F.celu(x * 1, 0.7, inplace=True), N(3, 4))
row("selu in place", lambda x: F.selu(x * 1, inplace=True), N(3, 4))
row("softplus", lambda x: F.softplus(x, 2.0, 1.0), N(5))
row("threshold", lambda x: F.threshold(x, 0.1, 20.0), N(5))
row("hardtanh", lambda x: F.hardtanh(x, -0.3, 0.8), N(5))
row("prelu", F.prelu, N(2, 3, 4), N(3))
row("prelu", F.prelu, N(5), N(1))
row("glu", lambda x: F.glu(x, 1), N(3, 4))
row("elu_backward of the result", lambda g, x: A.elu_backward(g, 1.0, 1.0, 1.0, True, x), N(3), U(3))
row("leaky_relu_backward", lambda g, x: A.leaky_relu_backward(g, x, 0.1, False), N(3), N(3))
row("threshold_backward", lambda g, x: A.threshold_backward(g, x, 0.1), N(3), N(3))
for name in ("softmax", "log_softmax"):
    row(name, lambda x, f=getattr(torch, name): f(x, 1), N(3, 4))
    row(name, lambda x, f=getattr(torch, name): f(x, 0, torch.float64), Domain((3,), 0.1, 1, dtype=torch.float32))
    row(f"{name}_backward", lambda g, y, f=getattr(A, f"_{name}_backward_data"): f(g, y, 1, torch.float64), N(3, 4),
        N(3, 4))
row("safe_softmax", lambda x: torch._safe_softmax(x, 1), N(3, 4))
# ----- reductions -----
for name in ("sum", "mean", "nansum", "amax", "amin", "logsumexp", "var", "std", "prod", "median", "nanmedian", "max",
    "min",
             "cummax", "cummin", "cumsum", "cumprod", "logcumsumexp", "mode"):
    row(f"{name} dim", lambda x, f=getattr(torch, name): f(x, 1), N(3, 4))
for name in ("sum", "mean", "nansum", "amax", "amin", "var", "std", "prod", "median", "nanmedian", "max", "min"):
    row(f"{name} all", lambda x, f=getattr(torch, name): f(x), N(3, 4))
for name in ("sum", "mean", "amax", "amin", "logsumexp", "var", "std"):
    row(f"{name} dims", lambda x, f=getattr(torch, name): f(x, dim=(0, 2), keepdim=True), N(3, 2, 4))
for name in ("sum", "mean", "prod", "var", "std", "cumprod"):
    row(f"complex {name}", lambda x, f=getattr(torch, name): f(x, 0), C(3, 2))
for name in ("max", "min", "median", "nanmedian", "mode"):
    row(f"{name} keepdim", lambda x, f=getattr(torch, name): f(x, 0, True), N(3, 4))
row("kthvalue", lambda x: torch.kthvalue(x, 2, 1), N(3, 4))
row("topk", lambda x: torch.topk(x, 2, 1), N(3, 4))
row("sort", lambda x: (*torch.sort(x, 1), *torch.sort(x, 0, True), *torch.sort(x, stable=True, dim=0)), N(3, 4))
row("ties", lambda x: (x.amax(), x.max(), x.amin(0)),
    torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True))
row("prod of one number", lambda x: x.prod() * 2, N())
row("prod with zeros", lambda x: (x.prod(1), x[0].prod()),
    torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True))
row("cumprod with zeros", lambda x: (x.cumprod(1), x[0].cumprod(0)),
    torch.tensor([[0.0, 2.0, 3.0], [0.5, 0.0, 0.0], [2.0, 0.0, 3.0]], dtype=torch.float64, requires_grad=True))
row("var_mean", lambda x: torch.var_mean(x, 1, correction=0), N(3, 4))
row("std_mean", lambda x: torch.std_mean(x, (0, 1)), N(3, 4))
row("sum_to_size", lambda x: x.sum_to_size(3, 1), N(3, 4))
for p in (0, 0.5, 1, 1.5, 2, 3, float("inf"), float("-inf")):
    row(f"vector_norm {p}", lambda x, p=p: torch.linalg.vector_norm(x, p, 1), N(3, 4))
row("complex norm", lambda x: torch.linalg.vector_norm(x) + torch.linalg.vector_norm(x, 3), C(4))
row("norm at 0", lambda x: x.norm(), torch.zeros(3, dtype=torch.float64, requires_grad=True), order=1)
row("dist", torch.dist, N(3, 4), N(4))
row("dist", lambda x, y: torch.dist(x, y, 3), N(), N(4))
row("nanmean", lambda x: torch.nanmean(x, 0), N(3, 4))
# ----- products -----
for left, right in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
                    ((3,), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)),
                    ((0, 3), (3, 4))):
    row(f"matmul {left} {right}", torch.matmul, N(*left), N(*right))
row("complex matmul", torch.matmul, C(2, 2, 3), C(3, 4))
row("mm", torch.mm, C(2, 3), C(3, 4))
row("bmm", torch.bmm, C(2, 2, 3), C(2, 3, 4))
row("mv", torch.mv, C(2, 3), C(3))
same("dot vdot outer inner", C(3), C(3))
row("linear", F.linear, N(2, 3), N(4, 3), N(4))
row("linear", F.linear, N(5, 2, 3), N(4, 3))
row("linear", F.linear, N(3), N(4, 3), N(4))
row("linear", F.linear, N(2, 3), N(3))
row("addmm", lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2), C(4), C(2, 3), C(3, 4))
row("baddbmm", lambda x, y, z: torch.baddbmm(x, y, z, beta=0.5, alpha=2), N(4), N(2, 2, 3), N(2, 3, 4))
row("addbmm", lambda x, y, z: torch.addbmm(x, y, z, beta=0.5, alpha=2), N(2, 4), N(2, 2, 3), N(2, 3, 4))
row("addmv", lambda x, y, z: torch.addmv(x, y, z, beta=0.5, alpha=2), N(2), N(2, 3), N(3))
row("addr", lambda x, y, z: torch.addr(x, y, z, beta=0.5, alpha=2), N(2, 3), N(2), N(3))
for equation, shapes in (("ij,jk->ik", ((2, 3), (3, 4))), ("bij,bjk,k->bi", ((2, 2, 3), (2, 3, 4), (4,))),
    ("ij->j", ((2, 3),)),
                         ("i,j", ((2,), (3,))), ("ij,kl->k", ((2, 3), (4, 2)))):
    row(f"einsum {equation}", lambda *xs, e=equation: torch.einsum(e, *xs), *(N(*s) for s in shapes))
row("complex einsum", lambda x, y: torch.einsum("ij,jk->ik", x, y), C(2, 3), C(3, 2))
row("tensordot", lambda x, y: torch.tensordot(x, y, ([1, 0], [0, 2])), N(2, 3, 4), N(3, 5, 2))
row("kron", torch.kron, N(2, 3), N(2))
row("cross", lambda x, y: torch.linalg.cross(x, y), N(4, 3), N(1, 3))
# ----- views, joins -----
for name, view in {
    "view": lambda x: x.view(4, 3), "reshape": lambda x: x.t().reshape(-1), "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(), "unflatten": lambda x: torch.unflatten(x, 1, (2, 2)),
    "view_as": lambda x: x.view_as(x.detach()),
    "reshape_as": lambda x: x.reshape_as(x.detach().t()), "permute": lambda x: x.permute(1, 0),
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x.t(), "T": lambda x: x.T, "mT": lambda x: x.mT, "H": lambda x: x.H, "mH": lambda x: x.mH,
    "movedim": lambda x: x.movedim(0, 1), "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "squeeze all": lambda x: x.unsqueeze(0).unsqueeze(2).squeeze(), "expand": lambda x: x.expand(2, 3, 4),
    "broadcast_to": lambda x: x.broadcast_to(2, 3, 4), "expand_as": lambda x: x.expand_as(x.detach().expand(2, 3, 4)),
    "narrow": lambda x: x.narrow(1, -3, 2), "select": lambda x: x.select(1, -1), "diagonal": lambda x: x.diagonal(1),
    "linalg.diagonal": lambda x: torch.linalg.diagonal(x), "unfold": lambda x: x.unfold(1, 2, 1),
    "diag_embed": lambda x: x.diag_embed(1), "tril": lambda x: x.tril(1), "triu": lambda x: x.triu(),
    "trace": lambda x: x.trace(),
    "flip": lambda x: x.flip(0, 1), "fliplr": lambda x: x.fliplr(), "flipud": lambda x: x.flipud(),
    "rot90": lambda x: x.rot90(1, (0, 1)),
    "roll": lambda x: x.roll((1, 2), (0, 1)) + x.roll(5), "repeat": lambda x: x.repeat(2, 1, 3),
    "tile": lambda x: x.tile(2),
    "pad": lambda x: F.pad(x, (1, 2, -1, 0), value=3.0), "constant_pad_nd": lambda x: torch.constant_pad_nd(x, (1, -1)),
    "diag": lambda x: torch.diag(x) * torch.diag(x[0]).sum(), "view_copy": lambda x: torch.view_copy(x, (4, 3)),
    "unsqueeze_copy": lambda x: torch.unsqueeze_copy(x, 0),
    "squeeze_copy": lambda x: torch.squeeze_copy(x.unsqueeze(0)),
    "permute_copy": lambda x: torch.permute_copy(x, (1, 0)), "transpose_copy": lambda x: torch.transpose_copy(x, 0, 1),
    "t_copy": lambda x: torch.t_copy(x), "expand_copy": lambda x: torch.expand_copy(x, (2, 3, 4)),
    "contiguous": lambda x: x.t().contiguous(), "alias_copy": lambda x: torch.alias_copy(x),
    "select_copy": lambda x: torch.select_copy(x, 1, 2),
    "diagonal_copy": lambda x: torch.diagonal_copy(x), "unfold_copy": lambda x: torch.unfold_copy(x, 1, 2, 2),
    "narrow_copy": lambda x: torch.narrow_copy(x, 1, 1, 2),
}.items():
    row(name, lambda x, f=view: f(x) * f(x), N(3, 4))
row("H complex", lambda x: x.H @ x.mH.mT + x.conj().T @ x, C(3, 3))
row("swapaxes", lambda x: torch.swapaxes(x, 0, 2) * 2, N(2, 3, 4))
row("pixel_shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) ** 2, 2), N(1, 8, 2, 2))
row("channel_shuffle", lambda x: F.channel_shuffle(x, 3) ** 2, N(1, 6, 2, 2))
row("aten views", lambda x: A._unsafe_view(x, (4, 3)) * A.view(x, (4, 3)), N(3, 4))
for name, split in {
    "cat": lambda x, y: torch.cat([x, y, x], 1), "stack": lambda x, y: torch.stack([x, y, x], 1),
    "hstack": lambda x, y: torch.hstack([x, y]), "vstack": lambda x, y: torch.vstack([x, y]),
    "dstack": lambda x, y: torch.dstack([x, y]),
    "column_stack": lambda x, y: torch.column_stack([x, y[:, 0]]), "block_diag": lambda x, y: torch.block_diag(x, y[0]),
    "split": lambda x, y: (x.split(3, 1)[1], y.split([1, 3], 1)[0]),
    "chunk": lambda x, y: x.chunk(2, 1)[1] * y.chunk(2, 1)[0],
    "tensor_split": lambda x, y: x.tensor_split(3, 1)[0] * y.tensor_split((1, 3), 1)[1],
    "unbind": lambda x, y: x.unbind(1)[1] * y[:, 0],
    "hsplit": lambda x, y: x.hsplit(2)[0] * y.hsplit((2,))[0], "vsplit": lambda x, y: x.vsplit(3)[0] * y.vsplit(3)[2],
    "dsplit": lambda x, y: x.unsqueeze(0).dsplit(2)[0] * y.unsqueeze(0).dsplit(2)[1],
    "unsafe_split": lambda x, y: x.unsafe_split(2, 1)[0] * y.unsafe_chunk(2, 1)[1],
    "unsafe_split_with_sizes": lambda x, y: torch.mul(
        x.unsafe_split_with_sizes((1, 3), 1)[1], y.unsafe_split_with_sizes((3, 1), 1)[0]),
    "split_copy": lambda x, y: torch.split_with_sizes_copy(x, [1, 3], 1)[1] * torch.unbind_copy(y, 1)[0].unsqueeze(1),
    "cat legacy empty": lambda x, y: torch.cat([x, torch.empty(0, dtype=torch.float64), y], 0),
    "meshgrid": lambda x, y: torch.meshgrid(x[0], y[1], indexing="xy"),
    "cartesian_prod": lambda x, y: torch.cartesian_prod(x[0], y[0]),
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x, y[0]),
    "atleast_3d": lambda x, y: torch.atleast_3d(x, y[0], y[0, 0]),
}.items():
    row(name, lambda x, y, f=split: [t * t for t in (f(x, y) if isinstance(f(x, y), (tuple, list)) else (f(x, y),))],
        N(3, 4), N(3, 4))
# ----- indexing -----
for name, pick in {
    "slices": lambda x: x[1:, ::2] * x[0, None, 1:3] * x[..., -1:].sum(), "int": lambda x: x[1] * x[-1, 2],
        "none": lambda x: x[None] * x[...],
    "tensor": lambda x: x[few] * x[few, 1:2], "two tensors": lambda x: x[few, torch.tensor([0, 0, 3])],
    "mask": lambda x: x[mask],
    "row mask": lambda x: x[torch.tensor([True, False, True])], "list": lambda x: x[[0, 0, 2]],
    "bool": lambda x: x[True],
    "0-dim tensor": lambda x: x[torch.tensor(1)], "mixed": lambda x: x[:, few, None],
}.items():
    row(f"x[{name}]", lambda x, f=pick: f(x) ** 2, N(3, 4))
row("gather", lambda x: torch.gather(x, 0, index) ** 2, N(3, 4))
row("take_along_dim", lambda x: torch.take_along_dim(x, index[:, :1], 0) ** 2 + torch.take_along_dim(x, few).sum(),
    N(3, 4))
row("take", lambda x: torch.take(x, index) ** 2, N(3, 4))
row("index_select", lambda x: torch.index_select(x, 1, few) ** 2, N(3, 4))
row("index_add", lambda x, s: torch.index_add(x, 1, few, s, alpha=2) ** 2, N(3, 4), N(3, 3))
row("index_copy", lambda x, s: torch.index_copy(x, 1, few[:2], s) ** 2, N(3, 4), N(3, 2))
row("index_fill", lambda x, v: torch.index_fill(x, 1, few, v) ** 2, N(3, 4), N())
row("scatter", lambda x, s: torch.scatter(x, 0, index[:1], s) ** 2 + x.scatter(0, index[:1], 2.0), N(3, 4), N(1, 4))
row("scatter_add", lambda x, s: torch.scatter_add(x, 0, index, s) ** 2, N(3, 4), N(2, 4))
row("scatter", lambda x, s: torch.scatter(x, 0, index[0, :1], s) ** 2, N(), N())
row("repeat_interleave", lambda x: x.repeat_interleave(2, 1).sum() * x.repeat_interleave(torch.tensor([1, 0, 2]),
    0) ** 2, N(3, 4))
row("repeat_interleave flat", lambda x: torch.repeat_interleave(x, 3) ** 2, N(3, 4))
row("index_put", lambda x, v: torch.index_put(x, (few[:2],), v) * x.index_put((few, few), v[:3], accumulate=True),
    N(3, 4), N(4))
row("put", lambda x, v: x.put(index[0, :2], v) * x.put(index[0, :2], v, accumulate=True), N(3, 4), N(2))
row("masked_scatter", lambda x, s: x.masked_scatter(mask, s) ** 2, N(3, 4), N(3, 4))
row("masked_select", lambda x: x.masked_select(mask) ** 2, N(4))
row("select_scatter", lambda x, s: x.select_scatter(s, 1, 2) ** 2, N(3, 4), N(3))
row("slice_scatter", lambda x, s: x.slice_scatter(s, 1, 0, 4, 2) ** 2, N(3, 4), N(3, 2))
row("diagonal_scatter", lambda x, s: x.diagonal_scatter(s) ** 2, N(3, 4), N(3))
# ----- complex numbers -----
same("conj conj_physical sgn angle abs", C(3))
row("resolve_conj", lambda x: x.conj().resolve_conj(), C(3))
row("real imag", lambda x: x.real * x.imag + torch.real(x) * torch.imag(x), C(3))
row("resolve_neg", lambda x: x.conj().imag.resolve_neg() * x.real, C(3))
row("view_as_real", lambda x: torch.view_as_real(x) ** 2, C(3))
row("view_as_complex", lambda x: torch.view_as_complex(x) ** 2, N(3, 2))
same("complex polar", P(3), P(3))
same("sgn angle", N(3))
# ----- Fourier -----
for name in ("fft", "ifft", "rfft", "ihfft"):
    row(name, lambda x, f=getattr(torch.fft, name): (f(x), f(x, 3, 0, "ortho"), f(x, 6, -1, "forward")), N(4, 4))
for name in ("fft", "ifft", "irfft", "hfft"):
    row(name, lambda x, f=getattr(torch.fft, name): (f(x), f(x, 5, 0, "ortho"), f(x, 6, -1, "forward")), C(4, 4))
for name in ("fft", "ifft", "irfft", "rfft"):
    for suffix in ("2", "n"):
        row(name + suffix, lambda x, f=getattr(torch.fft, name + suffix): (f(x), f(x, (3, 6))),
            N(3, 4) if name == "rfft" else C(3, 4))
row("fftshift", lambda x: torch.fft.ifftshift(torch.fft.fftshift(x) ** 2, 1), N(3, 5))
# ----- losses -----
for reduction in ("none", "mean", "sum"):
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        row(f"{name} {reduction}", lambda x, y, f=getattr(F, name), r=reduction: f(x, y, reduction=r), N(3, 4), N(3, 4))
    row(f"soft_margin_loss {reduction}", lambda x,
        r=reduction: F.soft_margin_loss(x, signs, reduction=r),
        N(4))
    row(f"bce {reduction}", lambda x, y,
        r=reduction: F.binary_cross_entropy(x, y, torch.full((4,), 0.3, dtype=torch.float64), reduction=r),
        I01(3, 4), I01(3, 4))
    row(f"bce logits {reduction}", lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(
        x, y, torch.full((4,), 0.3, dtype=torch.float64), pos_weight=torch.full((4,), 1.5, dtype=torch.float64),
        reduction=r)
        + F.binary_cross_entropy_with_logits(x, y, reduction=r), N(3, 4), I01(3, 4))
    row(f"nll {reduction}", lambda x,
        r=reduction: F.nll_loss(x, target, torch.ones(4, dtype=torch.float64), reduction=r), N(3, 4))
    row(f"nll 2d {reduction}", lambda x, r=reduction: F.nll_loss(x, torch.ones(2, 3, 2, dtype=torch.long), reduction=r),
        N(2, 4, 3, 2))
    row(f"nll 1d {reduction}", lambda x, r=reduction: F.nll_loss(x, torch.ones(2, 3, dtype=torch.long), reduction=r),
        N(2, 4, 3))
    row(f"cross_entropy {reduction}", lambda x, r=reduction: F.cross_entropy(x, target, ignore_index=3, reduction=r),
        N(3, 4))
    row(f"cross_entropy smooth {reduction}", lambda x, r=reduction: F.cross_entropy(
        x, target, torch.linspace(0.5, 1, 4, dtype=torch.float64), label_smoothing=0.1, reduction=r), N(3, 4))
    row(f"cross_entropy probabilities {reduction}", lambda x, y,
        r=reduction: F.cross_entropy(x, y, label_smoothing=0.1, reduction=r),
        N(3, 4), I01(3, 4))
    row(f"kl_div {reduction}", lambda x, y,
        r=reduction: F.kl_div(x, y, reduction=r) + F.kl_div(x, y, reduction=r, log_target=True),
        N(3, 4), P(3, 4))
    row(f"margins {reduction}", lambda x, y,
        r=reduction: F.hinge_embedding_loss(x, signs, reduction=r)
        + F.margin_ranking_loss(x, y, torch.ones(3, 4), 0.1, reduction=r), N(3, 4), N(3, 4))
    row(f"triplet {reduction}", lambda x, y, z, r=reduction: F.triplet_margin_loss(x, y, z, swap=True, reduction=r),
        N(3, 4), N(3, 4), N(3, 4))
    row(f"poisson {reduction}", lambda x, y, r=reduction: F.poisson_nll_loss(x, y, full=True, reduction=r)
        + F.poisson_nll_loss(x, y, log_input=False, reduction=r), P(3, 4), G(3, 4))
# ----- layers -----
row("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), N(2, 3, 6), N(4, 3, 3), N(4))
row("conv1d single same", lambda x, w: F.conv1d(x, w, padding="same"), N(3, 6), N(4, 3, 3))
row("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, (1, 0), 2, 1), N(2, 2, 5, 5), N(4, 2, 2, 2), N(4))
row("conv2d groups", lambda x, w: F.conv2d(x, w, groups=2), N(1, 4, 3, 3), N(4, 2, 2, 2))
row("conv3d", lambda x, w, b: F.conv3d(x, w, b), N(1, 1, 3, 3, 3), N(2, 1, 2, 2, 2), N(2))
row("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), N(2, 3, 4), N(3, 2, 3), N(2))
row("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, dilation=2), N(1, 2, 3, 3), N(2, 2, 2, 2), N(2))
row("conv_transpose3d", lambda x, w, b: F.conv_transpose3d(x, w, b), N(1, 1, 2, 2, 2), N(1, 1, 2, 2, 2), N(1))
row("avg_pool", lambda x: F.avg_pool2d(x, 2, 1).sum() * F.avg_pool1d(x[0], 2), N(1, 2, 4, 4))
row("avg_pool3d", lambda x: F.avg_pool3d(x, 2) ** 2, N(1, 1, 2, 4, 4))
row("max_pool", lambda x: F.max_pool2d(x, 2, 1).sum() * F.max_pool1d(x[0], 2) ** 2, N(1, 2, 4, 4))
row("max_pool3d", lambda x: F.max_pool3d(x, 2) ** 2, N(1, 1, 2, 4, 4))
for _n, _pool, _adaptive, _unpool in ((2, F.max_pool2d, F.adaptive_max_pool2d, F.max_unpool2d),
                                      (3, F.max_pool3d, F.adaptive_max_pool3d, F.max_unpool3d)):
    _within = N(1, 2, *(3,) * _n)
    _places = _pool(torch.arange(4.0**_n).reshape(1, *(4,) * _n), 2, return_indices=True)[1]
    row(f"max_pool{_n}d with indices", lambda x, pool=_pool: pool(x, 2, 1, return_indices=True)[0] ** 2, _within)
    row(f"adaptive_max_pool{_n}d", lambda x, pool=_adaptive: pool(x, 2) ** 2, _within)
    row(f"max_unpool{_n}d", lambda x, places, unpool=_unpool: unpool(x, places, 2) ** 2, N(1, *(2,) * _n), _places)
for _n in (1, 2, 3):
    _pad, _around = (1, 2, 0, 1, 2, 1)[:2 * _n], N(2, *(3,) * _n)
    row(f"reflection_pad{_n}d", lambda x, pad=_pad: F.pad(x, pad, "reflect") ** 2, _around)
    row(f"replication_pad{_n}d", lambda x, pad=_pad: F.pad(x, pad, "replicate") ** 2, _around)
for _n, _mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")):
    row(_mode, lambda x, mode=_mode: F.interpolate(x, scale_factor=1.5, mode=mode, align_corners=True) ** 2,
        N(1, 2, *(3,) * _n))
for _mode in ("bilinear", "bicubic"):
    row(f"{_mode}, smoothed", lambda x, mode=_mode: F.interpolate(x, (2, 4), mode=mode, antialias=True) ** 2,
        N(1, 2, 3, 3))
for _n, _mode in itertools.product((1, 2, 3), ("nearest", "nearest-exact")):
    row(f"{_mode} {_n}", lambda x, mode=_mode, size=(5, 2, 4)[:_n]: F.interpolate(x, size, mode=mode) ** 2,
        N(1, 2, *(3,) * _n))
row("circular", lambda x: F.pad(x, (1, 2, 0, 1), "circular") ** 2, N(1, 2, 3, 3))
row("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, 2) ** 2 * F.adaptive_avg_pool2d(x,
    1) * F.adaptive_avg_pool1d(x[0], 2).sum(),
    N(1, 2, 4, 4))
row("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (1, 2, 2)) ** 2 * F.adaptive_avg_pool3d(x, 1),
    N(1, 1, 2, 4, 4))
row("products of nothing", lambda x, y: x @ y * F.linear(x, y.mT), Domain((2, 3, 0), 0.2, 1.7),
    Domain((0, 4), 0.2, 1.7))
row("batch_norm of nothing", lambda x: F.batch_norm(x, None, None, training=True) * 2, Domain((0, 3), 0.2, 1.7))
row("group_norm of nothing", lambda x, w: F.group_norm(x, 2, w) * 2, Domain((0, 4, 3), 0.2, 1.7), N(4))
row("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), N(3, 4), N(4), N(4))
row("layer_norm", lambda x: F.layer_norm(x, (3, 4)), N(2, 3, 4))
row("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), N(2, 4, 3), N(4), N(4))
row("batch_norm", lambda x, w, b: F.batch_norm(x, torch.zeros(3, dtype=torch.float64),
    torch.ones(3, dtype=torch.float64), w, b, True),
    N(4, 3), N(3), N(3))
row("batch_norm eval",
    lambda x, w, b: F.batch_norm(x, torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64), w, b),
    N(4, 3, 2), N(3), N(3))
row("rms_norm", lambda x, w: F.rms_norm(x, (4,), w) + F.rms_norm(x, (3, 4), eps=0.1), N(2, 3, 4), N(4))
row("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b) + F.instance_norm(x), N(2, 3, 4), N(3), N(3))
row("bilinear", F.bilinear, N(2, 3), N(2, 4), N(5, 3, 4), N(5))
row("bilinear", F.bilinear, N(2, 2, 3), N(2, 2, 4), N(5, 3, 4))
row("embedding", lambda w: F.embedding(index, w, padding_idx=0) ** 2, N(3, 4))
row("dropout", lambda x: F.dropout(x, 0.4) ** 2 + F.dropout(x, 0.4, False) + F.dropout(x, 1.0), N(3, 4))
row("embedding of a matrix", lambda w: torch.embedding(w, index) + F.embedding(index, w), N(3, 4))
# ----- attention and recurrent layers (second order where torch has one; more in test_fused.py) -----
triangle = torch.ones(3, 5, dtype=torch.bool).tril()
row("attention", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m) * F.scaled_dot_product_attention(
    q, k, v, m, scale=-0.7), N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 6), N(3, 5))
row("attention 2d", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * F.
    scaled_dot_product_attention(q, k, v, triangle), N(3, 4), N(5, 4), N(5, 6))
row("attention under dropout", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    + F.scaled_dot_product_attention(q, k, v, dropout_p=1.0), N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 4))
row("flash attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * F.scaled_dot_product_attention(
    q, k, v, triangle, scale=0.3), N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 4), order=1)
row("lstm", lambda x, h, c, *w: [t.double() for t in torch.lstm(x.float(), (h.float(), c.float()), [
    p.float() for p in w], True, 1, 0.0, True, False, True)], N(2, 3, 2), N(1, 2, 4), N(1, 2, 4), N(16, 2), N(16, 4),
    N(16), N(16), order=1)
# ----- linear algebra -----
row("tanh, by its kernel", lambda x: torch.ops.aten.tanh_backward.default(x.sin(), x), N(3, 4))
row("cosine similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), N(3, 1, 4), N(2, 4))
row("cosine similarity of nothing", lambda x, y: torch.cosine_similarity(x * 0, y, 0), N(3, 4), N(3, 4), order=1)
row("matrix norm", lambda x: torch.linalg.matrix_norm(x, dim=(0, 2), keepdim=True), N(3, 2, 4))
row("nuclear norm", lambda x: torch.linalg.matrix_norm(x, "nuc"), N(3, 2))
row("eigh", lambda x: torch.linalg.eigh(x + x.mT)[0] + torch.linalg.eigh(x + x.mT)[1].abs().sum(-1), N(2, 3, 3))
row("complex eigh", lambda x: torch.linalg.eigh(x + x.mH)[0] + torch.linalg.eigh(x + x.mH)[1].abs().sum(-1), C(3, 3))
row("eig", lambda x: torch.linalg.eig(x)[0].abs() + torch.linalg.eig(x)[1].abs().sum(-1), N(3, 3))
row("complex eig", lambda x: torch.linalg.eig(x)[0] * torch.linalg.eig(x)[1].abs().sum(-1), C(2, 3, 3))
for rows, columns in ((3, 3), (4, 2), (2, 4)):
    row(f"svd {rows} {columns}", lambda x: [t.abs() for t in torch.linalg.svd(x, False)], N(rows, columns))
for rows, columns in ((3, 3), (4, 2), (2, 4)):
    row(f"complex svd {rows} {columns}", lambda x: [t.abs() for t in torch.linalg.svd(x, False)], C(rows, columns))
    row(f"full svd {rows} {columns}", lambda x, k=min(rows, columns): [t.abs() for t in (
        torch.linalg.svd(x)[0][..., :k], torch.linalg.svd(x)[2][..., :k, :])], N(2, rows, columns))
row("complex svd, pairs", lambda x: (lambda u, s, vh: u[:, :1] @ vh[:1])(*torch.linalg.svd(x, False)), C(3, 2))
row("old svd", lambda x: [t.abs() for t in x.svd()], C(3, 2))
row("old svd, values", lambda x: torch.svd(x, compute_uv=False)[1], N(2, 3, 4))
row("singular values", lambda x: torch.linalg.svd(x, False)[1], N(2, 3, 4))
row("inv", lambda x: torch.linalg.inv(x @ x.mT + torch.eye(3)), N(2, 3, 3))
row("complex inv", lambda x: torch.linalg.inv(x @ x.mH + torch.eye(3)), C(3, 3))
row("solve", lambda a, b: torch.linalg.solve(a @ a.mH + torch.eye(3), b), C(3, 3), C(3, 2))
row("solve right", lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b, left=False), N(3, 3), N(2, 2, 3))
row("solve vector", lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b), N(2, 3, 3), N(3))
row("solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), G(3, 3), N(3, 2))
row("solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
    C(3, 3), C(2, 3))
row("cholesky", lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), N(2, 3, 3))
row("complex cholesky", lambda x: torch.linalg.cholesky(x @ x.mH + torch.eye(3), upper=True), C(3, 3))
row("old cholesky", lambda x: (x @ x.mT + torch.eye(3)).cholesky(), N(3, 3))
row("slogdet", lambda x: torch.linalg.slogdet(x @ x.mT + torch.eye(3)), N(2, 3, 3))
row("complex slogdet", lambda x: torch.linalg.slogdet(x + torch.eye(3)), C(3, 3))
row("logdet", lambda x: torch.logdet(x @ x.mT + torch.eye(3)), N(2, 3, 3))
row("linalg.norm", lambda x: torch.linalg.norm(x) + torch.linalg.norm(x, dim=1).sum() + torch.linalg.norm(x[0], 3),
    N(3, 4))
