"""What a verification says: proved, refuted or undecided, and never a bool.

A verdict states what was shown (bit for bit or over the reals, for which shapes, under
which conditions, by which means) and is bound to the two graphs by their hashes, so that
it cannot be passed off as a verdict about another graph.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from autograd_opt._common.files import path_of, written_whole
from autograd_opt.errors import VerificationError

FORMAT = 2
SHOWN = 64
"""Numbers of one tensor that a counterexample prints."""


class Status(StrEnum):
    """The three answers."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """Every way of being undecided, and what helps."""

    UNSUPPORTED = "unsupported operator"
    CONDITION = "undischarged condition"
    UNDERIVED = "no derivation"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    EQUAL_IN_FIELD = "equal in the field, not derived"
    NO_WITNESS = "differs in the field, no real witness"
    ONLY_REAL = "proved over the reals only"
    NOTHING = "nothing compared"
    RELEASED = "graph released"
    EFFECT = "effect merged or dropped"
    PRUNED = "needed node pruned"
    MALFORMED = "malformed input"
    FOREIGN = "verdict of another graph"
    TOO_LARGE = "too large"
    FAILED = "engine failed"


REMEDY: dict[Reason, str] = {
    Reason.UNSUPPORTED: "give the operator a meaning (autograd_opt.verification.semantics.operators), "
    "or its rule operations that proofs know, or keep its twins unmerged",
    Reason.CONDITION: "pass the condition in assume=",
    Reason.BUDGET: "pass a larger budget=Budget(...)",
    Reason.TIMEOUT: "raise Budget.sympy_seconds",
    Reason.ONLY_REAL: "ask for exact='real', or run only passes that keep the bits",
    Reason.NOTHING: "name outputs that depend on a leaf which requires grad",
    Reason.RELEASED: "verify before the graph is cleared or its nodes are forgotten",
    Reason.TOO_LARGE: "verify a smaller instance of the same structure, or pass a larger budget=Budget(elements=...)",
    Reason.UNDERIVED: "pass a larger budget; the culprit is where the derivation stops",
    Reason.EQUAL_IN_FIELD: "the graphs are probably equal: pass a smaller instance",
    Reason.NO_WITNESS: "the graphs probably differ: look at the culprit, or try another seed=",
    Reason.EFFECT: "tell the pass that the operation is no pure function: it neither merges nor drops one then",
    Reason.PRUNED: "mark what the outputs read as alive: the pass's result is wrong",
    Reason.MALFORMED: "pass leaders and nodes as the graph's own passes return them",
    Reason.FAILED: "ask for other engines=, and report the message: this is a fault of the verifier",
    Reason.FOREIGN: "verify this graph anew",
}


class NoBool:
    """A three-valued answer has no truth value."""

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a verdict is proved, refuted or undecided, not true or false: compare .status, or call .require('proved')"
        )


@dataclass(frozen=True)
class Counterexample(NoBool):
    """A point at which the two gradients (or values) differ, with rigorous bounds.

    `point` maps leaves to nested lists of rationals (as text), `original` and `optimized`
    are closed intervals that contain the two values and do not meet.
    """

    kind: str
    goal: str
    element: tuple[int, ...]
    point: Mapping[str, Any]
    original: tuple[str, str]
    optimized: tuple[str, str]
    shapes: str = "actual"

    def __str__(self) -> str:
        def show(bounds: tuple[str, str]) -> str:
            return bounds[0] if bounds[0] == bounds[1] else f"[{bounds[0]}, {bounds[1]}]"

        where = ", ".join(f"{k} = {_flat(v)}" for k, v in self.point.items())
        at = f"{list(self.element)}" if self.element else ""
        return f"{self.goal}{at}: {show(self.original)} as written, {show(self.optimized)} optimized, at {where}"


def _flat(value: Any) -> str:
    """Nested lists on one line; one number all over by its number, and long ones by their first."""
    array = np.array(value, dtype=object)
    elements = list(map(str, array.reshape(-1)))
    if len(elements) > 4 and len(set(elements)) == 1:
        return f"{elements[0]} in all {'x'.join(map(str, array.shape))}"
    if len(elements) > SHOWN:
        return f"({', '.join(elements[:8])}, ... {len(elements)} numbers, all in .point)"
    return json.dumps(value).replace('"', "") if isinstance(value, (list, tuple)) else str(value)


@dataclass(frozen=True)
class Verdict(NoBool):
    """The answer for one goal: a leaf's gradient or an output's value."""

    goal: str
    status: Status
    exact: str | None = None
    reason: Reason | None = None
    message: str = ""

    def __str__(self) -> str:
        why = f"{self.reason}: {self.message}" if self.message else str(self.reason)
        tail = f" ({self.exact})" if self.exact else f" ({why})" if self.reason else ""
        return f"{self.goal}: {self.status}{tail}"


class Late:
    """A text that may be given as a function which makes it when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, kind: type) -> str:
        if owner is None:
            return ""
        value = owner.__dict__[self.name]
        if not isinstance(value, str):
            value = owner.__dict__[self.name] = value()
        return str(value)

    def __set__(self, owner: Any, value: str | Callable[[], str]) -> None:
        owner.__dict__[self.name] = value


