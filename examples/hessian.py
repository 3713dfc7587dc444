"""The Hessian of a likelihood: standard errors of a logistic regression on real data.

The likelihood is written as in the textbook, p(x) named in both of its terms; the Hessian row
by row, one gradient call each.  What the likelihood computes twice would be differentiated twice,
and once more in every row; with `optimize=True` it is one value.
Data: scikit-learn's breast cancer set (Street, Wolberg and Mangasarian, 1993), 569 patients.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor

import autograd_opt as ao

# %%
COLUMNS = ["mean texture", "mean smoothness", "mean symmetry", "worst concavity"]


def probability(beta: Tensor, x: Tensor) -> Tensor:
    """p(y = 1) of a logistic regression; `x` has a column of ones."""
    return torch.sigmoid(x @ beta)


def negative_log_likelihood(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """−Σ y log p + (1 − y) log(1 − p)"""
    return -(y * probability(beta, x).log() + (1 - y) * (1 - probability(beta, x)).log()).sum()


# %% [markdown]
# The Hessian row by row: one `grad` call for each component of the gradient.
# %%
def gradient_and_hessian(beta: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Gradient, Hessian, and the nodes that each row starts from: as written, and merged."""
    with ao.AutogradGraph(optimize=True) as graph:
        value = negative_log_likelihood(beta, x, y)
        (gradient,) = torch.autograd.grad(value, beta, create_graph=True)
        nodes = graph.report(gradient).nodes
        rows = [torch.autograd.grad(g, beta, retain_graph=True)[0] for g in gradient]
        return gradient.detach(), torch.stack(rows), nodes


# %% [markdown]
# Newton's method needs gradient and Hessian at each step; the inverse of the last Hessian has the variances.
# %%
def main() -> Tensor:
    """Fit by Newton's method; returns the standard errors."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    raw = torch.tensor(data.data[:, [names.index(c) for c in COLUMNS]], dtype=torch.float64)
    x = torch.cat([torch.ones(len(raw), 1, dtype=torch.float64), (raw - raw.mean(0)) / raw.std(0)], 1)
    y = torch.tensor(data.target, dtype=torch.float64)
    beta = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    for step in range(8):
        gradient, hessian, (written, merged) = gradient_and_hessian(beta, x, y)
        print(f"step {step}: gradient {float(gradient.norm()):.2e}; each row differentiates a graph of {merged} nodes "
              f"instead of {written}")
        with torch.no_grad():
            beta -= torch.linalg.solve(hessian, gradient)
    errors = torch.linalg.inv(hessian).diagonal().sqrt()
    for name, b, e in zip(["constant", *COLUMNS], beta.tolist(), errors.tolist(), strict=True):
        print(f"{name:16s} {b:8.3f} ± {e:.3f}")
    return errors


if __name__ == "__main__":
    main()

# %% [notebook]
# errors = main()
# %% [markdown]
# ## Is it proved that sharing changed nothing?
#
# `verify` compares the optimized graph of the likelihood with the one as written.
# %% [notebook]
# data = load_breast_cancer()
# x = torch.tensor(data.data[:, :2] / data.data[:, :2].mean(0))
# y = torch.tensor(data.target, dtype=torch.float64)
# beta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
# with ao.AutogradGraph(optimize=True, name="likelihood") as graph:
#     value = negative_log_likelihood(beta, x, y)
#     print(graph)
#     print(graph.verify(value))
