"""HIPS autograd: NumPy with a tape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ..workload import Workload
from .peer import Peer, Step, arrays, tensors
from .programs import program_of


def library() -> Any:
    import autograd
    import autograd.numpy as anp

    names = ("exp", "log", "tanh", "sin", "cos", "sqrt", "sum", "mean", "max", "maximum", "concatenate", "zeros",
             "transpose")
    return SimpleNamespace(
        pad=lambda x, widths: anp.pad(x, widths, "constant"),
        **{name: getattr(anp, name) for name in names}, derivative=autograd.elementwise_grad,
        sigmoid=lambda x: 0.5 * (anp.tanh(0.5 * x) + 1.0), hessian=lambda f, x: autograd.hessian(f)(x),
        solve=anp.linalg.solve, inv=anp.linalg.inv, logdet=lambda a: anp.linalg.slogdet(a)[1],
        diagonal=lambda a: anp.diagonal(a, 0, -1, -2),
    )


def build(label: str, workload: Workload) -> Step:
    import autograd

    program = program_of(label)
    lib, data, values = library(), arrays(workload.data), [arrays(leaf) for leaf in workload.leaves]

    def loss(leaves: Any) -> Any:
        return program(lib, data, *leaves)

    def step() -> list[Tensor]:
        if not workload.backward:
            return tensors(loss(values), workload)
        return tensors(autograd.grad(loss)(tuple(values)), workload)

    return step


PEERS = [Peer("HIPS autograd", "autograd", build, retraces=False)]
