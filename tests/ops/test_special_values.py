"""Values, gradients and second derivatives at zeros, infinities, NaN and numbers of every kind, beside torch eager."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao

pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor
NAN, INF = math.nan, math.inf
POINTS = (0.0, -0.0, INF, -INF, NAN, 5e-324, 0.5, 1.0, -1.0, 1.5, 2.0, -2.5, 3.0, 1e308, -1e308)
NUMBERS = (True, False, 0, 1, 2, -1, 3, 0.0, -0.0, 0.5, 2.0, -2.5, INF, -INF, NAN, 0j, 1 + 0j, 2 + 0j, 1j,
           np.True_, np.False_, np.int64(2), np.float32(0.5), np.float64(NAN), np.complex64(1), np.complex128(1j),
           torch.tensor(True), torch.tensor(2), torch.tensor(0.5, dtype=torch.float16), torch.tensor(0.0))
OPTIONS = ({"optimize": False}, {"optimize": True}, {"optimize": "exact"})
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: getattr(torch, name) for name in (
        "div", "fmod", "remainder", "float_power", "xlogy", "copysign", "rsub", "hypot", "atan2", "maximum",
        "clamp_min")},
    "xlog1py": torch.special.xlog1py, "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "in place": lambda x, y: (x * 1).pow_(y) if isinstance(x, Tensor) else x ** y,
}


def leaf(t: Tensor) -> Tensor:
    return t.detach().clone().requires_grad_()


def found(function: Callable[..., Any], operands: tuple[Tensor, ...], graph: Any, kind: str = "ones") -> Any:
    """Results, gradients and second derivatives of a function of leaves; an error by its class alone."""
    leaves = [leaf(t) for t in operands]
    with graph:
        try:
            y = function(*leaves)
        except Exception as error:
            return type(error)
        if not isinstance(y, Tensor) or not y.requires_grad:
            return y
        numbers = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
        g = torch.ones_like(y) if kind == "ones" else torch.where(numbers % 2 == 0, numbers, 0).to(y.dtype)
        g.requires_grad_()
        try:
            first = torch.autograd.grad(y, leaves, g, create_graph=True, allow_unused=True)
            roots = [t for t in first if t is not None and t.requires_grad]
            second = torch.autograd.grad(roots, [*leaves, g], [torch.ones_like(t) for t in roots],
                                         allow_unused=True) if roots else ()
        except RuntimeError:
            return [y.detach()]                 # torch has no derivative
        return [t if t is None else t.detach() for t in (y, *first, *second)]


def same(mine: Any, theirs: Any) -> None:
    """The same classes, shapes, dtypes and numbers, up to rounding in what is finite."""
    if isinstance(theirs, list) and isinstance(mine, list):
        for a, b in zip(mine, theirs, strict=False):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)
    elif isinstance(theirs, Tensor):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    else:
        assert mine is theirs


def compare(function: Callable[..., Any], *operands: Tensor, kind: str = "ones") -> None:
    theirs = found(function, operands, nullcontext(), kind)
    for options in OPTIONS:
        same(found(function, operands, ao.AutogradGraph(**options), kind), theirs)


@pytest.mark.parametrize("name", BINARY)
def test_numbers_of_every_kind_at_points_of_every_kind(name: str) -> None:
    f, x = BINARY[name], torch.tensor(POINTS, dtype=torch.float64)
    for number in NUMBERS:
        for function in (lambda t, n=number: f(t, n), lambda t, n=number: f(n, t)):
            theirs = found(function, (x,), nullcontext(), "zeros")
            mine = found(function, (x,), ao.AutogradGraph(optimize=False), "zeros")
            try:
                same(mine, theirs)
            except AssertionError as different:
                raise AssertionError(f"{number!r}: {different}") from None


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "half to a complex power": (lambda x: x ** (1 + 0j), (torch.tensor([0.5, 2.0, 0.0], dtype=torch.float16),)),
    "complex number to half": (lambda x: (1 + 0j) ** x, (torch.tensor([0.5, 2.0, 0.0], dtype=torch.float16),)),
    "negative number to complex": (lambda x: (-1) ** x, (torch.tensor([0.5 + 1j, 2.0]),)),
    "denormal hypotenuse": (torch.hypot, (
        torch.tensor([5e-324, 1e308], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))),
    "product of one zero": (lambda x: x.prod(), (torch.zeros(1),)),
    "product of one zero in two axes": (lambda x: x.prod(), (torch.zeros(1, 1),)),
    "product in a shorter type": (lambda x: x.prod(0, dtype=torch.float32), (
        torch.tensor([1e-310, 5e-324, 1e200], dtype=torch.float64),)),
    "an axis that is a tensor of a bool": (
        lambda x: x.sum(torch.tensor(True)) * x.mean(torch.tensor(True)), (torch.ones(2, 3),)),
    "squared error, bool": (
        lambda x: F.mse_loss(x, torch.tensor([True, False])), (torch.tensor([0.5, 2.0]),)),
    "squared error, large": (lambda x, y: F.mse_loss(x, y, reduction="none"), (
        torch.tensor([1e308], dtype=torch.float64), torch.tensor([-2.0], dtype=torch.float64))),
    "gelu bends no more": (lambda x: F.gelu(x, approximate="tanh"), (
        torch.tensor([88.0, -88.0, 20.0], dtype=torch.float16),)),
    **{name: (f, (torch.tensor([1e308, -1e308, 2.0], dtype=torch.float64),)) for name, f in (
        ("asinh", torch.asinh), ("atanh", torch.atanh), ("erf", torch.erf), ("erfc", torch.erfc),
        ("log_ndtr", torch.special.log_ndtr))},
    "acos of complex numbers": (torch.acos, (torch.tensor([2 + 0j, 0j, 0.5 - 0.0j]),)),
}


@pytest.mark.parametrize("name", CASES)
def test_points_that_were_wrong(name: str) -> None:
    function, operands = CASES[name]
    compare(function, *operands)


SIX = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3)
WORDS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda x: torch.linalg.norm(x, axis=-1),
    "norms": lambda x: torch.linalg.norm(input=x, axis=1, keepdims=True),
    "norm of A": lambda x: torch.linalg.norm(A=x),
    "matrix_norm": lambda x: torch.linalg.matrix_norm(input=x, keepdims=True),
    "diff": lambda x: torch.diff(x, axis=0), "method diff": lambda x: x.diff(axis=0),
    "diff of x": lambda x: torch.diff(x=x),
    "nanmean": lambda x: x.nanmean(axis=0, keepdims=True),
    "cosine": lambda x: torch.cosine_similarity(x, SIX + 1, axis=0),
    "vecdot": lambda x: torch.linalg.vecdot(x, SIX, axis=0), "kron": lambda x: torch.kron(x=x, x2=SIX),
    "inner": lambda x: torch.inner(input=x, other=SIX), "diag": lambda x: torch.diag(a=x),
    "msort": lambda x: torch.msort(x=x),
    "fftshift": lambda x: torch.fft.fftshift(x, axis=0), "ihfft": lambda x: torch.fft.ihfft(x=x, axis=1),
    "prelu": lambda x: torch.prelu(x=x, weight=SIX[0]), "both": lambda x: torch.linalg.norm(x, dim=0, axis=1),
    "group_norm": lambda x: torch.group_norm(input=x.t(), num_groups=2), "unknown": lambda x: torch.diff(x, axes=0),
}


@pytest.mark.parametrize("name", WORDS)
def test_functions_made_of_others_take_torchs_and_numpys_words(name: str) -> None:
    compare(WORDS[name], SIX)


SIGNS = torch.tensor([1.0, -1.0])
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "kl_div": lambda x: torch.kl_div(x, SIX), "kl_div by name": lambda x: torch.kl_div(input=x, target=SIX),
    "hinge": lambda x: torch.hinge_embedding_loss(x, SIX),
    "ranking": lambda x: torch.margin_ranking_loss(x, SIX, SIX),
    "ranking by name": lambda x: torch.margin_ranking_loss(input1=x, input2=SIX, target=SIX),
    "triplet": lambda x: torch.triplet_margin_loss(x, SIX, SIX + 1),
    "cosine": lambda x: torch.cosine_embedding_loss(x, SIX, SIGNS),
    "logits": lambda x: torch.binary_cross_entropy_with_logits(x, SIX),
}


@pytest.mark.parametrize("name", LOSSES)
def test_torchs_own_losses_reduce_what_they_are_told_to(name: str) -> None:
    compare(LOSSES[name], SIX / 7, kind="zeros")


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
@pytest.mark.parametrize("options", [
    {}, {"dim": 1}, {"axis": 1}, {"keepdim": True}, {"keepdims": True}, {"dim": None}, {"dim": 0, "keepdim": True},
    {"dim": torch.tensor(1)}], ids=str)
def test_options_without_an_axis_are_refused(name: str, options: dict[str, Any]) -> None:
    def function(x: Tensor) -> Any:
        y = getattr(torch, name)(x, **options)
        return y if isinstance(y, Tensor) else y[0]
    compare(function, SIX)


@pytest.mark.parametrize("name", ["atan2", "hypot", "maximum", "minimum"])
def test_a_number_for_a_tensor_is_refused_in_torchs_words(name: str) -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"argument 'other' \(position 2\) must be Tensor, not int"), ao.AutogradGraph():
        getattr(torch, name)(x, 0)
