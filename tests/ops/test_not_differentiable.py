"""What torch cannot differentiate raises what torch raises, names the user's line, and leaves the graph usable."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])
S = torch.special


def P(*shape: int) -> torch.Tensor:
    return (torch.rand(shape, dtype=torch.float64) + 0.3).requires_grad_()


CALLS: dict[str, Callable[[], torch.Tensor]] = {
    "gammainc": lambda: S.gammainc(P(3), P(3)),
    "gammaincc": lambda: S.gammaincc(P(3), P(3)),
    "zeta": lambda: S.zeta(P(3) + 2, P(3)),
    "heaviside": lambda: torch.heaviside(P(3), P(3)),
    "geqrf": lambda: torch.geqrf(P(3, 3))[0],
    "chebyshev_polynomial_t": lambda: S.chebyshev_polynomial_t(P(3), 3),
    "hermite_polynomial_h": lambda: S.hermite_polynomial_h(P(3), 2),
    "bessel_j0": lambda: S.bessel_j0(P(3)),
    "airy_ai": lambda: S.airy_ai(P(3)),
    "scaled_modified_bessel_k0": lambda: S.scaled_modified_bessel_k0(P(3)),
    "spherical_bessel_j0": lambda: S.spherical_bessel_j0(P(3)),
    "histc": lambda: torch.histc(P(5)),
    "histogram": lambda: torch.histogram(P(5), 3)[0],
    "bincount": lambda: torch.bincount(torch.tensor([1, 2]), P(2)),
    "ldl_factor": lambda: torch.linalg.ldl_factor(P(3, 3))[0],
    "matrix_rank": lambda: torch.linalg.matrix_rank(P(2, 2)),
    "binomial": lambda: torch.binomial(P(3) * 3, P(3) * 0.3),
    "argmax": lambda: P(3).argmax(),
    "bucketize": lambda: torch.bucketize(P(3), torch.tensor([0.1, 0.5], dtype=torch.float64)),
    "unique": lambda: torch.unique(P(3)),
    "vander": lambda: torch.vander(P(3)),
    "isclose": lambda: torch.isclose(P(2), P(2)),
}

X, ONES = P(2, 3).detach(), torch.ones(3, dtype=torch.float64)
CLASSES, PIXELS = torch.tensor([1, 2]), torch.tensor([[[1, 2], [0, 1]]])
REFUSED: dict[str, Callable[[], torch.Tensor]] = {
    "weight of cross_entropy": lambda: F.cross_entropy(P(2, 3), CLASSES, P(3)),
    "weight of cross_entropy, a result": lambda: F.cross_entropy(P(2, 3), CLASSES, P(3) * 2),
    "weight of cross_entropy, smooth": lambda: F.cross_entropy(P(2, 3), CLASSES, P(3), label_smoothing=0.1),
    "weight of cross_entropy alone": lambda: F.cross_entropy(X, CLASSES, P(3)),
    "weight of cross_entropy of pixels": lambda: F.cross_entropy(P(1, 3, 2, 2), PIXELS, P(3)),
    "weight of CrossEntropyLoss": lambda: torch.nn.CrossEntropyLoss(P(3))(P(2, 3), CLASSES),
    "weight of nll_loss": lambda: F.nll_loss(P(2, 3), CLASSES, P(3)),
    "weight of nll_loss of pixels": lambda: F.nll_loss(P(1, 3, 2, 2), PIXELS, P(3)),
    "weight of nll_loss of a row of pixels": lambda: F.nll_loss(P(1, 3, 2), PIXELS[:, 0], P(3)),
    "weight of multi_margin_loss": lambda: F.multi_margin_loss(P(2, 3), CLASSES, weight=P(3)),
    "target of soft_margin_loss": lambda: F.soft_margin_loss(P(2, 3), P(2, 3)),
    "target of soft_margin_loss alone": lambda: F.soft_margin_loss(X, P(2, 3)),
    "weight of binary_cross_entropy": lambda: F.binary_cross_entropy(P(2, 3) / 2, X / 2, P(3)),
    "weight of binary_cross_entropy alone": lambda: F.binary_cross_entropy(X / 2, X / 2, P(3)),
    "weight of logits": lambda: F.binary_cross_entropy_with_logits(P(2, 3), X / 2, P(3)),
    "weight of logits by name": lambda: torch.binary_cross_entropy_with_logits(P(2, 3), X / 2, weight=P(3)),
    "pos_weight of logits": lambda: F.binary_cross_entropy_with_logits(P(2, 3), X / 2, pos_weight=P(3)),
    "both weights of logits": lambda: F.binary_cross_entropy_with_logits(P(2, 3), X / 2, P(3), pos_weight=P(3)),
    "running_mean": lambda: F.batch_norm(P(4, 3), P(3), ONES),
    "running_var": lambda: F.batch_norm(P(4, 3), ONES, P(3), ONES, ONES),
    "running_mean alone": lambda: F.batch_norm(torch.cat([X, X]), P(3), ONES),
    "running_mean in training": lambda: F.batch_norm(P(4, 3), P(3), ONES, training=True),
}
"""Of arguments that torch takes for constants: it refuses them where they require grad, before it computes."""


def error_of(call: Callable[[], torch.Tensor]) -> Exception:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError) as caught:  # NotImplementedError is one
            call().sum().backward()
    return caught.value


def place_of(error: Exception) -> str:
    """Message and notes, and the lines that the traceback goes through."""
    lines, traceback = [str(error), *getattr(error, "__notes__", ())], error.__traceback__
    while traceback is not None:
        lines.append(f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return "\n".join(lines)


@OPTIMIZE
@pytest.mark.parametrize("name", CALLS)
def test_the_error_is_torchs(name: str, optimize: bool) -> None:
    wanted = error_of(CALLS[name])
    with ao.AutogradGraph(optimize=optimize):
        found = error_of(CALLS[name])
        assert isinstance(found, type(wanted))
        assert str(wanted).splitlines()[0][:60] in str(found)
        line = CALLS[name].__code__.co_firstlineno
        assert f"test_not_differentiable.py:{line}" in place_of(found) or "does not require grad" in str(found)
        x = P(3)
        (x * x + (x * x).exp()).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, (2 * x + 2 * x * (x * x).exp()).detach().as_subclass(torch.Tensor))


@OPTIMIZE
@pytest.mark.parametrize("name", REFUSED)
def test_a_constant_that_requires_grad_is_refused(name: str, optimize: bool) -> None:
    wanted = error_of(REFUSED[name])
    with ao.AutogradGraph(optimize=optimize):
        with pytest.raises(RuntimeError) as caught:
            REFUSED[name]()
        assert str(wanted).strip() in str(caught.value)
        assert f"test_not_differentiable.py:{REFUSED[name].__code__.co_firstlineno}" in place_of(caught.value)
        with torch.no_grad():
            REFUSED[name]()


@pytest.mark.parametrize("call", [
    lambda x: F.binary_cross_entropy(x, X / 2, ONES * 2),
    lambda x: F.binary_cross_entropy(x, X / 2, ONES, reduction="sum"),
    lambda x: torch._C._nn.binary_cross_entropy(x, X / 2, ONES * 2, 2),
    lambda x: torch._C._nn.binary_cross_entropy(x, X / 2, None, 2),
    lambda x: torch.binary_cross_entropy_with_logits(x, X / 2, ONES * 2, ONES * 3, 2),
    lambda x: torch.binary_cross_entropy_with_logits(x, X / 2, None, None, 2),
    lambda x: torch.binary_cross_entropy_with_logits(x, X / 2, pos_weight=ONES * 3, reduction=2),
    lambda x: torch.binary_cross_entropy_with_logits(x, X / 2, reduction=2),
    lambda x: torch.binary_cross_entropy_with_logits(input=x, target=X / 2, weight=ONES * 2, reduction=2),
])
def test_constant_weights_in_every_spelling(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = (X / 2).requires_grad_()
    wanted, = torch.autograd.grad(call(x), x)
    with ao.AutogradGraph():
        found, = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), wanted)
