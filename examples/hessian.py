"""The Hessian of a likelihood: standard errors of a logistic regression on real data.

One gradient call per row of the Hessian, the way one writes it by hand.  All rows share the
forward pass, its derivative, and much of the second one.
Data: scikit-learn's breast cancer set (Street, Wolberg and Mangasarian, 1993), 569 patients.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch import Tensor

import autograd_opt as ao

COLUMNS = ["mean texture", "mean smoothness", "mean symmetry", "worst concavity"]


def negative_log_likelihood(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of a logistic regression; `x` has a column of ones."""
    z = x @ beta
    return -(y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).sum()


def gradient_and_hessian(beta: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
    """Gradient, Hessian, and how many kernel calls sharing saved."""
    with ao.AutogradGraph(optimize=True) as graph:
        value = negative_log_likelihood(beta, x, y)
        (gradient,) = torch.autograd.grad(value, beta, create_graph=True)
        rows = [torch.autograd.grad(g, beta, retain_graph=True)[0] for g in gradient]
        return gradient.detach(), torch.stack(rows), graph.report().reused


def main() -> Tensor:
    """Fit by Newton's method; returns the standard errors."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    raw = torch.tensor(data.data[:, [names.index(c) for c in COLUMNS]], dtype=torch.float64)
    x = torch.cat([torch.ones(len(raw), 1, dtype=torch.float64), (raw - raw.mean(0)) / raw.std(0)], 1)
    y = torch.tensor(data.target, dtype=torch.float64)
    beta = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    for step in range(8):
        gradient, hessian, reused = gradient_and_hessian(beta, x, y)
        print(f"step {step}: gradient {float(gradient.norm()):.2e}, {reused} kernel calls not run again")
        with torch.no_grad():
            beta -= torch.linalg.solve(hessian, gradient)
    errors = torch.linalg.inv(hessian).diagonal().sqrt()
    for name, b, e in zip(["constant", *COLUMNS], beta.tolist(), errors.tolist(), strict=True):
        print(f"{name:16s} {b:8.3f} ± {e:.3f}")
    return errors


if __name__ == "__main__":
    main()
