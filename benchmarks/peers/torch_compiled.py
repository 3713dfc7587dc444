"""torch.compile, with inductor and with aot_eager.

Where the step differentiates only once, the forward is compiled and its backward with it,
as the documentation of torch has it.  torch.compile does not follow `autograd.grad` inside;
there, the whole step is traced with `make_fx` first, which also lets it optimize more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..counting import functional
from ..workload import Workload
from .peer import Peer, Step

NESTED = frozenset({"pinn_burgers", "pinn_navier_stokes", "hessian_rosenbrock", "hessian_network"})


def settle() -> None:
    """Nothing compiled before may be found again; compile in this process, on one thread."""
    import torch._inductor.config as inductor

    inductor.force_disable_caches = True
    inductor.compile_threads = 1
    inductor.fallback_random = True
    torch._dynamo.reset()


def compiled(backend: str) -> Peer:
    """The peer of one backend."""

    def build(label: str, workload: Workload) -> Step:
        settle()
        if label in NESTED:
            return whole_step(workload, backend)
        forward = torch.compile(workload.forward, backend=backend, dynamic=False)

        def step() -> list[Tensor]:
            for leaf in workload.leaves:
                leaf.grad = None
            forward(*workload.leaves).backward()
            return workload.results(None)

        return step

    return Peer(f"torch.compile, {backend}", "torch", build)


def whole_step(workload: Workload, backend: str) -> Step:
    """The step with its derivatives traced, then compiled; traced at the first call."""
    found: list[Any] = []

    def step() -> list[Tensor]:
        with torch.no_grad():
            values = [leaf.detach() for leaf in workload.leaves]
            if not found:
                from torch.fx.experimental.proxy_tensor import make_fx
                with torch.enable_grad():
                    graph = make_fx(functional(workload))(*(v.clone().requires_grad_() for v in values))
                found.append(torch.compile(graph, backend=backend, dynamic=False))
            out = found[0](*values)
        results = [out] if isinstance(out, Tensor) else list(out)
        return [torch.zeros_like(v) if g is None else g for g, v in zip(results, values, strict=True)]

    return step


PEERS = [compiled("inductor"), compiled("aot_eager")]
