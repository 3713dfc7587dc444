"""What torch cannot differentiate raises what torch raises, names the user's line, and leaves the graph usable."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

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
