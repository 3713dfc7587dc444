"""Every workload by name; each is a function `workload(leaf=...) -> Workload`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .elementwise import SHARES, chain, sharing
from .networks import cnn, lstm, mlp, mlp_by_hand, transformer
from .population import population
from .science import gp, mechanics
from .second_order import hessian_network, hessian_rosenbrock, pinn_burgers, pinn_navier_stokes
from .workload import Workload

Make = Callable[..., Workload]

WORKLOADS: dict[str, list[Make]] = {
    "chain": [chain],
    "sharing": [partial(sharing, share=share) for share in SHARES],
    "mlp": [mlp],
    "transformer": [transformer],
    "cnn": [cnn],
    "lstm": [lstm],
    "population": [partial(population, points=1_000), partial(population, points=10_000)],
    "pinn_burgers": [pinn_burgers],
    "pinn_navier_stokes": [pinn_navier_stokes],
    "hessian": [hessian_rosenbrock, hessian_network],
    "mechanics": [mechanics],
    "gp": [gp],
}
"""Name on the command line -> the workloads measured under it; `million` is apart, it has no tensors."""

BY_HAND: dict[str, Make] = {"mlp": mlp_by_hand}
"""Workloads whose backward is also written out."""
