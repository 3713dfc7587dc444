"""Differentiated simulations and equations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from . import algorithm
from .training import mlp, parameters

Tensor = torch.Tensor


def derivative(y: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


@algorithm
def heat_network() -> dict[str, Any]:
    net = mlp(2, 12, 12, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
    x, t = torch.rand(12, 1, requires_grad=True), torch.rand(12, 1, requires_grad=True)

    def closure() -> Tensor:
        optimizer.zero_grad()
        u = net(torch.cat([x, t], 1))
        u_x = derivative(u, x)
        loss = (derivative(u, t) - 0.1 * derivative(u_x, x)).square().mean()
        loss = loss + (net(torch.cat([x, 0 * t], 1)) - torch.sin(3 * x)).square().mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(2)]
    return {"losses": losses, "x": x.grad, **parameters(net)}


@algorithm
def beam_of_fourth_order() -> dict[str, Any]:
    net = mlp(1, 10, 1)
    x = torch.linspace(0, 1, 9)[:, None].requires_grad_()
    u = net(x)
    orders = [u]
    for _ in range(4):
        orders.append(derivative(orders[-1], x))
    loss = (orders[4] - 1).square().mean() + u[0, 0] ** 2 + orders[1][0, 0] ** 2 + orders[2][-1, 0] ** 2
    loss.backward()
    return {"orders": [o.detach() for o in orders], **{k: p.grad for k, p in net.named_parameters()}}


@algorithm
def hamiltonian_network() -> dict[str, Any]:
    net = mlp(4, 12, 1)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(3):
        z, target = torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)
        for _ in range(2):
            dq, dp = derivative(net(z), z).chunk(2, 1)
            z = z + 0.1 * torch.cat([dp, -dq], 1)
        loss = F.mse_loss(z, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(net)


@algorithm
def lagrangian_network() -> dict[str, Any]:
    """Accelerations from the Euler-Lagrange equation: a Hessian by the velocities, solved a row."""
    net = mlp(4, 8, 1, act=nn.Softplus)
    q, v = torch.randn(2), torch.randn(2)

    def lagrangian(q: Tensor, v: Tensor) -> Tensor:
        return net(torch.cat([q, v])).squeeze() + 0.5 * v @ v

    mass = torch.func.hessian(lagrangian, 1)(q, v)
    mixed = torch.func.jacrev(torch.func.grad(lagrangian, 1), 0)(q, v)
    force = torch.func.grad(lagrangian, 0)(q, v)
    a = torch.linalg.solve(mass, force - mixed @ v)
    loss = a.square().sum()
    loss.backward()
    return {"a": a.detach(), **{k: p.grad for k, p in net.named_parameters()}}


@algorithm
def neural_ode() -> dict[str, Any]:
    net = mlp(2, 10, 2)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(2):
        z, h = torch.randn(5, 2), 0.1
        for _ in range(4):
            k1 = net(z)
            k2 = net(z + h / 2 * k1)
            k3 = net(z + h / 2 * k2)
            k4 = net(z + h * k3)
            z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        loss = (z - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(net)


@algorithm
def continuous_flow() -> dict[str, Any]:
    net = mlp(2, 8, 2)
    z, log = torch.randn(5, 2, requires_grad=True), torch.zeros(5)
    for _ in range(3):
        dz = net(z)
        log = log - 0.1 * sum(torch.autograd.grad(dz[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
        z = z + 0.1 * dz
    loss = (0.5 * z.square().sum(1) - log).mean()
    loss.backward()
    return {"loss": loss.detach(), **{k: p.grad for k, p in net.named_parameters()}}


@algorithm
def adjoint_method() -> dict[str, Any]:
    """A Function whose backward integrates the adjoint equation with gradients of its own."""
    net = mlp(2, 8, 2)
    weights = tuple(net.parameters())

    class Flow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor, *_: Tensor) -> Tensor:
            with torch.no_grad():
                for _ in range(5):
                    z = z + 0.1 * net(z)
            ctx.save_for_backward(z)
            return z

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
            z, = ctx.saved_tensors
            a, sums = cotangents[0], [torch.zeros_like(w) for w in weights]
            for _ in range(5):
                with torch.enable_grad():
                    z = z.detach().requires_grad_()
                    f = net(z)
                    da, *dw = torch.autograd.grad(f, (z, *weights), a)
                z, a = z.detach() - 0.1 * f.detach(), a + 0.1 * da
                sums = [s + 0.1 * d for s, d in zip(sums, dw, strict=True)]
            return (a, *sums)

    z = torch.randn(4, 2, requires_grad=True)
    Flow.apply(z, *weights).square().sum().backward()
    return {"z": z.grad, **{k: p.grad for k, p in net.named_parameters()}}


@algorithm
def deep_equilibrium() -> dict[str, Any]:
    """A fixed point found without a graph; a hook on it solves for the implicit gradient."""
    inner, inject = nn.Linear(4, 4), nn.Linear(3, 4)
    with torch.no_grad():
        inner.weight.mul_(0.3)
    x = torch.randn(5, 3)

    def f(z: Tensor) -> Tensor:
        return torch.tanh(inner(z) + inject(x))

    with torch.no_grad():
        z = torch.zeros(5, 4)
        for _ in range(20):
            z = f(z)
    out = f(z)
    z0 = out.detach().requires_grad_()
    f0 = f(z0)

    def solve(g: Tensor) -> Tensor:
        y = g
        for _ in range(10):
            y = torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g
        return y

    out.register_hook(solve)
    out.square().mean().backward()
    return {"out": out.detach(), **{k: p.grad for k, p in [*inner.named_parameters(), *inject.named_parameters()]}}


@algorithm
def springs() -> dict[str, Any]:
    """Stiffness and rest lengths of a net of springs through a hundred symplectic steps."""
    at = torch.tensor([[0.0, 0.0], [1.0, 0.1], [0.9, 1.0], [0.1, 1.1]], requires_grad=True)
    edges = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
    stiff, rest = torch.full((5,), 3.0, requires_grad=True), torch.ones(5, requires_grad=True)
    position, velocity = at, torch.zeros(4, 2)
    for _ in range(20):
        a, b = position[edges[:, 0]], position[edges[:, 1]]
        along = b - a
        length = along.norm(dim=1, keepdim=True)
        pull = stiff[:, None] * (length - rest[:, None]) * along / length
        force = torch.zeros_like(position).index_add(0, edges[:, 0], pull).index_add(0, edges[:, 1], -pull)
        velocity = 0.99 * velocity + 0.05 * force
        position = position + 0.05 * velocity
    position[2].square().sum().backward()
    return {"position": position.detach(), "at": at.grad, "stiff": stiff.grad, "rest": rest.grad}


@algorithm
def diffusion_on_a_grid() -> dict[str, Any]:
    """Conductivity of a material from what a stencil, written in place, made of a start."""
    k, u0 = torch.rand(8, 8, requires_grad=True), torch.rand(8, 8)
    u = u0.clone()
    for _ in range(5):
        new = u.clone()
        lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        new[1:-1, 1:-1] += 0.2 * k[1:-1, 1:-1] * lap
        new[0, :] = new[1, :]
        new[:, -1] = 0
        u = new
    loss = (u - 0.3).square().mean()
    loss.backward()
    return {"u": u.detach(), "k": k.grad}


@algorithm
def waves_by_fourier() -> dict[str, Any]:
    """A Fourier layer: complex weights on the low modes of a real field."""
    weights = torch.randn(2, 2, 4, dtype=torch.complex128, requires_grad=True)
    local = nn.Conv1d(2, 2, 1)
    x = torch.randn(3, 2, 16)
    for _ in range(2):
        modes = torch.fft.rfft(x)
        out = torch.zeros_like(modes)
        out[..., :4] = torch.einsum("bim,iom->bom", modes[..., :4], weights)
        x = F.gelu(torch.fft.irfft(out, n=16) + local(x))
    loss = x.square().mean()
    loss.backward()
    return {"loss": loss.detach(), "weights": weights.grad, "local": local.weight.grad}


@algorithm
def optimal_control() -> dict[str, Any]:
    controls = torch.zeros(10, 1, requires_grad=True)
    optimizer = torch.optim.Adam([controls], 0.1)
    costs = []
    for _ in range(4):
        angle, speed, cost = torch.tensor(3.0), torch.tensor(0.0), torch.zeros(())
        for u in controls:
            speed = speed + 0.1 * (9.8 * torch.sin(angle) + u.clamp(-2, 2).squeeze())
            angle = angle + 0.1 * speed
            cost = cost + angle ** 2 + 0.1 * speed ** 2 + 0.001 * u.square().sum()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    return {"costs": costs, "controls": controls.detach()}


@algorithm
def molecular_forces() -> dict[str, Any]:
    """Forces are minus the gradient of a network's energy, trained against given forces."""
    net = mlp(1, 12, 1, act=nn.SiLU)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(2):
        position, forces = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3)
        i, j = torch.triu_indices(5, 5, 1)
        distance = (position[i] - position[j]).norm(dim=1, keepdim=True)
        window = 0.5 * (torch.cos(torch.pi * distance / 5) + 1) * (distance < 5)
        energy = (net(distance) * window).sum()
        force = -torch.autograd.grad(energy, position, create_graph=True)[0]
        loss = (force - forces).square().mean() + 0.01 * energy ** 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(net)


