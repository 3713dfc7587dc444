"""Kinks: a claim is shown in every case of the signs that matter."""

from __future__ import annotations

from typing import Any

from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verification.semantics.symbols import NeedCase, Symbols

MAX_CASES = 243


def by_cases(run: Any, notes: set[str]) -> str:
    """Run in every case of the signs that matter; the first failure, or an empty string.

    Where an expression is not linear in any symbol, the case that it is 0 is left out and noted.
    """
    pending: list[tuple[tuple[Any, int], ...]] = [()]
    done = 0
    while pending:
        cases = pending.pop()
        try:
            domain = Symbols(cases)
        except Outside:
            if not cases or cases[-1][1] != 0:
                raise
            notes.add(str(cases[-1][0]))
            continue
        try:
            wrong = run(domain)
            notes.update(map(str, domain.generic))
        except NeedCase as need:
            if any(need.difference == d for d, _ in cases):
                raise Outside(f"the sign of {need.difference}") from need
            pending += [(*cases, (need.difference, s)) for s in need.signs]
            continue
        if wrong:
            return f"{wrong} in the case {[(str(d), s) for d, s in cases]}" if cases else str(wrong)
        done += 1
        if done + len(pending) > MAX_CASES:
            raise Outside("too many cases")
    return ""
