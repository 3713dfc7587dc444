"""Workloads from formulas: mechanics as sympy writes it, and Gaussian processes as textbooks do."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .workload import Leaf, Workload, torch_leaf


@functools.cache
def double_pendulum() -> Any:
    """Accelerations of a double pendulum and their Jacobian in the state, as sympy derives them.

    Returns the arguments (two angles, two angular velocities, two masses, two lengths, g)
    and the expressions.
    """
    import sympy as sp

    time = sp.symbols("t")
    m1, m2, l1, l2, g = sp.symbols("m1 m2 l1 l2 g", positive=True)
    a, b = sp.Function("a")(time), sp.Function("b")(time)
    x1, y1 = l1 * sp.sin(a), -l1 * sp.cos(a)
    x2, y2 = x1 + l2 * sp.sin(b), y1 - l2 * sp.cos(b)
    kinetic = (m1 * (x1.diff(time) ** 2 + y1.diff(time) ** 2) + m2 * (x2.diff(time) ** 2 + y2.diff(time) ** 2)) / 2
    lagrangian = kinetic - g * (m1 * y1 + m2 * y2)
    equations = [lagrangian.diff(q.diff(time)).diff(time) - lagrangian.diff(q) for q in (a, b)]
    second = sp.symbols("aa bb")
    angles, speeds = sp.symbols("a b"), sp.symbols("va vb")
    plain: list[tuple[Any, Any]] = []
    for order, names in ((2, second), (1, speeds), (0, angles)):
        plain += [(q.diff(time, order), n) for q, n in zip((a, b), names, strict=True)]
    matrix, right = sp.linear_eq_to_matrix([e.subs(plain).expand() for e in equations], *second)
    accelerations = matrix.LUsolve(right)
    state = [*angles, *speeds]
    jacobian = accelerations.jacobian(state)
    return [*state, m1, m2, l1, l2, g], [*accelerations, *jacobian]


def in_library(library: Any) -> Callable[..., Sequence[Any]]:
    """The formulas as a Python function of a library's arrays."""
    import sympy as sp

    arguments, expressions = double_pendulum()
    functions = {name: getattr(library, name) for name in ("sin", "cos", "sqrt")}
    formula: Callable[..., Sequence[Any]] = sp.lambdify(arguments, expressions, modules=[functions])
    return formula


def mechanics(leaf: Leaf = torch_leaf, points: int = 1000) -> Workload:
    """Fit masses, lengths and g to accelerations and their Jacobian at many states."""
    formula = in_library(torch)
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(points, generator=generator) for _ in range(4)]
    constants = [leaf(torch.tensor(v)) for v in (1.0, 0.8, 1.2, 0.7, 9.81)]

    def forward(*parameters: Tensor) -> Tensor:
        total = 0.0
        for value in formula(*states, *parameters):
            total = total + (value**2).mean()
        return total  # type: ignore[return-value]

    return Workload("mechanics", constants, forward, data={"states": states})


def gp(leaf: Leaf = torch_leaf, points: int = 200) -> Workload:
    """Marginal likelihood and leave-one-out error of a Gaussian process, each term from the formula."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 10, points, dtype=torch.float64)
    y = torch.sin(x) + 0.1 * torch.randn(points, generator=generator, dtype=torch.float64)
    scales = [leaf(torch.tensor(v, dtype=torch.float64)) for v in (0.0, 0.0, -2.0)]

    def kernel(log_length: Tensor, log_height: Tensor, log_noise: Tensor) -> Tensor:
        squared = ((x[:, None] - x[None, :]) / log_length.exp()) ** 2
        identity = torch.eye(points, dtype=torch.float64)
        return log_height.exp() * torch.exp(-0.5 * squared) + log_noise.exp() * identity

    def forward(*parameters: Tensor) -> Tensor:
        fit = y @ torch.linalg.solve(kernel(*parameters), y)
        complexity = torch.logdet(kernel(*parameters))
        inverse = torch.linalg.inv(kernel(*parameters))
        left_out = ((inverse @ y) / inverse.diagonal()).pow(2).mean()
        return 0.5 * fit + 0.5 * complexity + 0.5 * points * math.log(2 * math.pi) + left_out

    return Workload("gp", scales, forward, data={"x": x, "y": y, "identity": torch.eye(points, dtype=torch.float64)})
