"""A tensor of one number that requires grad, in the place of a number: refused, or differentiated, as by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn import init

import autograd_opt as ao

Tensor = torch.Tensor


def ones(grad: bool = False) -> Tensor:
    return torch.ones(3, requires_grad=grad) * 1.0


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "full": lambda s: torch.full((2,), s),
    "full, named": lambda s: torch.full(size=(2,), fill_value=s),
    "full_like": lambda s: torch.full_like(ones(), s),
    "full_like, named": lambda s: torch.full_like(ones(), fill_value=s),
    "full_like of a result": lambda s: torch.full_like(ones(True), s),
    "full_like of it": lambda s: torch.full_like(s, 2.0),
    "new_full": lambda s: ones().new_full((2,), s),
    "new_full of it": lambda s: s.new_full((2,), 2.0),
    "arange": lambda s: torch.arange(s),
    "arange to": lambda s: torch.arange(0, s),
    "arange by": lambda s: torch.arange(0, 2, s),
    "scalar_tensor": lambda s: torch.scalar_tensor(s),
    "linspace": lambda s: torch.linspace(0, s, 3),
    "logspace": lambda s: torch.logspace(s, 2, 3),
    "histc": lambda s: torch.histc(ones(), 3, s, 2),
    "uniform_": lambda s: ones().uniform_(0, s),
    "uniform_ of a result": lambda s: ones(True).uniform_(0, s),
    "uniform_ of it": lambda s: s.clone().uniform_(0, 1),
    "uniform_ under no_grad": lambda s: torch.no_grad()(ones().uniform_)(0, s),
    "normal_": lambda s: ones().normal_(mean=s),
    "normal_ of a result": lambda s: ones(True).normal_(0, s),
    "exponential_": lambda s: ones().exponential_(s),
    "geometric_": lambda s: ones().geometric_(s),
    "cauchy_": lambda s: ones().cauchy_(s),
    "log_normal_": lambda s: ones().log_normal_(s),
    "bernoulli_": lambda s: ones().bernoulli_(s),
    "fill_": lambda s: ones().fill_(s),
    "fill_ of a result": lambda s: ones(True).fill_(s),
    "init.uniform_": lambda s: init.uniform_(ones(), 0, s),
    "init.trunc_normal_": lambda s: init.trunc_normal_(ones(), 0, s),
    "init.constant_": lambda s: init.constant_(ones(), s),
    "margin": lambda s: F.margin_ranking_loss(ones(), ones(), ones(), s),
    "margin of a triplet": lambda s: F.triplet_margin_loss(ones(), ones(), ones(), s),
    "alpha": lambda s: torch.add(ones(), ones(True), alpha=s),
    "a list of factors": lambda s: F.interpolate(torch.ones(1, 1, 4, requires_grad=True) * 1, scale_factor=[s]),
}


def seen(name: str, leaf: bool) -> Any:
    """Value, flag and gradient of a call; or the class of the error."""
    torch.manual_seed(0)
    s = torch.tensor(0.5, requires_grad=True)
    try:
        out = CALLS[name](s if leaf else s * 1.0)
    except (TypeError, RuntimeError) as error:
        return TypeError if isinstance(error, TypeError) else RuntimeError
    grad = torch.autograd.grad(out.sum(), s, allow_unused=True)[0] if out.requires_grad else None
    return out.tolist(), out.requires_grad, grad


@pytest.mark.parametrize("name", CALLS)
def test_a_gradient_is_never_lost_in_a_number(name: str) -> None:
    for leaf in (True, False):
        wanted = seen(name, leaf)
        for optimize in (False, True):
            with ao.AutogradGraph(optimize=optimize):
                assert seen(name, leaf) == wanted
