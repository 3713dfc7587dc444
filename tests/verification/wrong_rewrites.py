"""Random programs over real, complex, truth-valued and whole numbers, and random merges of two of their values.

A merge is wrong where gradients change when the cotangent of the one value goes to the other (of numbers without
cotangents: where they change when the one is read for the other); torch eager computes both.  A run makes only those
merges whose operands are the same nodes, so runs alone would call most wrong ones harmless.  No wrong one may be
proved.  By hand, thousands of them: `python tests/verification/wrong_rewrites.py --wrong 5000 --seed 1`.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

import autograd_opt as ao
from autograd_opt.passes import PassResult, register_pass
from autograd_opt.verify import Budget, Status

KINDS = ("real", "complex", "bool", "integer", "mixed")
BUDGET = Budget(seconds=1, sympy_seconds=0.3, sympy_operations=40, elements=20_000)
PROVERS = ("structural", "linear", "rewrite", "sympy")
FORCED: list[int] = []
Choice = Callable[[Any], Any]


def forcing(table: Any, state: Any) -> Any:
    """A pass that merges what it was told to."""
    leader = state.leader.copy()
    if FORCED:
        leader[FORCED[1]] = FORCED[0]
    return PassResult(leader=leader)


register_pass("wrong_rewrites_forcing", forcing)

REAL: list[tuple[int, Choice]] = [
    (1, lambda x: x.sin()), (1, lambda x: x * 2), (1, lambda x: -x), (1, lambda x: x.exp()), (1, lambda x: x.relu()),
    (1, lambda x: x.abs()), (1, lambda x: x * x), (1, lambda x: x.sum(0, keepdim=True).expand(x.shape)),
    (1, lambda x: x.mean(1, keepdim=True).expand(x.shape)), (1, lambda x: x.flip(0)),
    (1, lambda x: x.softmax(-1)), (1, lambda x: x.softmax(0)), (1, lambda x: x.half().double()), (1, lambda x: x.mT),
    (1, lambda x: x.float().double()), (1, lambda x: x.cumsum(0)), (1, lambda x: x.clamp(min=0.3)),
    (2, lambda x, y: x + y), (2, lambda x, y: x - y), (2, lambda x, y: x * y), (2, lambda x, y: x @ y),
    (2, lambda x, y: torch.maximum(x, y)), (2, lambda x, y: torch.minimum(x, y)), (2, lambda x, y: x / (y * y + 1)),
]
COMPLEX: list[tuple[int, Choice]] = [
    (1, lambda z: z.conj()), (1, lambda z: z * 1.0), (1, lambda z: z.H), (1, lambda z: z.T), (1, lambda z: z * 1j),
    (1, lambda z: z.exp()), (1, lambda z: torch.conj_physical(z)), (1, lambda z: -z), (1, lambda z: z.real + 0j * z),
    (1, lambda z: z.abs() + 0 * z), (1, lambda z: z.mH), (1, lambda z: z.sum(0, keepdim=True).expand(z.shape)),
    (2, lambda z, w: z + w), (2, lambda z, w: z * w), (2, lambda z, w: z * w.conj()), (2, lambda z, w: z @ w),
]
BOOLS: list[tuple[int, Choice]] = [
    (1, lambda p: ~p), (1, lambda p: p.flip(0)), (1, lambda p: p.mT), (2, lambda p, q: p + q), (2, lambda p, q: p * q),
    (2, lambda p, q: p & q), (2, lambda p, q: p | q), (2, lambda p, q: p ^ q), (2, lambda p, q: p == q),
    (2, lambda p, q: (p + q) > 1), (2, lambda p, q: (p.long() + q.long()) > 1),
]
INTEGERS: list[tuple[int, Choice]] = [
    (1, lambda k: k + k), (1, lambda k: k * 2), (1, lambda k: -k), (1, lambda k: k // 2 * 2), (1, lambda k: k * k),
    (1, lambda k: k.mT), (2, lambda k, m: k + m), (2, lambda k, m: k * m), (2, lambda k, m: k - m),
    (1, lambda k: k.abs()), (1, lambda k: k.sum(0, keepdim=True).to(k.dtype).expand(k.shape)),
]


class Program:
    """A random program, the same whenever it is run; `values` are those that may be merged."""

    def __init__(self, seed: int, kind: str):
        self.seed, self.kind = seed, kind

    def __call__(self, *leaves: Any, merge: tuple[int, int] | None = None) -> Any:
        rng = random.Random(self.seed)
        reals, complexes, bools, whole = list(leaves), [], [], []
        kinds = KINDS[:4] if self.kind == "mixed" else (self.kind, "real")
        values: list[Any] = []

        def keep(pool: list[Any], made: Any) -> None:
            if merge is not None and len(values) == merge[1]:
                leader = values[merge[0]]
                made = leader + (made - leader).detach() if made.requires_grad or leader.requires_grad else leader
            pool.append(made)
            values.append(made)

        if "complex" in kinds:
            complexes += [torch.complex(leaves[0], leaves[1]), leaves[1] * (0.5 + 2j)]
        if "bool" in kinds:
            bools += [leaves[0] > 0.2, leaves[1] > 0.0, leaves[0] + leaves[1] > 0.4]
        if "integer" in kinds:
            dtype = rng.choice([torch.int8, torch.uint8, torch.int64])
            whole += [(leaves[0] > 0.1).to(dtype) * 100, torch.arange(9).reshape(3, 3).to(dtype) * 14]
        for _ in range(rng.randint(4, 9)):
            kind = rng.choice(kinds)
            table, pool = {"real": (REAL, reals), "complex": (COMPLEX, complexes), "bool": (BOOLS, bools),
                           "integer": (INTEGERS, whole)}[kind]
            count, op = rng.choice(table)
            made = op(*[rng.choice(pool[-3:]) for _ in range(count)])
            keep(pool, made)
            if kind == "bool":
                chosen = rng.random() < 0.5
                keep(reals, torch.where(pool[-1], *rng.sample(reals, 2)) if chosen else pool[-1] * reals[-1])
            elif kind == "integer":
                keep(reals, pool[-1] * rng.choice(reals))
        used = [v for v in values if v.requires_grad] or list(leaves)
        parts = [p for v in used for p in ((v.real, v.imag) if v.is_complex() else (v,))]
        loss = sum((p * (0.3 + 0.2 * k)).sin().sum() for k, p in enumerate(parts))
        return loss, values


def leaves(seed: int) -> list[Any]:
    made = torch.Generator().manual_seed(seed)
    return [ao.tensor(torch.randn(3, 3, generator=made, dtype=torch.float64)) for _ in range(2)]


def places(values: list[Any], merge: tuple[int, int]) -> list[int]:
    """Record numbers of two values; of none where one is not recorded this time."""
    nodes = [getattr(values[k], "_node", None) for k in merge]
    return [] if None in nodes else sorted(n.index for n in nodes)


def gradients(program: Program, merge: tuple[int, int], seed: int, **options: Any) -> list[Any]:
    """Gradients of a run that is asked to merge these values."""
    FORCED.clear()
    xs = leaves(seed)
    with ao.AutogradGraph(passes=["wrong_rewrites_forcing", "prune"], **options):
        loss, values = program(*xs)
        FORCED[:] = places(values, merge)
        loss.backward()
    FORCED.clear()
    return [x.grad for x in xs]


def meant(program: Program, merge: tuple[int, int] | None, seed: int) -> list[Any]:
    """Gradients with these values merged, as torch eager computes them."""
    xs = [x.detach().as_subclass(torch.Tensor).clone().requires_grad_() for x in leaves(seed)]
    program(*xs, merge=merge)[0].backward()
    return [x.grad for x in xs]


def pairs(program: Program) -> list[tuple[int, int]]:
    """Values of one type, which are nodes of their own."""
    FORCED.clear()
    with ao.AutogradGraph(passes=["wrong_rewrites_forcing", "prune"]):
        _, values = program(*leaves(0))
        nodes = [getattr(v, "_node", None) for v in values]
        return [(i, j) for j in range(len(values)) for i in range(j)
                if nodes[i] is not None and nodes[j] is not None and nodes[i] is not nodes[j]
                and not nodes[i].is_leaf and not nodes[j].is_leaf
                and (values[i].shape, values[i].dtype) == (values[j].shape, values[j].dtype)]


def differ(a: list[Any], b: list[Any], tolerance: float = 1e-9) -> bool:
    """True if the gradients are others, by more than rounding."""
    return any((x is None) != (y is None) or
               (x is not None and not torch.allclose(x, y, tolerance, tolerance / 100, equal_nan=True))
               for x, y in zip(a, b, strict=True))


def verdict(program: Program, merge: tuple[int, int], seed: int) -> Any:
    """The answer of the engines that can prove; None where one of both values is not recorded this time."""
    with ao.AutogradGraph(passes=["wrong_rewrites_forcing", "prune"]) as graph:
        loss, values = program(*leaves(seed))
        FORCED[:] = places(values, merge)
        found = graph.verify(loss, engines=PROVERS, budget=BUDGET) if FORCED else None
        FORCED.clear()
        return found


def campaign(wrong: int, seed: int, through_runs: int = 25) -> collections.Counter[str]:
    """Try merges, of nearly equal values first, until so many were wrong; some through a run with verify=True."""
    rng = random.Random(seed)
    counts: collections.Counter[str] = collections.Counter()
    while counts["wrong"] < wrong:
        kind = KINDS[counts["programs"] % len(KINDS)]
        program = Program(rng.randrange(1 << 30), kind)
        counts["programs"] += 1
        try:
            candidates = pairs(program)
        except RuntimeError:                     # an operation that torch refuses for these dtypes
            continue
        point = rng.randrange(1 << 20)
        _, values = program(*[x.detach().as_subclass(torch.Tensor).requires_grad_() for x in leaves(point)])
        near = [(i, j) for i, j in candidates if torch.allclose(values[i], values[j], 0.01, 0.01)]
        for merge in dict.fromkeys(near[:2] + rng.sample(candidates, min(3, len(candidates)))):
            plain = meant(program, None, point)
            merged = meant(program, merge, point)
            harmful = differ(plain, merged)
            found = verdict(program, merge, point)
            if found is None:
                continue
            counts["wrong" if harmful else "harmless"] += 1
            tolerance = 0.02 if any("casts only round" in c for c in found.conditions) else 1e-9
            if found.status is Status.PROVED and (differ(plain, merged, tolerance) or differ(
                    *[meant(program, m, point + 1) for m in (None, merge)], tolerance)):
                counts["proved though wrong"] += 1
                print("proved though wrong:", kind, program.seed, merge, point, found, file=sys.stderr)
            counts[f"{kind}: {'wrong' if harmful else 'harmless'} {found.status}"] += 1
            if harmful and counts["wrong"] % through_runs == 0:
                try:
                    run = gradients(program, merge, point, verify=True)
                except ao.errors.VerificationError:
                    continue
                if differ(plain, run):
                    counts["proved though wrong"] += 1
                    print("a verified run differs:", kind, program.seed, merge, point, file=sys.stderr)
    return counts


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--wrong", type=int, default=5000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    for name, count in sorted(campaign(given.wrong, given.seed).items()):
        print(f"{count:7d} {name}")
