"""CasADi: matrix expressions (MX), its own reverse mode, `cse`, then its virtual machine.

It has matrices only, no arrays of three dimensions, and computes in double precision; its results
are rounded to the others' type to compare.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from ..workload import Workload
from .peer import Peer, Step, arrays, mapped, tensors
from .programs import program_of


def library() -> Any:
    import casadi as ca

    def total(x: Any) -> Any:
        return ca.sum1(ca.sum2(x))

    def row(vector: Any, count: int) -> Any:
        return ca.repmat(vector.T if vector.shape[0] > 1 else vector, count, 1)

    def derivative(f: Any, i: int) -> Any:
        return lambda *args: ca.gradient(total(f(*args)), args[i])

    return SimpleNamespace(
        **{name: getattr(ca, name) for name in ("exp", "log", "tanh", "sin", "cos", "sqrt", "solve", "inv")},
        sum=lambda x, axis=None: total(x) if axis is None else ca.sum2(x), mean=lambda x: total(x) / x.numel(),
        hessian=lambda f, x: ca.hessian(f(x), x)[0], row=row, derivative=derivative, maximum=ca.fmax,
        concatenate=lambda columns, axis: ca.horzcat(*columns), diagonal=ca.diag,
        reshape=lambda x, shape: ca.reshape(x, shape[1], shape[0]).T,       # row by row
        between=lambda x: ca.repmat(x, 1, x.numel()) - ca.repmat(x.T, x.numel(), 1),
        logdet=lambda a: ca.log(ca.det(a)),
    )


def build(label: str, workload: Workload) -> Step:
    import casadi as ca

    program = program_of(label)
    values = [arrays(leaf).astype(np.float64) for leaf in workload.leaves]
    shapes = [v.shape for v in values]
    compiled: list[Any] = []
    fixed: list[Any] = []

    def step() -> list[Tensor]:
        if not compiled:
            leaves = [ca.MX.sym(f"x{i}", *(v.shape or (1, 1))) for i, v in enumerate(values)]
            data = mapped(arrays(workload.data), lambda a: ca.MX(ca.DM(a.astype(np.float64))))
            points = {name: data[name] for name in ("x", "y", "t") if label.startswith("pinn") and name in data}
            symbols = {name: ca.MX.sym(name, *value.shape) for name, value in points.items()}
            out = program(library(), data | symbols, *leaves)       # constants cannot be differentiated by
            results = [ca.gradient(out, leaf) for leaf in leaves] if workload.backward else [out]
            compiled.append(ca.Function("step", [*leaves, *symbols.values()], ca.cse(results)))
            fixed.extend(ca.DM(arrays(workload.data[name]).astype(np.float64)) for name in symbols)
        found = compiled[0].call([*(ca.DM(v) for v in values), *fixed])
        if not workload.backward:
            return tensors([np.array(found[0])], workload)
        return tensors([np.array(g).reshape(shape) for g, shape in zip(found, shapes, strict=True)], workload)

    return step


CANNOT = dict.fromkeys(("transformer", "cnn", "lstm"), "matrices only, no array of three dimensions")
PEERS = [Peer("CasADi", "casadi", build, CANNOT)]
