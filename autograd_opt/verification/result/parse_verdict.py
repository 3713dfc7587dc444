"""A saved verdict, read with suspicion: every field is looked at before anything relies on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autograd_opt.errors import ArgumentError, ArgumentTypeError, at
from autograd_opt.verification.result.verdict import FORMAT, Counterexample, Reason, Status, Verdict, Verification

FIELDS = frozenset(Verification.__dataclass_fields__)
MESSAGE = 120
"""Characters that an error quotes of a path or of another error, which may hold much of the file."""


def parse(text: str | Path) -> Verification:
    """The verdict in a text, or in a file.

    Raises
    ------
    ArgumentError : there is no such file, or it holds no verdict.
    """
    if not isinstance(text, (str, Path)):
        raise ArgumentTypeError(at(
            f"a saved verification is read from JSON text or from a pathlib.Path, not from {type(text).__name__}"))
    try:
        return verification(json.loads(text.read_text() if isinstance(text, Path) else text))
    except FileNotFoundError as error:
        raise ArgumentError(at(
            f"there is no file {shortened(str(text))}: write one with autograd_opt.verify.save")) from error
    except OSError as error:
        raise ArgumentError(at(
            f"{shortened(str(text))} cannot be read ({error.strerror}): write such a file with autograd_opt.verify.save"
        )) from error
    except (ValueError, RecursionError) as error:  # of the text, its encoding, or what it says
        raise broken("this is no saved verification, or a damaged one", error) from error


def broken(what: str, error: Exception) -> ArgumentError:
    """What is wrong with a file, and what to do."""
    return ArgumentError(at(f"{what} ({shortened(str(error) or type(error).__name__)}): verify the graph anew"))


def shortened(text: str) -> str:
    return text if len(text) <= MESSAGE else f"{text[:MESSAGE]}..."


def verification(raw: Any) -> Verification:
    """The verdict that plain data stand for; ValueError where they are none."""
    raw = entries(raw, {*FIELDS, "format"}, "the verdict")
    if raw.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    for name in ("message", "original", "optimized", "engine"):
        of_type(raw[name], (str,), name)
    for name in ("exact", "scope", "culprit"):
        of_type(raw[name], (str, type(None)), name)
    for name in ("trust", "stats"):
        of_type(raw[name], (dict,), name)
    of_type(raw["recorded"], (dict, type(None)), "recorded")
    given = counterexample(raw["counterexample"])
    return Verification(**{
        **raw, **answer(raw), "conditions": texts(raw["conditions"], "conditions"),
        "evidence": texts(raw["evidence"], "evidence"), "counterexample": given,
        "goals": tuple(map(verdict, of_type(raw["goals"], (list,), "goals"))),
    })


def verdict(raw: Any) -> Verdict:
    """The answer for one goal."""
    raw = entries(raw, Verdict.__dataclass_fields__, "a goal")
    for name in ("goal", "message"):
        of_type(raw[name], (str,), name)
    of_type(raw["exact"], (str, type(None)), "exact")
    return Verdict(**{**raw, **answer(raw)})


def answer(raw: dict[str, Any]) -> dict[str, Any]:
    """Status and reason."""
    return {"status": Status(raw["status"]), "reason": None if raw["reason"] is None else Reason(raw["reason"])}


def counterexample(raw: Any) -> Counterexample | None:
    if raw is None:
        return None
    raw = entries(raw, Counterexample.__dataclass_fields__, "the counterexample")
    for name in ("kind", "goal", "shapes"):
        of_type(raw[name], (str,), name)
    of_type(raw["point"], (dict,), "point")
    bounds = {k: texts(raw[k], k) for k in ("original", "optimized")}
    if any(len(b) != 2 for b in bounds.values()):
        raise ValueError("an interval has two bounds")
    return Counterexample(**{**raw, **bounds, "element": numbers(raw["element"], "element")})


# ----- plain data -----
def entries(raw: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """A copy of a dictionary with just these keys."""
    names = set(names)
    found = dict(of_type(raw, (dict,), what))
    if set(found) != names:
        wrong = sorted(map(str, set(found) ^ names))
        raise ValueError(f"{what} lacks, or has besides, {wrong[0]!r}")
    return found


def of_type(value: Any, kinds: tuple[type, ...], what: str) -> Any:
    """The value, which is just of one of these types: True is no number."""
    if type(value) not in kinds:
        raise ValueError(f"{what} is of type {type(value).__name__}")
    return value


def texts(values: Any, what: str) -> tuple[str, ...]:
    return tuple([str(of_type(v, (str,), what)) for v in of_type(values, (list, tuple), what)])


def numbers(values: Any, what: str, below: int | None = None) -> tuple[int, ...]:
    """Whole numbers of 0 or more, and `below` a limit where there is one."""
    out = tuple([int(of_type(v, (int,), what)) for v in of_type(values, (list, tuple), what)])
    if any(v < 0 or (below is not None and v >= below) for v in out):
        raise ValueError(f"{what} has a number out of its range")
    return out


def names_among(values: Any, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Some of the known words."""
    out = texts(values, what)
    if not set(out) <= set(known):
        raise ValueError(f"{what} has a word that is unknown")
    return out
