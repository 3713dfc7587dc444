"""Public names of verification; the packages behind them are `autograd_opt.verification`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autograd_opt import verification
from autograd_opt.verification import (
    ENGINES,
    Budget,
    Counterexample,
    Reason,
    Status,
    Verdict,
    Verification,
    assert_optimization_proved,
    replay,
    save,
    verify,
)

if TYPE_CHECKING:
    from autograd_opt.verification import GradientExpression, expression

__all__ = ["ENGINES", "Budget", "Counterexample", "GradientExpression", "Reason", "Status", "Verdict", "Verification",
           "assert_optimization_proved", "expression", "replay", "save", "verify"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(verification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
