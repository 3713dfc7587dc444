"""Other libraries on the same workload, where they are installed (`pip install .[bench]`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .measure import Variant
from .workload import Workload, torch_leaf
from .workloads import Make


def torch_compile(name: str, make: Make) -> Variant:
    """torch.compile of the forward; its backward is compiled with it. Compile time is not in the figure."""
    workload = make(leaf=torch_leaf)
    compiled = torch.compile(workload.forward, dynamic=False)
    return Variant("torch.compile", workload, _with_forward(workload, compiled))


def hips_autograd(name: str, make: Make) -> Variant:
    """HIPS autograd on NumPy: `chain` and `sharing` only, whose text runs on arrays."""
    import autograd
    import numpy as np

    workload = make(leaf=torch_leaf)
    arrays = [leaf.detach().numpy() for leaf in workload.leaves]
    gradient = autograd.grad(lambda leaves: workload.forward(*leaves))

    def run() -> Any:
        for leaf, g in zip(workload.leaves, gradient(arrays), strict=True):
            leaf.grad = torch.from_numpy(np.asarray(g, dtype=np.float32))

    return Variant("HIPS autograd", workload, run)


def jax_jit(name: str, make: Make) -> Variant:
    """jax.jit of value and gradient on the CPU. Compile time is not in the figure."""
    import jax

    workload = make(leaf=torch_leaf)
    arrays = [leaf.detach().numpy() for leaf in workload.leaves]
    gradient = jax.jit(jax.grad(lambda leaves: workload.forward(*leaves)))

    def run() -> Any:
        for leaf, g in zip(workload.leaves, gradient(arrays), strict=True):
            leaf.grad = torch.utils.dlpack.from_dlpack(g)

    return Variant("jax.jit", workload, run)


PEERS: dict[str, list[tuple[str, Callable[[str, Make], Variant]]]] = {
    "chain": [("autograd", hips_autograd), ("jax", jax_jit)],
    "mlp": [("torch", torch_compile)],
    "cnn": [("torch", torch_compile)],
    "pinn_burgers": [],
}
"""Workload -> (package, how it is run there)."""


def peers_of(name: str, make: Make) -> tuple[list[Variant], list[str]]:
    """The peers that can run a workload, and a line for each that is not installed."""
    variants, notes = [], []
    for package, run in PEERS.get(name, []):
        if importlib.util.find_spec(package) is None:
            notes.append(f"{package} is not installed and left out: pip install 'autograd_opt[bench]'")
        else:
            variants.append(run(name, make))
    return variants, notes


def _with_forward(workload: Workload, forward: Callable[..., Tensor]) -> Callable[[], Any]:
    def run() -> Any:
        for leaf in workload.leaves:
            leaf.grad = None
        forward(*workload.leaves).backward()

    return run