@dataclass(frozen=True)
class Verification(NoBool):
    """The answer for a graph: overall and per goal.

    Attributes
    ----------
    status : `proved`, `refuted` or `undecided`.
    exact : `bitwise` (the same kernels meet the same operands) or `real` (equal over the reals).
    scope : `all shapes of this structure` or `these shapes`.
    conditions : what must hold beyond the definedness of the original.
    reason, message : why undecided, and what to do.
    counterexample, culprit : the point, and the node (with source line) that is wrong.
    trust : what the proof rests on: lemmas, versions.
    evidence : what engines saw that proves nothing by itself.
    stats : counts and seconds.
    goals : one `Verdict` per leaf and output.
    original, optimized : hashes of the two joint graphs.
    recorded : with `save=`, the graph itself, for `replay`.

    Examples
    --------
    >>> v = Verification(Status.UNDECIDED, reason=Reason.NOTHING, message="no leaf")
    >>> print(v)
    undecided: nothing compared: no leaf
      what to do: name outputs that depend on a leaf which requires grad
    >>> if v: pass
    Traceback (most recent call last):
    ...
    TypeError: a verdict is proved, refuted or undecided, not true or false: compare .status, or call .require('proved')
    """

    status: Status
    exact: str | None = None
    scope: str | None = None
    conditions: tuple[str, ...] = ()
    reason: Reason | None = None
    message: str = ""
    counterexample: Counterexample | None = None
    culprit: str | None = None
    trust: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    goals: tuple[Verdict, ...] = ()
    original: Late = Late()
    optimized: Late = Late()
    engine: str = ""
    recorded: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dict__}

    def with_stats(self, **stats: Any) -> Verification:
        """The same with these counts as well and without its graph; what is made late is not made for that."""
        other = object.__new__(Verification)
        other.__dict__.update(self.__dict__, recorded=None, stats={**self.stats, **stats})
        return other

    @property
    def leaves(self) -> tuple[Verdict, ...]:
        """The verdicts on the leaves' gradients."""
        return tuple(g for g in self.goals if g.goal.startswith("gradient"))

    def require(self, status: str = "proved") -> Verification:
        """Raise VerificationError with the whole report unless the status is this one."""
        if self.status != Status(status):
            raise VerificationError(str(self))
        return self

    def __str__(self) -> str:
        head = str(self.status)
        if self.status is Status.PROVED:
            equal = {"real": "over the reals", "bitwise": "bit for bit"}.get(str(self.exact), self.exact)
            head += f": optimized = original, {equal}, for {self.scope}; engine: {self.engine}"
        elif self.status is Status.UNDECIDED:
            head += f": {self.reason}" + (f": {self.message}" if self.message else "")
        lines = [head]
        if self.counterexample is not None:
            lines.append(f"  {self.counterexample}")
        if self.culprit:
            lines.append(f"  culprit: {self.culprit}")
        lines += [f"  under: {c}" for c in self.conditions]
        lines += [f"  evidence: {e}" for e in self.evidence]
        lines += [f"  {g}" for g in self.goals if g.status is not self.status]
        if self.reason in REMEDY:
            lines.append(f"  what to do: {REMEDY[self.reason]}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colour = {"proved": "#060", "refuted": "#900", "undecided": "#850"}[self.status]
        rows = "".join(
            f"<tr><td>{html.escape(g.goal)}</td><td>{g.status}</td><td>{g.exact or g.reason or ''}</td></tr>"
            for g in self.goals
        )
        return (
            f"<div><b style='color:{colour}'>{self.status}</b><pre>{html.escape(str(self))}</pre>"
            f"<table>{rows}</table></div>"
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data, ready for JSON."""
        out = asdict(self)
        out["format"] = FORMAT
        return out

    def to_json(self, path: str | Path | None = None) -> str:
        """The verdict as JSON; also written to `path` when given, whole or not at all.

        Raises
        ------
        ArgumentError : `path` is a folder, or in a folder that is not there.
        """
        text = json.dumps(self.to_dict(), indent=None, default=str)
        if path is not None:
            with written_whole(path_of("path", path, folder=True)) as draft:
                draft.write_text(text)
        return text

    @classmethod
    def from_json(cls, text: str | Path) -> Verification:
        """Read a verdict back from text or from a file (a `pathlib.Path`).

        Raises
        ------
        ArgumentError : there is no such file, or what is read is damaged or of another format.

        >>> v = Verification(Status.UNDECIDED, reason=Reason.NOTHING, message="no leaf")
        >>> Verification.from_json(v.to_json()) == v
        True
        """
        from autograd_opt.verification.result.parse_verdict import parse

        return parse(text)


def undecided(reason: Reason, message: str = "", **more: Any) -> Verification:
    """A Verification that says why there is no answer."""
    return Verification(Status.UNDECIDED, reason=reason, message=message, **more)
