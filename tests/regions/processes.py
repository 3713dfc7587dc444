"""One of several gloo processes: trains models under DistributedDataParallel and `fully_shard`, with regions or none.

Run as `python -m tests.regions.processes PATIENCE RANK WORLD FILE CASE...`; prints one line of JSON for each case.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import autograd_opt as ao
from autograd_opt.api import regions

STEPS = 20


class Branching(nn.Module):
    """A module of whose two parts each call uses one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.first(x) if self.calls % 2 else self.second(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(),
                         nn.Flatten(), nn.Linear(24, 4))


def transformer() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Unflatten(1, (2, 8)),
                         nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Flatten(),
                         nn.Linear(16, 4))


def train(net: nn.Module, rank: int, accumulate: int = 1, clip: bool = False) -> None:
    """Some steps on data of this process's own."""
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    data = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for k in range(accumulate):
            x, y = torch.randn(8, 6, generator=data), torch.randn(8, 4, generator=data)
            if k < accumulate - 1:
                with net.no_sync():  # type: ignore[operator]
                    nn.functional.mse_loss(net(x), y).backward()
            else:
                nn.functional.mse_loss(net(x), y).backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()


def ddp(make: Callable[[], nn.Module], where: str, **options: Any) -> Callable[[int, bool], nn.Module]:
    """Training by DDP, the region `inside` of it, `around` it, or around `parts`."""
    steps = {k: options.pop(k) for k in ("accumulate", "clip") if k in options}

    def run(rank: int, optimized: bool) -> nn.Module:
        torch.manual_seed(0)
        net = make()
        if optimized and where == "inside":
            net = ao.optimize(net)
        elif optimized and where == "parts":
            for part in net:  # type: ignore[attr-defined]
                ao.optimize(part)
        wrapped: nn.Module = DDP(net, **options)
        if optimized and where == "around":
            wrapped = ao.optimize(wrapped)
        train(wrapped, rank, **steps)
        return net

    return run


def sharded(make: Callable[[], nn.Module], mixed: bool, whole: bool = False) -> Callable[[int, bool], nn.Module]:
    """Training by `fully_shard` of the parts and the whole, the region on each part."""
    def run(rank: int, optimized: bool) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        torch.manual_seed(0)
        net = make()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed \
            else MixedPrecisionPolicy()
        for part in net:  # type: ignore[attr-defined]
            if list(part.parameters()):
                fully_shard(part, mesh=mesh, mp_policy=policy)
                if optimized and not whole:
                    ao.optimize(part)
        fully_shard(net, mesh=mesh, mp_policy=policy)
        if optimized and whole:
            ao.optimize(net)
        train(net, rank, clip=True)
        return net

    return run


CASES = {
    "mlp": ddp(mlp, "inside"),
    "cnn": ddp(cnn, "inside"),
    "transformer": ddp(transformer, "inside"),
    "around": ddp(mlp, "around"),
    "parts": ddp(mlp, "parts"),
    "accumulated": ddp(cnn, "inside", accumulate=3),
    "clipped": ddp(mlp, "inside", clip=True),
    "unused": ddp(Branching, "inside", find_unused_parameters=True),
    "static": ddp(mlp, "inside", static_graph=True),
    "bucket_views": ddp(mlp, "inside", gradient_as_bucket_view=True, bucket_cap_mb=0.0005),
    "sharded": sharded(mlp, False),
    "sharded_whole": sharded(mlp, False, whole=True),
    "sharded_mixed": sharded(mlp, True),
    "sharded_transformer": sharded(transformer, False),
}


def full(t: Any) -> torch.Tensor:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def worst(a: nn.Module, b: nn.Module) -> float:
    """The largest difference of two state dicts."""
    return max(float((full(x).double() - full(y).double()).abs().max())
               for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def anew(module: nn.Module) -> None:
    """Draw the parameters of a module again."""
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def counted() -> list[int]:
    """A list that gets an entry in each backward run of a region."""
    from autograd_opt.api.region_calls import OptimizedRegion
    original, seen = OptimizedRegion.backward, []

    def backward(*args: Any) -> Any:
        seen.append(1)
        return original(*args)

    OptimizedRegion.backward = staticmethod(backward)  # type: ignore[method-assign]
    return seen


def main() -> None:
    patience, rank, world, file, *cases = sys.argv[1:]
    regions.PATIENCE = json.loads(patience)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=int(rank), world_size=int(world))
    runs = counted()
    for case in cases:
        eager = CASES[case](int(rank), False)
        runs.clear()
        region = CASES[case](int(rank), True)
        torch.manual_seed(0)
        moved = 1.0 if case.startswith("sharded") else worst(region, copy.deepcopy(region).apply(anew))
        print(json.dumps({"case": case, "difference": worst(eager, region), "moved": moved,
                          "runs": len(runs)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    # a worker thread of torch's that lets go of a Python object while the interpreter ends would end the process
    os._exit(0)


if __name__ == "__main__":
    main()
