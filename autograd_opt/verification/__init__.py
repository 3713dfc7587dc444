"""Verification: proved, refuted or undecided, for every optimization.

The entry point is `verify`. The folder, in reading order:

    bits, ir, reading          a recorded graph as plain data
    words, tracer, rules       gradient rules run on traces, once per signature
    users, unlike              the user's own rules: refused whatever they catch, and run in each way that runs ask them
    sweep                      values and reverse sweep of a graph as one program
    linear, numbering, sums    what may be distributed; value numbers; equality of combinations
    simulation, checker        the proof: every optimized cotangent is a sum of original ones
    domain, computing, moving  number domains, and the words that meanings are written in
    meaning, evaluate          what every operator means, over any domain; programs run over one
    field                      exact evaluation modulo a prime: finds differences, proves nothing
    intervals, points          rational points with rigorous bounds: refutes
    symbols, casework          sympy as a domain; kinks by cases
    cases, claims, lemmas      sympy's proofs of every rule and every linearity that the checker composes
    sympy_engine, expressions, spelling   elementwise gradients of small graphs: compared, and printed
    task, search, verifier     which engine is asked when
    verdict, parsed, frozen, certificate   what is answered; saved with its graph, read, and verified again
    known                      proofs of this process, by everything that they have read
    shelf, versions            proofs of lemmas, kept in files for the next process
    budget, leaders, asserting, cli
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autograd_opt.verification.asserting import assert_optimization_proved
from autograd_opt.verification.certificate import replay, save
from autograd_opt.verification.result.budget import ENGINES, Budget
from autograd_opt.verification.result.verdict import Counterexample, Reason, Status, Verdict, Verification
from autograd_opt.verification.strategies.verifier import verify

if TYPE_CHECKING:
    from autograd_opt.verification.strategies.expressions import GradientExpression, expression

__all__ = ["ENGINES", "Budget", "Counterexample", "GradientExpression", "Reason", "Status", "Verdict", "Verification",
           "assert_optimization_proved", "expression", "replay", "save", "verify"]


def __getattr__(name: str) -> Any:
    """Gradients as formulas need sympy, which takes longer to load than most proofs to find without it."""
    if name not in ("GradientExpression", "expression"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autograd_opt.verification.strategies import expressions

    return getattr(expressions, name)
