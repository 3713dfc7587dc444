"""Results with names: what torch gives by name is given by name, also where a call is one that was made before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "linalg.slogdet": torch.linalg.slogdet,
    "slogdet": torch.slogdet,
    "linalg.eigh": lambda a: torch.linalg.eigh(a @ a.T),
    "linalg.svd": torch.linalg.svd,
    "linalg.qr": torch.linalg.qr,
    "linalg.lu": torch.linalg.lu,
    "linalg.lu_factor": torch.linalg.lu_factor,
    "linalg.inv_ex": torch.linalg.inv_ex,
    "linalg.eig": torch.linalg.eig,
    "max": lambda a: a.max(0),
    "sort": lambda a: a.sort(0),
    "topk": lambda a: a.topk(2),
    "median": lambda a: a.median(0),
    "cummax": lambda a: a.cummax(0),
    "aminmax": lambda a: a.aminmax(),
    "frexp": torch.frexp,
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_parts_have_names(name: str, needs: bool, optimize: bool) -> None:
    a = torch.tensor([[4.0, 1.0], [0.5, 3.0]], dtype=torch.float64, requires_grad=needs)
    wanted = CALLS[name](a)
    names = [n for n in dir(type(wanted)) if not n.startswith(("_", "n_")) and n not in ("count", "index")]
    assert len(names) >= 2
    with ao.AutogradGraph(optimize=optimize):
        for _ in range(2):
            found = CALLS[name](a)
            assert len(found) == len(wanted)
            for n in names:
                torch.testing.assert_close(getattr(found, n).detach().as_subclass(torch.Tensor),
                                           getattr(wanted, n).detach())