@algorithm
def convex_transport_map() -> dict[str, Any]:
    """The gradient of an input-convex network as a map, its Jacobian's determinant in the loss."""
    first, second, skip = nn.Linear(2, 8), nn.Linear(8, 1, bias=False), nn.Linear(2, 1)

    def potential(x: Tensor) -> Tensor:
        h = F.softplus(first(x))
        return F.linear(h, F.softplus(second.weight)) + skip(x) + 0.5 * x.square().sum(1, keepdim=True)

    x = torch.randn(4, 2, requires_grad=True)
    y = derivative(potential(x), x)
    jacobian = torch.stack([derivative(y[:, i], x) for i in range(2)], 1)
    loss = (0.5 * y.square().sum(1) - torch.linalg.slogdet(jacobian)[1]).mean()
    loss.backward()
    return {"y": y.detach(), "j": jacobian.detach(), "w": first.weight.grad, "s": second.weight.grad, "x": x.grad}


@algorithm
def factored_tensor() -> dict[str, Any]:
    target = torch.randn(4, 5, 6)
    factors = [torch.randn(n, 3, requires_grad=True) for n in (4, 5, 6)]
    optimizer = torch.optim.ASGD(factors, 1e-2)
    for _ in range(3):
        loss = (torch.einsum("ir,jr,kr->ijk", *factors) - target).pow(2).sum()
        loss = loss + 0.1 * sum(torch.linalg.matrix_norm(f, "nuc") for f in factors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {str(i): f.detach() for i, f in enumerate(factors)}
