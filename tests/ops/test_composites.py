"""Calls made of others: values, layouts, first and second gradients, warnings and refusals are those of eager mode."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=GENERATOR)


A, X3, X4, Z = random(4, 4), random(2, 3, 4), random(1, 2, 4, 5), random(4, 4, dtype=torch.complex128)
LAST = random(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)
LEAVES = [A, X3, X4, Z, LAST]
for _leaf in LEAVES:
    _leaf.requires_grad_()
SIGNS = torch.tensor([1, -1, 1, 0])
ONES = torch.ones(4, dtype=torch.float64)
NAMES = {"torch": torch, "F": F, "A": A, "X3": X3, "X4": X4, "Z": Z, "LAST": LAST, "SIGNS": SIGNS, "ONES": ONES}

KINDS = (TypeError, IndexError, ValueError, NotImplementedError, RuntimeError)

CALLS = """
torch.fft.hfftn(Z, s=(3, -1))
torch.fft.hfft2(Z, (3, 5))
torch.fft.hfftn(Z, dim=(0,))
torch.fft.hfftn(Z, 3)
torch.fft.hfftn(Z, dim=1)
torch.fft.ihfftn(A, 2)
torch.fft.ihfft2(A, s=2)
torch.fft.ihfftn(A, s=(2, 3))
torch.fft.ihfftn(A)
torch.fft.hfftn(Z, s=4, dim=1)
torch.fft.hfftn(Z, s=(3,), dim=(0, 1))
torch.fft.hfftn(Z, dim=())
torch.fft.hfft2(Z, s=(1, 2, 3))
torch.fft.hfft2(input=Z, dim=(0, 1), norm='ortho')
torch.fft.hfft2(A)
torch.trapezoid(A, dx=A.detach()[0, 0])
torch.trapezoid(A, dx=2)
torch.trapezoid(A, dx=1 + 2j)
torch.trapezoid(Z, dx=0.5, dim=0)
torch.trapezoid(X3, A[:, :3], dim=1)
torch.trapezoid(X3, X3[0, :, 0], dim=-2)
torch.trapezoid(X3, X3.flip(1))
torch.trapezoid(A, X3, dim=-1)
torch.trapezoid(A[0, 0])
torch.trapezoid(A[:, :0])
torch.trapezoid(A[:, :0], A[:, :0])
torch.trapezoid(A[:, :1], A[:, :1])
torch.trapezoid(A[0], ONES[0])
torch.trapezoid(A > 0, A)
torch.trapezoid(SIGNS * A[0].detach().long())
torch.trapezoid(A, A[0])
torch.trapezoid(A, ONES[:3])
torch.trapezoid(A, dim=5)
torch.trapz(y=A, x=A, dim=0)
torch.trapz(A, dx=2.5)
torch.cumulative_trapezoid(A, dx=0.5, dim=0)
torch.cumulative_trapezoid(X3, A[:, :3], dim=1)
torch.cumulative_trapezoid(X3, X3[0, :, 0], dim=-2)
torch.cumulative_trapezoid(A, X3, dim=-1)
torch.cumulative_trapezoid(A[:, :0])
torch.cumulative_trapezoid(A[:, :0], A[:, :0])
torch.cumulative_trapezoid(A, A > 0)
torch.cumulative_trapezoid(SIGNS, dx=3)
torch.linalg.multi_dot([A[0], A, A[1]])
torch.linalg.multi_dot([A, X3[0, :, :2]])
torch.linalg.multi_dot([A])
torch.linalg.multi_dot([A] * 4)
torch.linalg.multi_dot((A, A))
torch.linalg.multi_dot([A, A[0], A])
torch.combinations(A[0])
torch.combinations(A[0], 3)
torch.combinations(A[0], with_replacement=True)
torch.combinations(A[0], r=1)
torch.combinations(A[0], r=0)
torch.combinations(A[0, :1])
torch.combinations(A)
torch.combinations(A[0], -1)
torch.linalg.vander(A)
torch.linalg.vander(X3, N=2)
torch.linalg.vander(A[0, 0], N=3)
torch.linalg.vander(A, N=1)
torch.linalg.vander(Z[0])
torch.linalg.cond(A)
torch.linalg.cond(X3, -2)
torch.linalg.cond(A=A, p=2.0)
torch.linalg.cond(Z)
torch.linalg.cond(A, "fro")
torch.linalg.cond(A, 1)
torch.linalg.cond(A, 3)
torch.linalg.cond(A[0])
torch.linalg.cond(A[:0])
torch.masked_select(A, SIGNS > 0)
X3.masked_select(X3[0] > 0)
A.cumprod(1)
A.cumprod(0, dtype=torch.float32)
torch.cumprod(input=Z, dim=-1)
A[0, 0].cumprod(0)
(A * SIGNS).cumprod(1)
A.matrix_power(n=3)
torch.linalg.matrix_power(X3, 2)
torch.linalg.matrix_power(A, 2.0)
torch.matrix_power(X3 @ X3.mT, 3)
torch.cov(A)
A[0].cov()
torch.cov(Z, correction=0)
torch.cov(A, correction=4)
torch.cov(A, aweights=ONES)
torch.cov(X3)
A.corrcoef()
A[0].corrcoef()
Z.corrcoef()
torch.linalg.tensorsolve(X4.reshape(2, 4, 5)[:, :2, :4].reshape(2, 2, 2, 2), A[:2, :2])
torch.linalg.tensorsolve(X3, A)
torch.linalg.tensorinv(A.reshape(2, 2, 2, 2))
torch.linalg.tensorinv(A, ind=1)
torch.linalg.tensorinv(A, ind=0)
torch.linalg.tensorinv(X3, ind=1)
F.cosine_embedding_loss(A, A * 2, SIGNS)
F.cosine_embedding_loss(A, A.exp(), SIGNS, margin=0.3, reduction='none')
F.cosine_embedding_loss(A[0], A[1], SIGNS[0])
F.cosine_embedding_loss(A, A[0], SIGNS)
F.pad(X3, (1, 1), mode='reflect', value=1.0)
F.pad(X3, (1, 1), 'replicate', 0)
F.pad(X3, (1, 1), 'what')
F.pad(input=X3, pad=[1, 1], mode='circular')
torch.nn.ReflectionPad2d(1)(X4)
torch.nn.CircularPad2d(1)(X4)
F.max_pool1d(X3, 2, return_indices=True)
F.max_pool1d(X3, (2,), (1,), 1, 1, True, return_indices=True)
F.max_pool2d(X4, 2, return_indices=True)
F.max_pool2d(X4, (2, 3), 1, return_indices=True)
F.max_pool3d(X4, 2, padding=1, return_indices=True)
F.adaptive_max_pool1d(X3, 2, True)
F.adaptive_max_pool2d(X4, (None, 2), True)
F.adaptive_max_pool2d(X4, 3)
F.adaptive_max_pool3d(X4, (1, 2, 2))
F.adaptive_max_pool1d(X3, (2, 3))
F.adaptive_max_pool2d(A, 9)
torch.nn.AdaptiveMaxPool2d((2, 2), return_indices=True)(X4)
torch.max_pool1d_with_indices(X3, 2, [], 0)
F.max_pool2d(X4, 0, return_indices=True)
F.max_unpool1d(*F.max_pool1d(X3, 2, return_indices=True), 2)
F.max_unpool3d(*F.max_pool3d(X4, 2, return_indices=True), 2)
torch.ops.aten.slice(A, 0, 1, 3)
torch.ops.aten.slice(A, -1, -2)
torch.ops.aten.slice(A, 5)
torch.ops.aten.sum.dim_IntList(A, [0], True)
torch.ops.aten.add.Tensor(A, A, alpha=2)
torch.ops.aten.add.Tensor(A)
torch.ops.aten.mean.dim(A, [1])
torch.ops.aten.slice(A, 0, 0, 3, 0)
torch.flip(A, dim=0)
torch.pow(self=A, exponent=2)
torch.pow(input=A, exponent=2)
torch.lerp(A, end=A * 2, weight=0.3)
torch.addmm(A, mat1=A, mat2=A, beta=0.5)
A[0].dot(tensor=A[1])
A.mv(vec=A[0])
torch.flip(A, [0], dims=[1])
torch.linalg.matrix_power(A, -4)
torch.linalg.matrix_power(A, -3)
torch.linalg.matrix_power(A, -1)
torch.linalg.matrix_power(A, 0)
torch.linalg.matrix_power(A, 1)
torch.linalg.matrix_power(A, 2)
torch.linalg.matrix_power(A, 3)
torch.linalg.matrix_power(A, 4)
torch.linalg.matrix_power(A, 5)
torch.linalg.matrix_power(A, 7)
torch.linalg.matrix_power(A, 8)
F.pad(X3, (1, 2), mode='reflect')
F.pad(X3, (1, 0, 2, 1), mode='reflect')
F.pad(X4, (1, -1, 2, 1), mode='reflect')
F.pad(LAST, (1, 1, 2, 0), mode='reflect')
F.pad(X3, (9, 9), mode='reflect')
F.pad(X3, (), mode='reflect')
F.pad(X3, (1,), mode='reflect')
F.pad(X3, (0, 0), mode='reflect')
F.pad(X4, (1, 1, 1, 1, 1, 1), mode='reflect')
F.pad(X4, (0, 0, 0, 0), mode='reflect')
F.pad(X3, (1, 2), mode='replicate')
F.pad(X3, (1, 0, 2, 1), mode='replicate')
F.pad(X4, (1, -1, 2, 1), mode='replicate')
F.pad(LAST, (1, 1, 2, 0), mode='replicate')
F.pad(X3, (9, 9), mode='replicate')
F.pad(X3, (), mode='replicate')
F.pad(X3, (1,), mode='replicate')
F.pad(X3, (0, 0), mode='replicate')
F.pad(X4, (1, 1, 1, 1, 1, 1), mode='replicate')
F.pad(X4, (0, 0, 0, 0), mode='replicate')
F.pad(X3, (1, 2), mode='circular')
F.pad(X3, (1, 0, 2, 1), mode='circular')
F.pad(X4, (1, -1, 2, 1), mode='circular')
F.pad(LAST, (1, 1, 2, 0), mode='circular')
F.pad(X3, (9, 9), mode='circular')
F.pad(X3, (), mode='circular')
F.pad(X3, (1,), mode='circular')
F.pad(X3, (0, 0), mode='circular')
F.pad(X4, (1, 1, 1, 1, 1, 1), mode='circular')
F.pad(X4, (0, 0, 0, 0), mode='circular')
F.max_unpool2d(*F.max_pool2d(X4[..., :4], 2, return_indices=True), 2)
""".split("\n")[1:-1]


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What can be seen of a call: results, their strides, gradients twice, warnings; or the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = call()
            results = list(made) if isinstance(made, (tuple, list)) else [made]
            followed = [t for t in results if t.requires_grad]
            gs = [torch.linspace(1, 2, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype) for t in followed]
            first = torch.autograd.grad(followed, LEAVES, gs, allow_unused=True, create_graph=True)
            again = [g.abs().square().sum() for g in first if g is not None and g.requires_grad]
            second = torch.autograd.grad(again, LEAVES, allow_unused=True) if again else ()
        except KINDS as error:
            return next(kind for kind in KINDS if isinstance(error, kind)), str(error).split("\n")[0]
    words = sorted({str(w.message)[:60] for w in caught})
    return (isinstance(made, tuple), [t.detach().clone() for t in results], [t.stride() for t in results],
            [None if g is None else g.detach().clone() for g in first], [zeroed(g) for g in second], words)


def zeroed(g: torch.Tensor | None) -> torch.Tensor | None:
    """None for a gradient of zeros, which eager mode and a graph reach on different ways."""
    return g if g is not None and g.any() else None


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_that_of_eager_mode(text: str, optimize: bool) -> None:
    code = compile(text, "<call>", "eval")
    wanted = outcome(lambda: eval(code, NAMES))
    with ao.AutogradGraph(optimize=optimize):
        found = outcome(lambda: eval(code, NAMES))
    assert len(found) == len(wanted), found
    if len(wanted) == 2:
        assert found == wanted
        return
    assert (found[0], found[2], found[5]) == (wanted[0], wanted[2], wanted[5])
    torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=0, equal_nan=True)
    for mine, theirs in zip([*found[3], *found[4]], [*wanted[3], *wanted[4]], strict=True):
        assert (mine is None) is (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("name", ["topk", "kthvalue", "cummax", "cummin", "gather", "softmax", "narrow", "renorm"])
def test_an_argument_that_torch_requires_is_asked_for(name: str) -> None:
    for context in (contextlib.nullcontext(), ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        for call in (getattr(torch, name), getattr(torch.Tensor, name)):
            with context if isinstance(context, contextlib.nullcontext) else type(context)(), pytest.raises(TypeError):
                call(A)
