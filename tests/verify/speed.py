"""What a verification costs: `python -m tests.verify.speed`."""

from __future__ import annotations

import time

import torch

import autograd_opt as ao
from autograd_opt.verify import verify


def build(kind: str, n: int) -> torch.Tensor:
    """A chain of about n nodes, with repeated work or without."""
    x, b = ao.tensor([1.0, 2.0]), ao.tensor([0.5, 0.25])
    a = x
    for _ in range(n // (4 if kind == "repeats" else 2)):
        x = (x * b) + (x * b).sin() if kind == "repeats" else (x + b) * a
    return x.sum()


def main() -> None:
    torch.set_num_threads(1)
    for kind in ("repeats", "none"):
        for n in (100, 10_000, 100_000):
            with ao.AutogradGraph(optimize=True) as graph:
                loss = build(kind, n)
                nodes = graph.tape.snapshot()
                start = time.process_time()
                v = verify(nodes, [loss.grad_fn])
                seconds = time.process_time() - start
            if n > 100:  # the first run loads what is loaded lazily
                print(f"{kind:8} {len(nodes):7} nodes {v.stats['merged']:6} merged  {v.status}, {v.exact}: "
                      f"{seconds:.2f} s of CPU time, {1e6 * seconds / len(nodes):.1f} us a node")


if __name__ == "__main__":
    main()
