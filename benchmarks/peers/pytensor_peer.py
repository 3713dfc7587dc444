"""PyTensor: the expression is built, differentiated, rewritten (also merged) and compiled, then called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ..workload import Workload
from .peer import Peer, Step, arrays, mapped, tensors
from .programs import program_of


def library() -> Any:
    import pytensor
    import pytensor.tensor as pt
    from pytensor.gradient import hessian

    def derivative(f: Any, i: int) -> Any:
        return lambda *args: pytensor.grad(pt.sum(f(*args)), args[i])

    names = ("exp", "log", "tanh", "sin", "cos", "sqrt", "sum", "mean", "max", "maximum", "zeros", "sigmoid",
             "diagonal")
    return SimpleNamespace(
        **{name: getattr(pt, name) for name in names}, derivative=derivative,
        concatenate=lambda columns, axis: pt.concatenate(columns, axis=axis),
        hessian=lambda f, x: hessian(f(x), x),
        solve=pt.linalg.solve, inv=pt.linalg.inv, logdet=lambda a: pt.linalg.slogdet(a)[1],
    )


def build(label: str, workload: Workload) -> Step:
    import pytensor
    import pytensor.tensor as pt

    program = program_of(label)
    assert program is not None
    values = [arrays(leaf) for leaf in workload.leaves]
    compiled: list[Any] = []

    def step() -> list[Tensor]:
        if not compiled:
            pytensor.config.floatX = str(values[0].dtype)
            leaves = [pt.tensor(dtype=v.dtype, shape=v.shape) for v in values]
            lib, data = library(), mapped(arrays(workload.data), lambda a: pt.constant(a))
            if label.startswith("pinn"):        # constants cannot be differentiated by
                data |= {name: pytensor.shared(arrays(workload.data[name])) for name in ("x", "y", "t")
                         if name in workload.data}
            out = program(lib, data, *leaves)
            compiled.append(pytensor.function(leaves, pytensor.grad(out, leaves) if workload.backward else out))
        return tensors(compiled[0](*values), workload)

    return step


PEERS = [Peer("PyTensor", "pytensor", build, frozenset((
    "chain", "sharing", "mlp", "lstm", "population", "pinn_burgers", "pinn_navier_stokes", "hessian_rosenbrock",
    "hessian_network", "mechanics", "gp")))]
