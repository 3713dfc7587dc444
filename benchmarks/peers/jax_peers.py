"""JAX, operation by operation and under `jit`; derivatives inside a program by forward mode, its best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from ..workload import Workload
from .network_programs import unrolled
from .peer import Peer, Step, arrays, mapped, tensors
from .programs import program_of


def library(jit: bool) -> Any:
    import jax
    import jax.numpy as jnp

    def derivative(f: Any, i: int) -> Any:
        def df(*args: Any) -> Any:
            along = [jnp.ones_like(a) if k == i else jnp.zeros_like(a) for k, a in enumerate(args)]
            return jax.jvp(f, args, tuple(along))[1]
        return df

    def conv2d(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME")

    def loop(step: Any, state: Any, inputs: Any) -> Any:
        return jax.lax.scan(lambda s, x: (step(s, x), None), state, jnp.swapaxes(inputs, 0, 1))[0]

    names = ("exp", "log", "tanh", "sin", "cos", "sqrt", "sum", "mean", "max", "maximum", "concatenate", "zeros",
             "diagonal", "transpose")
    return SimpleNamespace(
        **{name: getattr(jnp, name) for name in names}, derivative=derivative, conv2d=conv2d,
        loop=loop if jit else unrolled,
        sigmoid=jax.nn.sigmoid, hessian=lambda f, x: jax.hessian(f)(x),
        solve=jnp.linalg.solve, inv=jnp.linalg.inv, logdet=lambda a: jnp.linalg.slogdet(a)[1],
    )


def build(label: str, workload: Workload, jit: bool) -> Step:
    import jax

    program = program_of(label)
    leaves = [arrays(leaf) for leaf in workload.leaves]
    if leaves[0].dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    lib = library(jit)
    device = jax.devices("cpu")[0]
    place = lambda a: jax.device_put(a, device)
    data = mapped(arrays(workload.data), place)
    values = [place(leaf) for leaf in leaves]

    def loss(*args: Any) -> Any:
        return program(lib, data, *args)

    function: Any = jax.grad(loss, tuple(range(len(values)))) if workload.backward else loss
    if jit:
        function = jax.jit(function)

    def step() -> list[Tensor]:
        return tensors(jax.block_until_ready(function(*values)), workload)

    return step


PEERS = [
    Peer("jax.jit", "jax", lambda label, workload: build(label, workload, jit=True)),
    Peer("jax", "jax", lambda label, workload: build(label, workload, jit=False), retraces=False),
]
