"""Wrong rules, made by the hundred: a rule of the operator table, and a branch of it that gives something else.

The branch is taken by sign, size, parity of a size, rank, dtype, the value of an attribute, what else is read (which
operands are one tensor, how they lie in memory, how torch is set, a global), there the cotangent has a wrong factor, a
wrong sign, its elements in another order, a part left out, or a detour that is not defined at all numbers.  What
`prove` says of such a rule is the score of the lemmas.
`python tests/verification/rule_mutants.py --count 500 --seed 0` prints it, and the survivors.
"""

from __future__ import annotations

import argparse
import collections
import functools
import inspect
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograd_opt.ops.helpers import zero
from autograd_opt.ops.table import OPS, make_vjp
from autograd_opt.verification.lemmas import claims
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.lemmas.claims import Proof
from autograd_opt.verification.lemmas.drawn import cases_of
from autograd_opt.verification.lemmas.prover import prove
from autograd_opt.verification.program.rule_traces import EXTRA

Rule = Callable[..., Any]
CALLS = [0]


def numbers(attributes: dict[str, Any]) -> list[Any]:
    """The attributes that are numbers, but those that count axes."""
    return [v for k, v in attributes.items() if not isinstance(v, bool) and isinstance(v, (int, float))
            and not k.startswith(("dim", "start_dim", "end_dim", "source", "destination"))]


def every_second(g: Any, attributes: dict[str, Any]) -> bool:
    CALLS[0] += 1
    return CALLS[0] % 2 == 0


BRANCHES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "always": lambda g, attributes: True,
    "size 1": lambda g, attributes: 1 in g.shape,
    "an even size": lambda g, attributes: any(n % 2 == 0 for n in g.shape),
    "an odd size": lambda g, attributes: any(n % 2 for n in g.shape),
    "rank 0": lambda g, attributes: g.ndim == 0,
    "rank 1": lambda g, attributes: g.ndim == 1,
    "rank 2": lambda g, attributes: g.ndim == 2,
    "rank 3": lambda g, attributes: g.ndim == 3,
    "rank 4": lambda g, attributes: g.ndim == 4,
    "float32": lambda g, attributes: g.dtype is torch.float32,
    "bfloat16": lambda g, attributes: g.dtype is torch.bfloat16,
    "float16": lambda g, attributes: g.dtype is torch.float16,
    "a size above 4": lambda g, attributes: any(n > 4 for n in g.shape),
    "a size of 7": lambda g, attributes: 7 in g.shape,
    "a size divisible by 3": lambda g, attributes: any(n % 3 == 0 for n in g.shape),
    "two equal sizes": lambda g, attributes: len(set(g.shape)) < len(g.shape),
    "many elements": lambda g, attributes: g.numel() > 1000,
    "an even number of elements": lambda g, attributes: g.numel() % 2 == 0,
    "a number of 7": lambda g, attributes: any(v == 7 for v in numbers(attributes)),
    "a number above 2.5": lambda g, attributes: any(v > 2.5 for v in numbers(attributes)),
    "a number below -1": lambda g, attributes: any(v < -1 for v in numbers(attributes)),
    "twice a number is 9": lambda g, attributes: any(2 * v == 9 for v in numbers(attributes)),
    "gradients are recorded": lambda g, attributes: torch.is_grad_enabled(),
    "the default dtype": lambda g, attributes: torch.get_default_dtype() is torch.float64,
    "determinism": lambda g, attributes: torch.are_deterministic_algorithms_enabled(),
    "every second call": every_second,
    "steps in memory": lambda g, attributes: not g.is_contiguous(),
    "a negative axis": lambda g, attributes: any(
        type(d) is int and d < 0 for k, v in attributes.items() if k.startswith("dim") for d in
        (v if isinstance(v, (tuple, list)) else (v,))),
    "keepdim": lambda g, attributes: bool(attributes.get("keepdim")),
    "an attribute that is no default": lambda g, attributes: None,
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "factor 2": lambda t: t * 2, "sign": lambda t: -t, "half": lambda t: t * 0.5, "other order": lambda t: t.flip(0),
    "transposed": lambda t: t.mT, "plus itself": lambda t: t + t.abs(), "nothing": lambda t: t * 0,
    "a detour": lambda t: t * t / t, "another detour": lambda t: t.log().exp(),
    "a part": lambda t: t.narrow(0, 0, 1).expand(t.shape),
}
LEAST_RANK = {"transposed": 2, "other order": 1, "a part": 1}
BY_SIGN = ("where an operand is below 0", "where the cotangent is below 0")
BY_OPERANDS: dict[str, Callable[[list[torch.Tensor], dict[str, Any]], bool]] = {
    "two operands are one tensor": lambda tensors, named: any(
        p is q for k, p in enumerate(tensors) for q in tensors[k + 1:]),
    "operands of two shapes": lambda tensors, named: len({t.shape for t in tensors}) > 1,
    "an operand is wanted alone": lambda tensors, named: sum(named.get("needs", ())) == 1,
    "turned": lambda tensors, named: any(r is True for r in named.values()),
}
"""What is asked of the tensors that a rule reads, and of all that it reads by name."""
BY_SIZE = frozenset(name for name in BRANCHES if "size" in name or "elements" in name)
"""A rule that is said to be right at all sizes is so in each of these."""


