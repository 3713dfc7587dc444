"""PyTensor: the expression is built, differentiated, rewritten (also merged) and compiled, then called."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ..workload import Workload
from .peer import Peer, Step, arrays, mapped, tensors
from .programs import program_of

DEEP = 200_000
"""Its rewriting and its printing of code call themselves along a graph."""


def library() -> Any:
    import pytensor
    import pytensor.tensor as pt
    from pytensor.gradient import hessian

    def derivative(f: Any, i: int) -> Any:
        return lambda *args: pytensor.grad(pt.sum(f(*args)), args[i])

    names = ("exp", "log", "tanh", "sin", "cos", "sqrt", "sum", "mean", "max", "maximum", "zeros", "sigmoid",
             "diagonal", "transpose")
    return SimpleNamespace(
        **{name: getattr(pt, name) for name in names}, derivative=derivative,
        pad=pt.pad, concatenate=lambda columns, axis: pt.concatenate(columns, axis=axis),
        hessian=lambda f, x: hessian(f(x), x),
        solve=pt.linalg.solve, inv=pt.linalg.inv, logdet=lambda a: pt.linalg.slogdet(a)[1],
    )


def build(label: str, workload: Workload) -> Step:
    import pytensor
    import pytensor.tensor as pt

    program = program_of(label)
    values = [arrays(leaf) for leaf in workload.leaves]
    compiled: list[Any] = []

    def step() -> list[Tensor]:
        if not compiled:
            sys.setrecursionlimit(DEEP)
            pytensor.config.floatX = str(values[0].dtype)
            leaves = [pt.tensor(dtype=v.dtype, shape=v.shape) for v in values]
            lib, data = library(), mapped(arrays(workload.data), lambda a: pt.constant(a))
            if label.startswith("pinn"):        # constants cannot be differentiated by
                data |= {name: pytensor.shared(arrays(workload.data[name])) for name in ("x", "y", "t")
                         if name in workload.data}
            out = program(lib, data, *leaves)
            if workload.backward:                   # a constant that is differentiated away has a gradient of zero
                out = pytensor.grad(out, leaves, disconnected_inputs="ignore")
            compiled.append(pytensor.function(leaves, out))
        return tensors(compiled[0](*values), workload)

    return step


PEERS = [Peer("PyTensor", "pytensor", build)]
