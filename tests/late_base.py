"""A tensor that came to require grad by a write; graphs look for views that are older than it."""

from __future__ import annotations

import torch

import autograd_opt as ao


def late_base() -> tuple[torch.Tensor, torch.Tensor]:
    """Such a tensor, and a view of it that was made before."""
    base = torch.zeros(2)
    view = base.view(2)
    with ao.AutogradGraph():
        base.mul_(torch.ones(2, requires_grad=True))
    return base, view
