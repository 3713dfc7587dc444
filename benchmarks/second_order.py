"""Workloads with gradients of gradients: physics-informed networks and Hessians.

The networks follow Raissi, Perdikaris and Karniadakis (2019), one `grad` call for each
derivative in the equation, as the authors' programs have it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from .workload import Leaf, Workload, torch_leaf


def derivative(y: Tensor, x: Tensor) -> Tensor:
    """∂y/∂x for each point, differentiable again."""
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def layers(widths: list[int], leaf: Leaf) -> list[Tensor]:
    """Weights and biases of a tanh network, Xavier-initialized."""
    generator = torch.Generator().manual_seed(0)
    parameters = []
    for n, m in itertools.pairwise(widths):
        parameters.append(leaf(torch.randn(n, m, generator=generator) * math.sqrt(2 / (n + m))))
        parameters.append(leaf(torch.zeros(1, m)))
    return parameters


def network(parameters: tuple[Tensor, ...], columns: list[Tensor], lower: Tensor, upper: Tensor) -> Tensor:
    """tanh layers over inputs scaled to [-1, 1]."""
    h = 2.0 * (torch.cat(columns, 1) - lower) / (upper - lower) - 1.0
    for i in range(0, len(parameters) - 2, 2):
        h = torch.tanh(torch.add(torch.matmul(h, parameters[i]), parameters[i + 1]))
    return torch.add(torch.matmul(h, parameters[-2]), parameters[-1])


def points(low: list[float], high: list[float], count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [a + (b - a) * torch.rand(count, 1, generator=generator) for a, b in zip(low, high, strict=True)]


def pinn_burgers(leaf: Leaf = torch_leaf, data: int = 100, collocation: int = 1000) -> Workload:
    """u_t + u u_x = (0.01/π) u_xx through eight layers of 20."""
    low, high = [-1.0, 0.0], [1.0, 1.0]
    lower, upper = torch.tensor(low), torch.tensor(high)
    parameters = layers([2, *[20] * 8, 1], leaf)
    x_u, t_u = points(low, high, data)
    u_data = -torch.sin(math.pi * x_u) * torch.exp(-t_u)
    x_f, t_f = (v.requires_grad_() for v in points(low, high, collocation))

    def net_u(weights: tuple[Tensor, ...], x: Tensor, t: Tensor) -> Tensor:
        return network(weights, [x, t], lower, upper)

    def net_f(weights: tuple[Tensor, ...], x: Tensor, t: Tensor) -> Tensor:
        u = net_u(weights, x, t)
        u_t = derivative(u, t)
        u_x = derivative(u, x)
        u_xx = derivative(u_x, x)
        return u_t + u * u_x - (0.01 / math.pi) * u_xx

    def forward(*weights: Tensor) -> Tensor:
        error = u_data - net_u(weights, x_u, t_u)
        return torch.mean(error**2) + torch.mean(net_f(weights, x_f, t_f) ** 2)

    return Workload("pinn_burgers", parameters, forward, data={
        "lower": lower, "upper": upper, "x_u": x_u, "t_u": t_u, "u_data": u_data, "x": x_f, "t": t_f})


def pinn_navier_stokes(leaf: Leaf = torch_leaf, count: int = 1000) -> Workload:
    """Flow past a cylinder: stream function and pressure through four layers of 50, two unknown coefficients."""
    low, high = [1.0, -2.0, 0.0], [8.0, 2.0, 20.0]
    lower, upper = torch.tensor(low), torch.tensor(high)
    parameters = [*layers([3, *[50] * 4, 2], leaf), leaf(torch.tensor([0.9])), leaf(torch.tensor([0.02]))]
    x, y, t = (v.requires_grad_() for v in points(low, high, count))
    u_data, v_data = torch.cos(x).detach(), torch.sin(y).detach()

    def net(weights: tuple[Tensor, ...], lambda_1: Tensor, lambda_2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        psi_and_p = network(weights, [x, y, t], lower, upper)
        psi, p = psi_and_p[:, 0:1], psi_and_p[:, 1:2]
        u = derivative(psi, y)
        v = -derivative(psi, x)
        u_t = derivative(u, t)
        u_x = derivative(u, x)
        u_y = derivative(u, y)
        u_xx = derivative(u_x, x)
        u_yy = derivative(u_y, y)
        v_t = derivative(v, t)
        v_x = derivative(v, x)
        v_y = derivative(v, y)
        v_xx = derivative(v_x, x)
        v_yy = derivative(v_y, y)
        p_x = derivative(p, x)
        p_y = derivative(p, y)
        f_u = u_t + lambda_1 * (u * u_x + v * u_y) + p_x - lambda_2 * (u_xx + u_yy)
        f_v = v_t + lambda_1 * (u * v_x + v * v_y) + p_y - lambda_2 * (v_xx + v_yy)
        return u, v, f_u, f_v

    def forward(*leaves: Tensor) -> Tensor:
        u, v, f_u, f_v = net(leaves[:-2], leaves[-2], leaves[-1])
        return (
            torch.sum((u_data - u) ** 2) + torch.sum((v_data - v) ** 2) + torch.sum(f_u**2) + torch.sum(f_v**2)
        )

    return Workload("pinn_navier_stokes", parameters, forward, data={
        "lower": lower, "upper": upper, "x": x, "y": y, "t": t, "u_data": u_data, "v_data": v_data})


def hessian_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Row by row, as a textbook has it: one `grad` for each entry of the gradient."""
    (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
    rows = [torch.autograd.grad(entry, x, retain_graph=True)[0] for entry in gradient.unbind()]
    return torch.stack(rows)


def hessian_rosenbrock(leaf: Leaf = torch_leaf, size: int = 20) -> Workload:
    """The Hessian of Rosenbrock's function."""

    def rosenbrock(x: Tensor) -> Tensor:
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

    start = torch.linspace(-1.0, 1.0, size)
    return Workload("hessian_rosenbrock", [leaf(start)], lambda x: hessian_of(rosenbrock, x), backward=False)


def hessian_network(leaf: Leaf = torch_leaf, hidden: int = 8, batch: int = 64) -> Workload:
    """The Hessian of a small network's loss in all of its weights."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batch, 4, generator=generator)
    targets = torch.sin(inputs.sum(1, keepdim=True))
    sizes = [4 * hidden, hidden, hidden, 1]
    start = torch.randn(sum(sizes), generator=generator) * 0.3

    def loss(weights: Tensor) -> Tensor:
        w1, b1, w2, b2 = weights.split(sizes)
        h = torch.tanh(inputs @ w1.view(4, hidden) + b1)
        return ((h @ w2.view(hidden, 1) + b2 - targets) ** 2).mean()

    return Workload("hessian_network", [leaf(start)], lambda x: hessian_of(loss, x), backward=False,
                    data={"inputs": inputs, "targets": targets, "hidden": hidden})
