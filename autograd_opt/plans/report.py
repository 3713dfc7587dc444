"""What is known of the kinds of calls of a compiled function, as text and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from autograd_opt.plans.fusing import Group
from autograd_opt.plans.optimizing import typed
from autograd_opt.plans.program import Program
from autograd_opt.plans.recording import Repetition


@dataclass(frozen=True)
class Kind:
    """One kind of call.

    Attributes
    ----------
    calls : how often it was met again; the first of these calls makes the plan, the others repeat it.
    reason : why it is recorded each time; empty where it is repeated.
    operations : operators that the optimized graph has left to run, forward and backward.
    kernels : operators that run as kernels in a repetition, by name and number.
    moves : how many operators only copy elements from one place to another.
    stretches : the numbers of operators that run together, elementwise, one number a stretch.
    """

    calls: int
    reason: str
    operations: int
    kernels: dict[str, int]
    moves: int
    stretches: tuple[int, ...]

    @classmethod
    def of(cls, repetition: Repetition | None, calls: int, reason: str) -> Kind:
        """What a repetition has, or why there is none."""
        plans = [] if repetition is None else [p for p in (repetition.plan, repetition.backward) if p is not None]
        return cls(
            calls,
            reason,
            sum(len(p.program.instructions) for p in plans),
            dict(Counter(one.name for p in plans for one in p.kernels).most_common()),
            sum(len(p.moves) for p in plans),
            tuple(len(one.members) for p in plans for one in p.order if isinstance(one, Group)),
        )

    def __str__(self) -> str:
        if self.reason:
            return f"recorded each time, because {self.reason}"
        if not self.calls:
            return "recorded once; the next call makes its plan"
        kernels = sum(self.kernels.values())
        parts = [f"{kernels} kernel{'' if kernels == 1 else 's'}"]
        if self.moves:
            parts.append(f"{self.moves} move{'' if self.moves == 1 else 's'}")
        if self.stretches:
            some = f"{len(self.stretches)} stretch{'' if len(self.stretches) == 1 else 'es'}"
            parts.append(
                f"{some} of {', '.join(map(str, self.stretches[:5]))}{', ...' if len(self.stretches) > 5 else ''}"
            )
        text = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[:-1] else parts)
        return f"repeated: {self.operations} operations run as {text}"


@dataclass(frozen=True)
class PlanReport:
    """The kinds of calls of a compiled function, the latest first."""

    kinds: list[Kind]

    def to_dict(self) -> dict[str, object]:
        """The same as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{len(self.kinds)} kind{'' if len(self.kinds) == 1 else 's'} of call"]
        return "\n".join([*lines, *(f"  {k} {kind}" for k, kind in enumerate(self.kinds, 1))])


def described(repetition: Repetition) -> list[Any]:
    """The programs of a repetition, such that equal means that they compute the same."""
    return [program_text(p.whole) for p in (repetition.plan, repetition.backward) if p is not None]


def program_text(program: Program) -> Any:
    """A program as nested tuples: operators, arguments with the bits of their numbers, and where results go."""
    return (
        [(one.name, repr(typed(one.args)), repr(typed(one.kwargs)), one.outs) for one in program.instructions],
        list(program.given),
        list(program.asked),
    )
