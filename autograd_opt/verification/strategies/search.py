"""No proof: a counterexample, evidence, or sympy on the whole gradients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autograd_opt.verification.checker import checker
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.result.verdict import Counterexample, Reason, Status, Verdict, Verification, undecided
from autograd_opt.verification.rewrites.rewrites import check as check_rewrites
from autograd_opt.verification.strategies.task import Task

MERGES = 64
"""Merges without a certificate that are tried, at most."""


def search(task: Task, how: How, outcome: checker.Outcome, common: dict[str, Any]) -> Verification:
    """No proof: look for a counterexample, then for evidence, then ask sympy.

    Only structure shows that bits are equal: where that is asked, no engine that proves over the reals is.
    """
    from autograd_opt.verification.counterexample import points, prime_field
    from autograd_opt.verification.strategies import sympy_engine

    engines, budget, exact, _, seed = how
    common["stats"]["searched"] = True  # values were looked at: integers, where the graph has some
    evidence: list[str] = []
    if exact == "bitwise":
        engines = tuple([e for e in engines if e in ("field", "points")])
    wanted = [goal for goal, ok in zip(task.compared, outcome.equal, strict=True) if not ok]
    reason, message = Reason.UNDERIVED, "no derivation was found"
    if outcome.budget:
        reason, message = Reason.BUDGET, str(outcome.stats.get("budget", ""))
    elif task.differentiator.unsupported:
        name, why = next(iter(task.differentiator.unsupported.items()))
        reason, message = Reason.UNSUPPORTED, f"{name}: {why}"
    field_found = None
    if "field" in engines:
        field_found = prime_field.compare(task, wanted, budget.elements, seed)
        evidence.append(str(field_found))
    if "points" in engines:  # also where the field sees no difference: it never meets a kink
        found = points.refute(task, wanted, budget, seed)
        if isinstance(found, Counterexample):
            if found.kind == "value" and field_found is not None and field_found.equal:
                found = replace(found, kind="kink")
            verdicts = tuple(
                Verdict(g.goal, Status.REFUTED) if g.goal == found.goal else g for g in common["goals"]
            )
            return Verification(
                Status.REFUTED,
                counterexample=found,
                evidence=tuple(evidence),
                **(common | {"goals": verdicts}),
                engine="points",
            )
        evidence.append(f"points: {found}")
    if "rewrite" in engines and not outcome.budget:
        merges = [i for i, _ in outcome.failed if task.leader[i] != i][:MERGES]
        local = rewritten(task, merges, how, outcome, common) if merges else None
        if local is not None and (local.status is Status.PROVED or local.reason is Reason.CONDITION):
            return local
        if local is not None:
            evidence.append(f"rewrite: {local.message}")
            reason, message = local.reason or reason, local.message
    # where the merges could not be judged in time, nobody has said what only one side computes
    if "sympy" in engines and reason is not Reason.TIMEOUT and (field_found is None or field_found.equal is not False):
        answer = sympy_engine.compare(task, wanted, budget)
        evidence.append(f"sympy: {answer.message}")
        if answer.late and reason is Reason.UNDERIVED:
            reason, message = Reason.TIMEOUT, answer.message
        if answer.equal:
            verdicts = tuple(
                g if g.status is Status.PROVED else Verdict(g.goal, Status.PROVED, "real") for g in common["goals"]
            )
            return proved(task, how, answer.conditions, "these shapes", "sympy", verdicts, common, tuple(evidence))
    if reason is Reason.UNDERIVED and field_found is not None and field_found.equal is None:
        reason = Reason.TOO_LARGE if field_found.large else Reason.UNSUPPORTED
        message = field_found.message
    elif reason is Reason.UNDERIVED and field_found is not None:
        reason = Reason.EQUAL_IN_FIELD if field_found.equal else Reason.NO_WITNESS
        message = str(field_found)
    return undecided(reason, message, evidence=tuple(evidence), **common)


def rewritten(
    task: Task, nodes: Sequence[int], how: How, outcome: checker.Outcome, common: dict[str, Any]
) -> Verification | None:
    """Three stages: merges of equal operations, the rewrites one by one, merges of what those leave.

    None where one of them is not shown.
    """
    budget = how.budget
    merged = [to if outcome.numbers[i] == outcome.numbers[to] else i for i, to in enumerate(task.leader)]
    checked = check_rewrites(task, nodes, merged, budget)
    common["stats"] |= {"rewrites": len(nodes), "rewrites proved": checked.proved}
    if checked.failed is not None:
        outcome.failed.insert(0, checked.failed)
    before, after = (task.differentiator.program(to, task.roots, task.leaves) for to in (merged, checked.leader))
    stages = ((task.original, before, merged), (after, task.optimized, task.leader))
    deadline = time.monotonic() + budget.seconds
    if not all(all(checker.check(*s, expansions=budget.expansions, deadline=deadline).equal) for s in stages):
        return None if not checked.late else undecided(Reason.TIMEOUT, checked.late, **common)
    verdicts = tuple(Verdict(goal, Status.PROVED, "real") for goal in task.goals)
    return proved(task, how, checked.conditions, checked.scope, "rewrite", verdicts, common)


def proved(task: Task, how: How, conditions: Sequence[str], scope: str, engine: str, goals: tuple[Verdict, ...],
           common: dict[str, Any], evidence: tuple[str, ...] = ()) -> Verification:
    """The proof over the reals, where the caller vouches for its conditions."""
    missing = [c for c in conditions if c not in how.assume]
    if missing:
        return undecided(Reason.CONDITION, "; ".join(missing), evidence=evidence, **common)
    return Verification(Status.PROVED, "real", scope, (*task.conditions(False), *conditions), engine=engine,
                        evidence=evidence, **(common | {"goals": goals, "culprit": None}))