class Mutant:
    """An operator with a wrong rule for one of its operands."""

    def __init__(self, op: Any, operand: int, branch: str, change: str):
        self.change = change
        self.op, self.branch, self.said = op, branch, f"{op.name}, {op.operands[operand]}: {change}, {branch}"
        self.reached, self.ranks = False, set[int]()
        self.vjps, self.joint = list(op.vjps), op.joint
        defaults = dict(op.attributes)
        if op.joint is not None:
            self.joint = make_vjp(self.wrong(op.joint.fn, branch, change, defaults, operand), op.operands,
                                  op.attributes)
        else:
            self.vjps[operand] = make_vjp(self.wrong(op.vjps[operand].fn, branch, change, defaults, None), op.operands,
                                          op.attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)

    def above_0(self) -> bool:
        """True if the statement is about operands above 0 alone."""
        return all(c.positive and not c.negative for c in cases_of(self.op.name))

    def varied(self) -> bool:
        """True if some size of the cotangent decides whether the branch is taken, and it changes something there."""
        rank = max(self.ranks, default=0)
        if self.change == "transposed" and self.branch == "size 1" and rank < 3:
            return False                         # the axes that are exchanged are of one size, which is 1
        return rank > (self.branch == "two equal sizes")

    def wrong(self, rule: Rule, branch: str, change: str, defaults: dict[str, Any], which: int | None) -> Rule:
        parameters = inspect.signature(rule).parameters

        @functools.wraps(rule)
        def mutated(g: Any, *reads: Any, **attributes: Any) -> Any:
            right = rule(g, *reads, **attributes)
            self.ranks.add(getattr(g, "ndim", 4))
            value = right if which is None else right[which]
            if not isinstance(value, torch.Tensor) or not isinstance(g, torch.Tensor):
                return right
            if branch in BY_OPERANDS:
                tensors = [r for r in reads if isinstance(r, torch.Tensor)]
                named = dict(zip(list(parameters)[1:], reads, strict=False))
                if not BY_OPERANDS[branch](tensors, named):
                    return right
                changed = CHANGES[change](value)
            elif branch in BY_SIGN:
                named = dict(zip(list(parameters)[1:], reads, strict=False))
                by = g if branch == BY_SIGN[1] else next(
                    (named[o] for o in self.op.operands if isinstance(named.get(o), torch.Tensor)
                     and named[o].is_floating_point() and named[o].shape == value.shape), None)
                if by is None or by.shape != value.shape or (branch == BY_SIGN[0] and self.above_0()):
                    return right
                changed = torch.where(by < 0, CHANGES[change](value), value)
            else:
                taken = BRANCHES[branch](g, attributes)
                if taken is None:
                    taken = any(k in defaults and v != defaults[k] for k, v in attributes.items())
                if not taken:
                    return right
                changed = CHANGES[change](value)
            if changed.shape != value.shape or value.ndim < LEAST_RANK.get(change, 0):
                return right                         # no change at all
            self.reached = True
            if which is None:
                return changed
            return [changed if k == which else v for k, v in enumerate(right)]

        mutated.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
        return mutated


def candidates() -> list[tuple[str, int]]:
    """Operators whose rule is proved, and operands that have one."""
    out = []
    for name in sorted(CASES):
        op = OPS.get(name)
        if op is None:
            continue
        for k in range(len(op.operands)):
            rule = op.joint if op.joint is not None else op.vjps[k] if k < len(op.vjps) else None
            if rule is None or getattr(rule, "fn", None) is zero:
                continue
            if not (op.joint is not None and EXTRA in rule.codes and k):
                out.append((name, k))
    return out


def judged(mutant: Mutant) -> Proof | None:
    """What is said of the rule's being the derivative; of one that is wrong at some sizes alone, at all sizes."""
    right = OPS[mutant.op.name]
    OPS[mutant.op.name] = mutant  # type: ignore[assignment]
    try:
        small = next((p for p in claims.prove(mutant.op.name) if p.claim == "gradient"), None)
        if mutant.branch in BY_SIZE and not mutant.reached and mutant.varied() and small is not None and small.proved:
            mutant.reached = any(p.claim == "gradient, all sizes" and p.proved for p in prove(mutant.op.name))
        return small
    finally:
        OPS[mutant.op.name] = right


def campaign(count: int, seed: int, names: Sequence[str] = ()) -> tuple[collections.Counter[str], list[str]]:
    """So many mutants that change a rule somewhere in a stated instance, or nowhere; the survivors."""
    rng = random.Random(seed)
    proved = {name: next((p.proved for p in claims.prove(name) if p.claim == "gradient"), False)
              for name in (names or dict.fromkeys(n for n, _ in candidates()))}
    pool = [(n, k) for n, k in candidates() if proved.get(n)]
    counts: collections.Counter[str] = collections.Counter()
    survivors: list[str] = []
    while counts["mutants"] < count:
        name, operand = rng.choice(pool)
        mutant = Mutant(OPS[name], operand, rng.choice([*BRANCHES, *BY_SIGN, *BY_OPERANDS]), rng.choice(list(CHANGES)))
        found = judged(mutant)
        if found is None or (found.proved and not mutant.reached):
            counts["outside of what is stated"] += 1     # the branch is never taken at a stated instance
            continue
        counts["mutants"] += 1
        counts[found.status] += 1
        if found.proved:
            survivors.append(mutant.said)
            print("survives:", mutant.said, file=sys.stderr, flush=True)
    return counts, survivors


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--count", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("names", nargs="*")
    given = options.parse_args()
    score, alive = campaign(given.count, given.seed, given.names)
    for line in [*alive, *[f"{n:5d} {name}" for name, n in sorted(score.items())]]:
        print(line)
