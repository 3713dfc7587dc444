"""Verification: proved, refuted or undecided, for every optimization.

The entry point is `verify`; each engine is one file with one entry point:

    ir, trace        a recorded graph as plain data; its reverse sweep by the rules, traced
    checker          structural numbering and linear simulation: the proof
    field            exact evaluation modulo a prime: finds differences, proves nothing
    points           rational points with rigorous bounds: refutes
    sympy_engine     elementwise gradients of small graphs, in a subprocess with a limit
    domain, meaning  number domains; what every operator means over them
    evaluate         programs run over a domain
    symbols, lemmas  sympy's proofs of every rule and every linearity that the checker composes
    verdict          what is answered
"""

from __future__ import annotations

from autograd_opt.verify.verdict import Counterexample, Reason, Status, Verdict, Verification
from autograd_opt.verify.verifier import ENGINES, Budget, assert_optimization_proved, expression, replay, save, verify

__all__ = ["ENGINES", "Budget", "Counterexample", "Reason", "Status", "Verdict", "Verification",
           "assert_optimization_proved", "expression", "replay", "save", "verify"]
