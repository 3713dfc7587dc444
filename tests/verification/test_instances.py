"""Each instance of an operator tells: what is changed in a rule's result, in any branch it may have, is seen somewhere.

A rule that is wrong in a branch is refuted only where an instance enters the branch, and the change makes a difference
there.  Transposing what has one row, or negating zeros, makes none.  All branches and all changes of all operators are
tried here, in whole numbers modulo a prime, or rational ones where an operator asks which is larger; `rule_mutants.py`
asks the prover of some.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from rule_mutants import BRANCHES, BY_OPERANDS, CHANGES, LEAST_RANK, candidates

from autograd_opt.ops.table import ELEMENTWISE, OPS, make_vjp
from autograd_opt.verification.counterexample.intervals import Rational
from autograd_opt.verification.counterexample.prime_field import Field
from autograd_opt.verification.lemmas.cases import Case
from autograd_opt.verification.lemmas.claims import forward, instance, wanted
from autograd_opt.verification.lemmas.drawn import KINKED, cases_of
from autograd_opt.verification.program.kernels import KEPT
from autograd_opt.verification.program.rule_traces import trace_rule
from autograd_opt.verification.program.tracer import Tracer
from autograd_opt.verification.semantics.evaluate import apply

ASKED_OF_THE_PROVER = {"always", "gradients are recorded", "determinism", "every second call", "steps in memory"}
"""Branches that every instance enters, or none."""
OF_OPERANDS = ("operands of two shapes", "an operand is wanted alone")
"""Branches on other operands; no rule is proved that asks whether two are one tensor, and all are traced turned."""
BY_SYMPY_ALONE = {"prelu_kernel", "prod", "cumprod", "take", "amax", "amin", "max_all", "min_all"}
"""Operators whose rules the field has no meaning for."""
MANY_CASES = {"smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward", "logit_backward"}
"""Operators that are other ones in so many parts that sympy is asked about two elements at most."""
ORDERS = ("other order", "transposed", "a part")
TRIED = ("factor 2", "sign", "nothing", *ORDERS)
"""Changes that need no sympy: those of numbers, and of their order."""
EQUAL: dict[tuple[str, int], set[tuple[str, str]]] = {
    **{key: {(c, "rank 0") for c in ORDERS} for key in [("sum", 0), ("mean", 0)]},  # all elements are one number
    ("trace", 0): {("transposed", b) for b in ("rank 0", "float32", "bfloat16", "float16")},
    ("squeeze", 0): {*((c, "rank 0") for c in ORDERS), ("transposed", "rank 1")},         # at most one axis is long
    **{key: {(c, "size 1") for c in ORDERS} for key in [("ravel", 0), ("mv", 0), ("addmv", 1)]},      # one row
    ("nll_loss", 0): {("other order", "size 1"), ("a part", "size 1")},
    ("addmv", 0): {(c, "size 1") for c in ORDERS if c != "transposed"},
    **{key: {("transposed", "size 1")} for key in [("addmm", 0), ("addbmm", 0), ("addr", 0)]},
    **{key: {("other order", "rank 0"), ("a part", "rank 0")} for key in [("reshape", 0), ("view", 0)]},   # one element
}
"""Changes in branches that are none at any size, by operator and operand."""
SUMMED = {("masked_fill", 2)}
"""Operands of one element, to which all of what a rule gives is summed, in whatever order it is."""


def changed_by(change: str, value: Any) -> Any:
    """A tensor with a change; None where there is none of its shape to make."""
    if not isinstance(value, torch.Tensor) or value.ndim < LEAST_RANK.get(change, 0):
        return None
    changed = CHANGES[change](value)
    return changed if changed.shape == value.shape else None


class Branching:
    """An operator, whose rules note the branches that they might take."""

    def __init__(self, op: Any):
        self.op = op
        self.entered: dict[int | None, set[str]] = {}
        self.change: str | None = None          # of what rules give, before it is summed to an operand's shape
        self.applied: set[int] = set()
        self.vjps = [v and make_vjp(self.noting(v.fn, k), op.operands, op.attributes) for k, v in enumerate(op.vjps)]
        self.joint = op.joint and make_vjp(self.noting(op.joint.fn, None), op.operands, op.attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)

    def made(self, value: Any, operand: int) -> Any:
        """A rule's result, with the change where there is one to make."""
        changed = None if self.change is None else changed_by(self.change, value)
        if changed is None:
            return value
        self.applied.add(operand)
        return changed

    def noting(self, rule: Callable[..., Any], operand: int | None) -> Callable[..., Any]:
        defaults, names = self.op.attributes, list(inspect.signature(rule).parameters)[1:]

        @functools.wraps(rule)
        def noted(g: Any, *reads: Any, **attributes: Any) -> Any:
            if isinstance(g, torch.Tensor):
                taken = {b: BRANCHES[b](g, attributes) for b in BRANCHES.keys() - ASKED_OF_THE_PROVER}
                taken["an attribute that is no default"] = any(
                    k in defaults and v != defaults[k] for k, v in attributes.items())
                tensors, named = [r for r in reads if isinstance(r, torch.Tensor)], dict(zip(names, reads))  # noqa: B905
                taken |= {b: BY_OPERANDS[b](tensors, named) for b in OF_OPERANDS}
                self.entered[operand] = {b for b, t in taken.items() if t}
            right = rule(g, *reads, **attributes)
            if operand is not None:
                return self.made(right, operand)
            return [self.made(v, k) for k, v in enumerate(right)]

        noted.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
        return noted


