"""The figures this library holds itself to; a table prints each beside what was measured."""

from __future__ import annotations

from typing import Any

SECOND_ORDER = ("pinn_burgers", "pinn_navier_stokes", "hessian_rosenbrock", "hessian_network", "mechanics", "gp")
MODULES = ("transformer", "cnn", "lstm")


def time_bar(name: str, facts: dict[str, Any]) -> float | None:
    """Most that `optimize=True` may take, as a share of torch eager; None where there is no bar."""
    if name == "chain":
        return 1.0
    if name in MODULES:
        return 1.02
    if name in SECOND_ORDER:
        return 0.85
    if name == "sharing 0.9":
        return 0.3
    if name.startswith("population"):
        return float(facts["u"]) + (0.1 if name.endswith("10,000") else 0.2)
    return None


HAND_BAR = 1.10
"""Most that the `mlp` step may take, as a share of the backward written by hand."""
KERNEL_BAR = 1.0
"""Most kernels that the optimized step may run, as a share of the traced step after torch's FX CSE."""
MEMORY_BAR = 1.0
"""Most bytes alive at the peak, as a share of torch eager's."""
NODE_NANOSECONDS_BAR = 1000
"""Most nanoseconds a node that CSE and prune may take on a million nodes, from DAG to DAG."""
GROWTH_BAR = 12
"""Most times longer that a million nodes may take than 100,000."""
FX_BAR = 50
"""Least times faster than torch.fx's CSE pass at 100,000 nodes."""
NODE_BYTES_BAR = 400
"""Most bytes of a recorded node, without tensors."""
GROWTH_BYTES_BAR = 0
"""Most bytes that 10,000 training steps may add with the garbage collector off."""
WATCHING_BAR = 3
"""Most times longer that a script may take under `explain`."""
