"""A physics-informed network for Burgers' equation, written as its paper writes it.

    u_t + u u_x = (0.01 / π) u_xx,   u(0, x) = −sin(π x),   u(t, ±1) = 0

Every derivative is a `grad` call of its own (Raissi, Perdikaris and Karniadakis, 2019), so the
backward runs repeat much of each other.  With `optimize=True` they share it.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn

import autograd_opt as ao

# %%
VISCOSITY = 0.01 / math.pi


def make_network(width: int = 20, depth: int = 4) -> nn.Sequential:
    """(t, x) → u, tanh throughout."""
    layers: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


# %% [markdown]
# Each derivative is one `grad` call, with `create_graph=True` so that it can be differentiated again. `u_x` is asked
# for twice, once for itself and once on the way to `u_xx`, as one writes it down.
# %%
def derivative(u: Tensor, v: Tensor) -> Tensor:
    """du/dv, itself differentiable."""
    return torch.autograd.grad(u.sum(), v, create_graph=True)[0]


def loss_of(net: nn.Module, t: Tensor, x: Tensor) -> Tensor:
    """Residual inside, initial and boundary conditions, each in the mean square."""
    u = net(torch.stack([t, x], 1))[:, 0]
    u_t = derivative(u, t)
    u_x = derivative(u, x)
    u_xx = derivative(derivative(u, x), x)
    residual = u_t + u * u_x - VISCOSITY * u_xx
    xs = torch.linspace(-1, 1, 50)
    start = net(torch.stack([torch.zeros_like(xs), xs], 1))[:, 0] + torch.sin(math.pi * xs)
    ts = torch.linspace(0, 1, 25)
    sides = torch.cat([net(torch.stack([ts, s * torch.ones_like(ts)], 1))[:, 0] for s in (-1.0, 1.0)])
    return residual.square().mean() + start.square().mean() + sides.square().mean()


# %% [markdown]
# Training is an ordinary loop. The `with` line is the only one that names this library.
# %%
def train(steps: int) -> tuple[nn.Module, list[float]]:
    """Train a network; returns it, and the loss of every step."""
    torch.manual_seed(0)
    net = make_network()
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    t = torch.rand(200).requires_grad_()
    x = (2 * torch.rand(200) - 1).requires_grad_()
    losses: list[float] = []
    for step in range(steps):
        optimizer.zero_grad()
        with ao.AutogradGraph(optimize=True) as graph:
            loss = loss_of(net, t, x)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                report = graph.report()
                print(f"{report.reused} kernel calls of the first step were not run again")
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step:4d}  loss {losses[-1]:.4f}")
    print(f"loss {losses[0]:.4f} → {losses[-1]:.4f}")
    return net, losses


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Train; returns the first and the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    _, losses = train(parser.parse_args(arguments).steps)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

# %% [notebook]
# net, losses = train(200)
# %% [markdown]
# ## What the network has learned
#
# Two hundred steps show the shape, not yet the shock in full: training goes on for thousands in the paper.
# %% [notebook]
# import matplotlib.pyplot as plt
#
# ts, xs = torch.linspace(0, 1, 80), torch.linspace(-1, 1, 120)
# with torch.no_grad():
#     grid = torch.cartesian_prod(ts, xs)
#     u = net(grid).reshape(80, 120)
# figure, axes = plt.subplots(figsize=(5, 2.6), dpi=72)
# picture = axes.pcolormesh(ts, xs, u.T, cmap="RdBu_r", shading="auto")
# figure.colorbar(picture, label="u")
# axes.set(xlabel="t", ylabel="x")
# plt.show()
# %% [markdown]
# ## What is shared in one step
#
# The report of one step: which lines are one value. Most groups are pieces of `tanh` and of the network's layers that
# the four `grad` calls have in common.
# %% [notebook]
# t = torch.rand(200).requires_grad_()
# x = (2 * torch.rand(200) - 1).requires_grad_()
# with ao.AutogradGraph(optimize=True, name="Burgers") as graph:
#     loss = loss_of(net, t, x)
#     report = graph.report(loss)
# print("\n".join(report.lines()))
# for group in report.groups[:8]:
#     print(f"{len(group.nodes)} × {group.expression}  {group.type}")
