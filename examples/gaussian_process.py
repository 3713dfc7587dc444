"""A Gaussian process whose likelihood is written as in the textbook.

    log p(y) = −½ yᵀ K⁻¹ y − ½ log det K − n/2 log 2π

Each term names K and factorizes it for itself.  Written plainly, kernel matrix and
factorization are repeated; recorded with `optimize=True`, they run once.
"""

from __future__ import annotations

import argparse
import functools
import math

import torch
from torch import Tensor

import autograd_opt as ao


# %%
def kernel(a: Tensor, b: Tensor, scale: Tensor, length: Tensor) -> Tensor:
    """Squared exponential."""
    return scale.exp() * torch.exp(-0.5 * ((a[:, None] - b[None, :]) / length.exp()) ** 2)


@functools.cache
def identity(n: int) -> Tensor:
    """One tensor for each size: two tensors from outside are never taken for one value, however equal they are."""
    return torch.eye(n, dtype=torch.float64)


def covariance(x: Tensor, theta: Tensor) -> Tensor:
    """The kernel matrix of the data with its noise."""
    return kernel(x, x, theta[0], theta[1]) + theta[2].exp() * identity(len(x))


# %% [markdown]
# Two terms, two functions, each with a factorization of its own.
# %%
def data_fit(x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """yᵀ K⁻¹ y."""
    factor = torch.linalg.cholesky(covariance(x, theta))
    z = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    return (z * z).sum()


def complexity(x: Tensor, theta: Tensor) -> Tensor:
    """log det K."""
    return 2 * torch.linalg.cholesky(covariance(x, theta)).diagonal().log().sum()


def negative_log_likelihood(x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """The three terms."""
    return 0.5 * data_fit(x, y, theta) + 0.5 * complexity(x, theta) + 0.5 * len(x) * math.log(2 * math.pi)


# %%
def fit(steps: int) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """Fit scale, length and noise; returns data, parameters, and the objective of every step."""
    torch.manual_seed(0)
    x = torch.linspace(0, 5, 60, dtype=torch.float64)
    y = torch.sin(2 * x) + 0.1 * torch.randn(60, dtype=torch.float64)
    theta = torch.tensor([0.0, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theta], 0.1)
    values: list[float] = []
    for step in range(steps):
        optimizer.zero_grad()
        with ao.AutogradGraph(optimize=True) as graph:
            objective = negative_log_likelihood(x, y, theta)
            objective.backward()
            values.append(objective.item())
            if step == 0:
                print(graph.report())
        optimizer.step()
    scale, length, noise = theta.detach().exp().tolist()
    print(f"objective {values[0]:.2f} → {values[-1]:.2f}; scale {scale:.2f}, length {length:.2f}, noise {noise:.4f}")
    return x, y, theta.detach(), values


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Fit; returns the first and the last objective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    _, _, _, values = fit(parser.parse_args(arguments).steps)
    return values[0], values[-1]


if __name__ == "__main__":
    main()

# %% [notebook]
# x, y, theta, values = fit(60)
# %% [markdown]
# ## The graph of one likelihood
#
# Nodes of one colour are one value: the second kernel matrix and its factorization did not run. Hold the pointer over
# a node for the lines that wrote it.
# %% [notebook]
# from IPython.display import SVG
#
# with ao.AutogradGraph(optimize=True, name="likelihood") as graph:
#     objective = negative_log_likelihood(x, y, theta.clone().requires_grad_())
#     picture = graph.draw()
# SVG(picture)
# %% [markdown]
# ## The prediction
# %% [notebook]
# import matplotlib.pyplot as plt
#
# new = torch.linspace(-0.5, 6, 100, dtype=torch.float64)
# factor = torch.linalg.cholesky(covariance(x, theta))
# cross = kernel(new, x, theta[0], theta[1])
# mean = cross @ torch.cholesky_solve(y[:, None], factor)[:, 0]
# left = torch.linalg.solve_triangular(factor, cross.T, upper=False)
# deviation = (theta[0].exp() - (left * left).sum(0)).clamp(min=0).sqrt()
# figure, axes = plt.subplots(figsize=(5, 2.4), dpi=72)
# axes.plot(x, y, ".", color="#57606a")
# axes.plot(new, mean)
# axes.fill_between(new, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25)
# plt.show()
