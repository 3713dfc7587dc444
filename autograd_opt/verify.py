"""Public names of verification; the packages behind them are `autograd_opt.verification`."""

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
