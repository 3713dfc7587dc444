"""The figures this library holds itself to, and what would be better still; tables print both beside what was found.

Each is (bar, whether it is a least instead of a most, goal, whether the goal has to be beaten), as `Check` takes them.
"""

from __future__ import annotations

from typing import Any

Bar = tuple[float, bool, float | None, bool]

SECOND_ORDER = ("pinn_burgers", "pinn_navier_stokes", "hessian_rosenbrock", "hessian_network", "mechanics", "gp")
MODULES = ("transformer", "cnn", "lstm")
CHAIN_BAR: Bar = (1.0, False, 0.85, False)


def time_bar(name: str, facts: dict[str, Any]) -> Bar | None:
    """Most that `optimize=True` may take, as a share of torch eager; None where there is no bar."""
    if name == "chain":
        return CHAIN_BAR
    if name in MODULES:
        return 1.02, False, 1.0, True
    if name in SECOND_ORDER:
        return 0.85, False, 0.7, False
    if name == "sharing 0.9":
        return 0.3, False, 0.2, False
    if name.startswith("population"):
        u = float(facts["u"])
        return (u + 0.1, False, u, False) if name.endswith("10,000") else (u + 0.2, False, u + 0.1, False)
    return None


HAND_BAR: Bar = (1.10, False, 1.05, False)
"""Most that the `mlp` step may take, as a share of the backward written by hand."""
KERNEL_BAR: Bar = (1.0, False, 1.0, True)
"""Most kernels that the optimized step may run, as a share of the traced step after torch's FX CSE."""
MEMORY_BAR: Bar = (1.0, False, 1.0, True)
"""Most bytes alive at the peak, as a share of torch eager's."""
PASSES_BAR: Bar = (2.0, False, 0.0, False)
"""Most percent of a step of known structure that the passes may take."""
NODE_NANOSECONDS_BAR: Bar = (1000, False, 300, False)
"""Most nanoseconds a node that CSE and prune may take on a million nodes, from DAG to DAG."""
GROWTH_BAR: Bar = (12, False, None, False)
"""Most times longer that a million nodes may take than 100,000."""
FX_BAR: Bar = (50, True, 200, False)
"""Least times faster than torch.fx's CSE pass at 100,000 nodes."""
NODE_BYTES_BAR: Bar = (400, False, 200, False)
"""Most bytes of a recorded node, without tensors."""
GROWTH_BYTES_BAR: Bar = (0, False, None, False)
"""Most bytes that 10,000 training steps may add with the garbage collector off."""
WATCHING_BAR: Bar = (3, False, None, False)
"""Most times longer that a script may take under `explain`."""
ALGORITHMS_MEDIAN_BAR: Bar = (1.0, False, 0.85, False)
"""Most that the median of the whole programs may take, as a share of torch eager."""
ALGORITHMS_WORST_BAR: Bar = (1.25, False, None, False)
"""Most that any of the whole programs may take, as a share of torch eager."""
OPTIMIZING_BAR: Bar = (1.03, False, None, False)
"""Most that `optimize=True` may take, as a share of the same program recorded as written."""
WORLD_MEDIAN_BAR: Bar = (1.05, False, 0.9, False)
"""Most that the median of the public packages' steps may take, as a share of torch eager."""
WORLD_P90_BAR: Bar = (1.3, False, None, False)
"""Most that nine tenths of them may take."""
WORLD_WORST_BAR: Bar = (1.5, False, None, False)
"""Most that any of them may take."""
REGIONS_MEDIAN_BAR: Bar = (1.05, False, None, False)
"""Most that the median of the public packages' steps may take with `ao.optimize(model)` alone."""
