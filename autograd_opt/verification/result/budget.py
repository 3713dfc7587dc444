"""How a proof is asked for, and limits that hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autograd_opt._common.arguments import real, whole
from autograd_opt.errors import ArgumentTypeError, at

ENGINES = ("structural", "linear", "rewrite", "field", "points", "sympy")


@dataclass(frozen=True)
class Budget:
    """Limits that hold.

    Attributes
    ----------
    seconds : for the checker, and again for the search for a counterexample.
    expansions : terms that the checker may expand.
    elements : scalar operations that one evaluation at a point may cost.
    sympy_seconds : for the sympy subprocess.
    sympy_operations : scalar operations up to which sympy compares whole gradients.
    """

    seconds: float = 30.0
    expansions: int = 5_000_000
    elements: int = 2_000_000
    sympy_seconds: float = 20.0
    sympy_operations: int = 600

    def __post_init__(self) -> None:
        """Refuse what is no limit: NaN, a number below 0, text."""
        for name in ("seconds", "sympy_seconds"):
            real(name, getattr(self, name))
        for name in ("expansions", "elements", "sympy_operations"):
            whole(name, getattr(self, name))


def budget_of(given: Budget | None) -> Budget:
    """The limits that were given, or the usual ones."""
    if given is None:
        return Budget()
    if not isinstance(given, Budget):
        raise ArgumentTypeError(at(
            f"budget={given!r} is of type {type(given).__name__}: choose a Budget, such as Budget(seconds=5)"))
    return given


class How(NamedTuple):
    """How a proof is asked for; as nothing is said, where nothing is given."""

    engines: tuple[str, ...] = ENGINES
    budget: Budget = Budget()
    exact: str = "real"
    assume: tuple[str, ...] = ()
    seed: int = 0
