"""The workloads said once for every library of arrays.

A program takes a library `lib` (`exp`, `tanh`, `sum`, `mean`, `derivative`, … as
`libraries` defines them), the workload's data and its leaves, all arrays of that library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..elementwise import BLOCKS, ROUNDS
from ..population import evaluate
from ..science import in_library
from .network_programs import affine, cnn, lstm, mlp, row, transformer

Program = Callable[..., Any]
Data = dict[str, Any]


def chain(lib: Any, data: Data, x: Any, a: Any, b: Any) -> Any:
    for _ in range(data["length"]):
        x = x * a
        x = x + b
    return lib.sum(x)


def sharing(lib: Any, data: Data, t1: Any, t2: Any) -> Any:
    total: Any = 0.0
    for i in range(BLOCKS):
        h = (t1 + t2) * (1.0 + i % data["distinct"])
        for _ in range(ROUNDS):
            h = lib.tanh(h * t1 + t2)
        total = total + h
    return lib.sum(total)


def population(lib: Any, data: Data, *constants: Any) -> Any:
    total: Any = 0.0
    for tree in data["trees"]:
        error = evaluate(tree, data["x"], constants, lib) - data["target"]
        total = total + lib.mean(error * error)
    return total


def layers(lib: Any, data: Data, weights: tuple[Any, ...], columns: list[Any]) -> Any:
    h = lib.concatenate(columns, 1)
    lower, upper = row(lib, data["lower"], h), row(lib, data["upper"], h)
    h = 2.0 * (h - lower) / (upper - lower) - 1.0
    for i in range(0, len(weights) - 2, 2):
        h = lib.tanh(affine(lib, h, weights[i], weights[i + 1]))
    return affine(lib, h, weights[-2], weights[-1])


def pinn_burgers(lib: Any, data: Data, *weights: Any) -> Any:
    def u(x: Any, t: Any) -> Any:
        return layers(lib, data, weights, [x, t])

    u_x = lib.derivative(u, 0)
    x, t = data["x"], data["t"]
    u_t, u_xx = lib.derivative(u, 1)(x, t), lib.derivative(u_x, 0)(x, t)
    residual = u_t + u(x, t) * u_x(x, t) - 0.01 / math.pi * u_xx
    error = data["u_data"] - u(data["x_u"], data["t_u"])
    return lib.mean(error * error) + lib.mean(residual * residual)


def pinn_navier_stokes(lib: Any, data: Data, *leaves: Any) -> Any:
    *weights, lambda_1, lambda_2 = leaves

    def psi(x: Any, y: Any, t: Any) -> Any:
        return layers(lib, data, tuple(weights), [x, y, t])[:, 0:1]

    def p(x: Any, y: Any, t: Any) -> Any:
        return layers(lib, data, tuple(weights), [x, y, t])[:, 1:2]

    def minus_psi(x: Any, y: Any, t: Any) -> Any:
        return -psi(x, y, t)

    d, at = lib.derivative, (data["x"], data["y"], data["t"])
    u, v = d(psi, 1), d(minus_psi, 0)
    u_x, u_y, v_x, v_y = d(u, 0), d(u, 1), d(v, 0), d(v, 1)
    here, there = u(*at), v(*at)
    f_u = (d(u, 2)(*at) + lambda_1 * (here * u_x(*at) + there * u_y(*at)) + d(p, 0)(*at)
           - lambda_2 * (d(u_x, 0)(*at) + d(u_y, 1)(*at)))
    f_v = (d(v, 2)(*at) + lambda_1 * (here * v_x(*at) + there * v_y(*at)) + d(p, 1)(*at)
           - lambda_2 * (d(v_x, 0)(*at) + d(v_y, 1)(*at)))
    errors = (data["u_data"] - here, data["v_data"] - there, f_u, f_v)
    return sum(lib.sum(error * error) for error in errors)


def reshaped(lib: Any, x: Any, shape: tuple[int, int]) -> Any:
    """Row by row."""
    return lib.reshape(x, shape) if hasattr(lib, "reshape") else x.reshape(shape)


def hessian_rosenbrock(lib: Any, data: Data, x: Any) -> Any:
    def rosenbrock(x: Any) -> Any:
        step, start = x[1:] - x[:-1] ** 2, 1.0 - x[:-1]
        return lib.sum(100.0 * step * step + start * start)

    return lib.hessian(rosenbrock, x)


def hessian_network(lib: Any, data: Data, weights: Any) -> Any:
    hidden = data["hidden"]

    def loss(weights: Any) -> Any:
        w1, b1 = reshaped(lib, weights[: 4 * hidden], (4, hidden)), weights[4 * hidden : 5 * hidden]
        w2, b2 = reshaped(lib, weights[5 * hidden : 6 * hidden], (hidden, 1)), weights[6 * hidden :]
        error = affine(lib, lib.tanh(affine(lib, data["inputs"], w1, b1)), w2, b2) - data["targets"]
        return lib.mean(error * error)

    return lib.hessian(loss, weights)


def mechanics(lib: Any, data: Data, *parameters: Any) -> Any:
    return sum(lib.mean(value * value) for value in in_library(lib)(*data["states"], *parameters))


def gp(lib: Any, data: Data, log_length: Any, log_height: Any, log_noise: Any) -> Any:
    x, y, identity = data["x"], data["y"], data["identity"]
    between = lib.between if hasattr(lib, "between") else lambda x: x[:, None] - x[None, :]

    def kernel() -> Any:
        distance = between(x) / lib.exp(log_length)
        return lib.exp(log_height) * lib.exp(-0.5 * distance * distance) + lib.exp(log_noise) * identity

    fit = y.T @ lib.solve(kernel(), y)
    complexity = lib.logdet(kernel())
    inverse = lib.inv(kernel())
    left_out = (inverse @ y) / lib.diagonal(inverse)
    half_log = 0.5 * math.log(2 * math.pi)
    return 0.5 * fit + 0.5 * complexity + half_log * x.shape[0] + lib.mean(left_out * left_out)


PROGRAMS: dict[str, Program] = {
    "chain": chain, "sharing": sharing, "mlp": mlp, "cnn": cnn, "lstm": lstm, "population": population,
    "pinn_burgers": pinn_burgers, "pinn_navier_stokes": pinn_navier_stokes, "hessian_rosenbrock": hessian_rosenbrock,
    "hessian_network": hessian_network, "mechanics": mechanics, "gp": gp, "transformer": transformer,
}
"""By the first word of the workload's name."""


def program_of(label: str) -> Program:
    """The program of a workload."""
    return PROGRAMS[label.split()[0]]
