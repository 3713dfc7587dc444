"""CasADi: matrix expressions (MX), its own reverse mode, `cse`, then its virtual machine.

It has no broadcasting of rows and computes in double precision only, so that it takes the
workloads that are elementwise, and its results are rounded to the others' type to compare.
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

    return SimpleNamespace(
        **{name: getattr(ca, name) for name in ("exp", "log", "tanh", "sin", "cos", "sqrt")},
        sum=total, mean=lambda x: total(x) / x.numel(), hessian=lambda f, x: ca.hessian(f(x), x)[0],
    )


def build(label: str, workload: Workload) -> Step:
    import casadi as ca

    program = program_of(label)
    assert program is not None
    values = [arrays(leaf).astype(np.float64) for leaf in workload.leaves]
    shapes = [v.shape for v in values]
    compiled: list[Any] = []

    def step() -> list[Tensor]:
        if not compiled:
            leaves = [ca.MX.sym(f"x{i}", *(v.shape or (1, 1))) for i, v in enumerate(values)]
            data = mapped(arrays(workload.data), lambda a: ca.MX(ca.DM(a.astype(np.float64))))
            out = program(library(), data, *leaves)
            results = [ca.gradient(out, leaf) for leaf in leaves] if workload.backward else [out]
            compiled.append(ca.Function("step", leaves, ca.cse(results)))
        found = compiled[0].call([ca.DM(v) for v in values])
        if not workload.backward:
            return tensors([np.array(found[0])], workload)
        return tensors([np.array(g).reshape(shape) for g, shape in zip(found, shapes, strict=True)], workload)

    return step


PEERS = [Peer("CasADi", "casadi", build, frozenset((
    "chain", "sharing", "population", "hessian_rosenbrock", "mechanics")))]
