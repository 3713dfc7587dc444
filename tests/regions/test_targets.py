"""Runs of torch's engine to some tensors only, which come to a region with an operator that torch differentiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autograd_opt as ao

X = torch.arange(9.0, dtype=torch.float64).reshape(3, 3).sin() + 3 * torch.eye(3, dtype=torch.float64)
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "det": torch.linalg.det, "svdvals": torch.linalg.svdvals, "pinv": torch.linalg.pinv,
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.mT), "qr": lambda x: torch.linalg.qr(x)[0],
    "lu": lambda x: torch.linalg.lu(x)[2], "matrix_exp": lambda x: torch.matrix_exp(x / 4),
    "cumprod": lambda x: x.cumprod(0),
    "lstsq": lambda x: torch.linalg.lstsq(x, x[:, :1])[0], "cdist": lambda x: torch.cdist(x, 2 * x + 1),
    "pdist": F.pdist,
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "grid_sample": lambda x: F.grid_sample(
        x[None, None], x[None, :, :2, None].expand(1, 3, 2, 2) / 10, align_corners=False),
    "unfold": lambda x: x.unfold(0, 2, 1), "renorm": lambda x: x.renorm(2, 0, 0.5),
    "two": lambda x: torch.linalg.det(x) * x.cumprod(1),
}
WRAPS: dict[str, Callable[[Any], Any]] = {
    "region": lambda f: ao.optimize(f, patience=None),
    "as written": lambda f: ao.optimize(f, patience=None, optimize=False)}


def gradients(f: Callable[[Tensor], Tensor], twice: bool) -> list[Tensor | None]:
    """Of a loss of `f`, to a leaf, to what it was computed from, and by `backward(inputs=)`."""
    x = X.clone().requires_grad_()
    h = x * 1
    y = f(h)
    found: list[Tensor | None] = [*torch.autograd.grad(y.sum(), x, retain_graph=True),
                                  *torch.autograd.grad(y.sum(), [x, h], retain_graph=True)]
    y.square().sum().backward(inputs=[x], retain_graph=True)
    found.append(x.grad)
    if twice:
        first, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found += [first, *torch.autograd.grad(first.sin().sum(), x, allow_unused=True)]
    return [None if g is None else g.detach() for g in found]


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_to_some_tensors(name: str, wrap: str) -> None:
    twice = name not in ("pdist", "cdist")
    wanted = gradients(FUNCTIONS[name], twice)
    found = gradients(WRAPS[wrap](FUNCTIONS[name]), twice)
    torch.testing.assert_close(found, wanted)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, 1)),
    "normalized": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.LayerNorm(32), nn.Linear(32, 1)),
    "pooled": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Tanh(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(1, 1)),
    "bent": lambda: nn.Sequential(nn.Flatten(), nn.PReLU(), nn.GroupNorm(2, 36), nn.SiLU(), nn.Linear(36, 1)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_gradient_penalty_by_grad(name: str) -> None:
    found = []
    for wrap in (lambda f: f, WRAPS["region"]):
        torch.manual_seed(0)
        net = NETWORKS[name]().double()
        x = torch.randn(3, 1, 6, 6, dtype=torch.float64).requires_grad_()
        y = wrap(net)(x).sum()
        g, = torch.autograd.grad(y, x, create_graph=True)
        found.append(torch.autograd.grad(g.square().sum() + y, [x, *net.parameters()], allow_unused=True))
    torch.testing.assert_close(found[1], found[0])
