"""mlx on the CPU, with `mx.compile`, its best configuration for a fixed structure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ..workload import Workload
from .peer import Peer, Step, arrays, mapped, tensors
from .programs import program_of


def library() -> Any:
    import mlx.core as mx

    def derivative(f: Any, i: int) -> Any:
        return mx.grad(lambda *args: mx.sum(f(*args)), i)

    def hessian(f: Any, x: Any) -> Any:
        gradient = mx.grad(f)
        row = mx.grad(lambda x, along: mx.sum(gradient(x) * along))
        return mx.vmap(row, (None, 0))(x, mx.eye(x.shape[0]))

    def conv2d(x: Any, kernel: Any) -> Any:
        out = mx.conv2d(x.transpose(0, 2, 3, 1), kernel.transpose(0, 2, 3, 1), padding=1)
        return out.transpose(0, 3, 1, 2)

    names = ("exp", "log", "tanh", "sin", "cos", "sqrt", "sum", "mean", "max", "maximum", "concatenate", "zeros",
             "sigmoid", "transpose")
    return SimpleNamespace(**{name: getattr(mx, name) for name in names}, derivative=derivative, hessian=hessian,
                           conv2d=conv2d)


def build(label: str, workload: Workload, compiled: bool) -> Step:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    program = program_of(label)
    lib, data = library(), mapped(arrays(workload.data), mx.array)
    values = [mx.array(arrays(leaf)) for leaf in workload.leaves]

    def loss(*leaves: Any) -> Any:
        return program(lib, data, *leaves)

    function: Any = mx.grad(loss, tuple(range(len(values)))) if workload.backward else loss
    if compiled:
        function = mx.compile(function)

    def step() -> list[Tensor]:
        results = function(*values)
        mx.eval(results)
        return tensors(results, workload)

    return step


CANNOT = {"gp": "no gradient of its factorizations"}
PEERS = [
    Peer("mlx, compiled", "mlx", lambda label, workload: build(label, workload, compiled=True), CANNOT),
    Peer("mlx", "mlx", lambda label, workload: build(label, workload, compiled=False), CANNOT, retraces=False),
]
