"""Every workload by name; each is a function `workload(leaf=...) -> Workload`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .elementwise import SHARES, chain, sharing
from .networks import cnn, lstm, mlp, mlp_by_hand, transformer
from .population import population
from .science import gp, mechanics
from .second_order import hessian_network, hessian_rosenbrock, pinn_burgers, pinn_navier_stokes
from .workload import Workload

Make = Callable[..., Workload]

WORKLOADS: dict[str, dict[str, Make]] = {
    "chain": {"chain": chain},
    "sharing": {f"sharing {share:g}": partial(sharing, share=share) for share in SHARES},
    "mlp": {"mlp": mlp},
    "transformer": {"transformer": transformer},
    "cnn": {"cnn": cnn},
    "lstm": {"lstm": lstm},
    "population": {f"population {n:,}": partial(population, points=n) for n in (1_000, 10_000)},
    "pinn_burgers": {"pinn_burgers": pinn_burgers},
    "pinn_navier_stokes": {"pinn_navier_stokes": pinn_navier_stokes},
    "hessian": {"hessian_rosenbrock": hessian_rosenbrock, "hessian_network": hessian_network},
    "mechanics": {"mechanics": mechanics},
    "gp": {"gp": gp},
}
"""Name on the command line -> the workloads measured under it, by the names in the tables."""

MAKES: dict[str, Make] = {name: make for group in WORKLOADS.values() for name, make in group.items()}
"""Every workload by its name in the tables."""

BY_HAND: dict[str, Make] = {"mlp": mlp_by_hand}
"""Workloads whose backward is also written out."""


def labels(groups: Sequence[str]) -> list[str]:
    """Names in the tables of the workloads in some groups, of all without any."""
    return [name for group in (groups or WORKLOADS) for name in WORKLOADS[group]]
