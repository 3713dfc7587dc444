"""What verification costs, and what it proves: `python -m benchmarks.verification_speed [FILE]`.

Each line is one graph, verified in this process on one thread; times are CPU seconds of this process and of
the processes that sympy runs in.  With FILE, the table replaces the one between its two markers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autograd_opt as ao
from autograd_opt.cli.verify import watching
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verify import Budget, Verification

BEGIN, END = "<!-- speed -->", "<!-- /speed -->"


def leaf(*shape: int) -> Any:
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


# ----- graphs -----
def demo() -> Tensor:
    """The demo's step, whose four terms each call the model."""
    from autograd_opt.cli.demo import make_network, plain_loss

    return plain_loss(make_network(), torch.rand(64, 64), torch.arange(64) % 10)


def sums() -> Tensor:
    """c = t1 + t2; d = (t1 + t2) a; loss = t1 + t2 + d."""
    t1, t2, a = leaf(3), leaf(3), leaf(3)
    _ = t1 + t2
    d = (t1 + t2) * a
    return (t1 + t2 + d).sum()


def chain_of_sums() -> Tensor:
    """c = 4 a + b; d = c b + a; e = c d + b; e + 5.5 d."""
    a, b = leaf(3), leaf(3)
    c = 4 * a + b
    d = c * b + a
    return (c * d + b + d * 5.5).sum()


def attention() -> Tensor:
    """Attention by hand, the weights computed twice."""
    q, k, v = leaf(2, 8, 16), leaf(2, 8, 16), leaf(2, 8, 16)
    out = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v
    return (out * (torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v).tanh()).sum()


def cross_entropy() -> Tensor:
    """An MLP with cross entropy, called twice."""
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
    x, y = torch.rand(8, 16), torch.arange(8) % 5
    return F.cross_entropy(net(x), y) + 0.1 * torch.softmax(net(x), 1).square().mean()


def second_derivatives() -> Tensor:
    """A tanh network with second derivatives by its input, as in a physics-informed loss."""
    x, w, b, v = leaf(16, 1), leaf(1, 8), leaf(8), leaf(8, 1)

    def u() -> Tensor:
        return torch.tanh(x @ w + b) @ v

    (first,) = torch.autograd.grad(u().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return ((second + u() * first) ** 2).mean()


def hessian() -> Tensor:
    """The sum of squares of a Hessian, row by row."""
    x, a = leaf(5), leaf(5, 5)
    y = ((a @ x).tanh() * (a @ x)).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    rows = [torch.autograd.grad(g[k], x, create_graph=True)[0] for k in range(5)]
    return torch.stack(rows).square().sum()


def population() -> Tensor:
    """64 expression trees over the same inputs."""
    from .population import population as make

    workload = make(points=50)
    out = workload.forward(*workload.leaves)
    return out if isinstance(out, Tensor) else torch.stack([t.sum() for t in out]).sum()


def chain(n: int) -> Callable[[], Tensor]:
    def build() -> Tensor:
        x, b = leaf(2), leaf(2)
        for _ in range(n // 4):
            x = (x * b) + (x * b).sin()
        return x.sum()

    build.__doc__ = f"a chain of {n:,} nodes, a quarter merged"
    return build


def plain_chain(n: int) -> Callable[[], Tensor]:
    def build() -> Tensor:
        x, b = leaf(2), leaf(2)
        a = x
        for _ in range(n // 2):
            x = (x + b) * a
        return x.sum()

    build.__doc__ = f"a chain of {n:,} nodes, nothing merged"
    return build


NAMED: list[Callable[[], Tensor]] = [
    sums, chain_of_sums, attention, cross_entropy, second_derivatives, hessian, population, demo,
    chain(10_000), chain(100_000), plain_chain(10_000), plain_chain(100_000),
]


def workloads() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every workload of the benchmarks that ends in a loss."""
    from .workloads import MAKES

    for name, make in MAKES.items():
        def build(make: Any = make) -> Any:
            workload = make()
            out = workload.forward(*workload.leaves)
            return sum(t.sum() for t in (out if isinstance(out, (tuple, list)) else [out]))

        yield name, build


def clock() -> float:
    times = __import__("os").times()
    return float(times.user + times.system + times.children_user + times.children_system)


def measured(build: Callable[[], Any]) -> tuple[Verification, float]:
    """The verdict on a freshly recorded graph, and CPU seconds."""
    torch.manual_seed(0)
    with ao.AutogradGraph(optimize=True) as graph:
        loss = build()
        start = clock()
        v = graph.verify(loss, anew=True)
        return v, clock() - start


def lines(everything: bool = True) -> Iterator[str]:
    yield "| graph | nodes | merged | verdict | CPU seconds | µs a node |"
    yield "|---|---|---|---|---|---|"
    for build in NAMED:
        yield line((build.__doc__ or "").splitlines()[0].rstrip("."), build)
    if everything:
        for name, build in workloads():
            yield line(f"workload `{name}`", build)


def line(name: str, build: Callable[[], Any]) -> str:
    try:
        v, seconds = measured(build)
    except ao.errors.GraphError:  # a result that is itself made of gradients: each run of backward is verified instead
        return runs(name, build)
    except Exception as error:  # one line that fails does not hide the others
        return f"| {name} | | | not run: {type(error).__name__}: {str(error)[:60]} | | |"
    n = max(v.stats.get("nodes", 0), 1)
    verdict = f"{v.status}, {v.exact}" if v.exact else f"{v.status}: {v.reason}"
    return f"| {name} | {n:,} | {v.stats.get('merged', 0):,} | {verdict} | {seconds:.2f} | {1e6 * seconds / n:.0f} |"


def runs(name: str, build: Callable[[], Any]) -> str:
    """A line for a step whose backward runs happen inside: all of them, each structure once."""
    start = clock()
    with ao.AutogradGraph(optimize=True):
        build()
    plain, start = clock() - start, clock()
    memory_cache.forget()
    with watching(Budget(), 50) as found, ao.AutogradGraph(optimize=True):
        build()
    seconds = clock() - start - plain
    n = sum(v.stats.get("nodes", 0) for _, v in found.runs)
    merged = sum(v.stats.get("merged", 0) for _, v in found.runs)
    proved = f"{found.counts['proved']} of {len(found.runs)} proved"
    return f"| {name}, its inner runs | {n:,} | {merged:,} | {proved} | {seconds:.2f} | " \
           f"{1e6 * seconds / max(n, 1):.0f} |"


def main() -> None:
    torch.set_num_threads(1)
    measured(sums)  # what is loaded lazily is loaded
    rows = []
    for row in lines("--quick" not in sys.argv):
        rows.append(row)
        print(row, flush=True)
    files = [a for a in sys.argv[1:] if not a.startswith("-")]
    if files:
        replaced(Path(files[0]), BEGIN, END, rows)


def replaced(path: Path, begin: str, end: str, rows: list[str]) -> None:
    """Put a table between its two markers."""
    text = path.read_text()
    before, after = text.index(begin) + len(begin), text.index(end)
    path.write_text(text[:before] + "\n" + "\n".join(rows) + "\n" + text[after:])


if __name__ == "__main__":
    main()