def derivatives(branching: Branching, case: Case, seed: int = 0) -> dict[int, Any]:
    """What the rules give at an instance, by operand, in random numbers."""
    name, rng = branching.op.name, np.random.default_rng(seed)
    vocabulary, types, given = instance(name, case)
    D: Any = Rational(1 << 20, math.inf) if name in KINKED else Field(1, 1 << 20)

    def drawn(shape: tuple[int, ...], low: int) -> Any:
        return D.array(np.vectorize(lambda k: Fraction(int(k), 16), [object])(rng.integers(low, 50, shape)), shape)

    least = [3 if k in case.positive or name not in KINKED else -49 for k in range(len(given))]
    operands = [drawn(a.shape, least[k]) if a is not None and a.dtype == object else a for k, a in enumerate(given)]
    head, value = forward(D, name, case, vocabulary, types, operands)
    parts = value if isinstance(value, tuple) else (value,)
    env = [*[drawn(np.shape(v), 3) for v in parts], None if isinstance(value, tuple) else value, *operands]
    kinds = [*[vocabulary.type(np.shape(v), case.dtype, "cpu") for v in parts], head.type, *types]
    branching.entered = {}
    template = trace_rule(vocabulary, branching, head, types, wanted(case, types),
                          [True] * len(parts) if isinstance(value, tuple) else None, Tracer, KEPT.get(name))
    for number, refs in template.steps:
        inner = vocabulary.heads[number]
        made = apply(D, vocabulary, inner, [env[r] for r in refs], [kinds[r] for r in refs])
        env.append(made if isinstance(made, tuple) else np.asarray(made))
        kinds.append(inner.type)
    return {k: np.vectorize(lambda v: float(arb(v)), [float])(np.asarray(env[r])) for k, r in template.results}


def unseen(name: str) -> Iterator[tuple[int, str, str]]:
    """(operand, change, branch) where a branch is entered, and no instance in it tells the change."""
    branching = Branching(OPS[name])
    differs: dict[tuple[int, str, str], bool] = defaultdict(bool)
    varying = set()                  # there is no wrong branch of a derivative that is 0
    for case, seed in itertools.product(cases_of(name), range(8 if name in KINKED else 1)):
        values, others = derivatives(branching, case, seed), {}
        if OPS[name].flags & ELEMENTWISE and len({s for s in case.shapes if s is not None}) > 1:
            for branching.change in TRIED:
                branching.applied = set()
                found = derivatives(branching, case, seed)
                others[branching.change] = {k: v if k in branching.applied else None for k, v in found.items()}
            branching.change = None
        for operand, value in values.items():
            if value.any():
                varying.add(operand)
            for change in TRIED:
                changed = others[change][operand] if others else changed_by(change, torch.from_numpy(value))
                if changed is not None:
                    told = not np.allclose(changed, value, 1e-12, 0)
                    for branch in branching.entered.get(operand, branching.entered.get(None, ())):
                        differs[operand, change, branch] |= told
    yield from (what for what, told in differs.items() if not told and what[0] in varying)


@pytest.mark.parametrize("name", sorted({n for n, _ in candidates()} - BY_SYMPY_ALONE - MANY_CASES))
def test_a_change_in_any_branch_is_seen_at_some_instance(name):
    found = list(unseen(name))
    found = [f for f in found if (name, f[0]) not in SUMMED or f[1] not in ORDERS]
    assert [f for f in found if f[1:] not in EQUAL.get((name, f[0]), ())] == []
    assert {(name, f[0]) for f in found} == {key for key in EQUAL if key[0] == name}


@pytest.mark.parametrize("name", sorted({n for n, _ in candidates()} - BY_SYMPY_ALONE))
def test_rules_are_asked_where_a_size_is_1(name):
    """A rule may be another one where a size is 1, without a doubt about the proof for all sizes."""
    branching, entered = Branching(OPS[name]), []
    for case in cases_of(name):
        derivatives(branching, case)
        entered += branching.entered.values()       # none of rules that have several cotangents
    assert any("size 1" in branches for branches in entered) or all("rank 0" in branches for branches in entered)
