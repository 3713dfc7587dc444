"""Verifications in files: saved with both programs, replayed without the graph."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autograd_opt.errors import ArgumentError
from autograd_opt.verify import checker
from autograd_opt.verify.budget import ENGINES, Budget
from autograd_opt.verify.ir import Head, Program, Type, Vocabulary
from autograd_opt.verify.task import Task
from autograd_opt.verify.verdict import Reason, Status, Verification, undecided


def save(
    path: str | Path,
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaves: Sequence[Any] | None = None,
    leader: Sequence[int] | None = None,
) -> Verification:
    """Verify and write a certificate that `replay` checks without the graph."""
    task = Task(nodes, roots, leaves, leader, None)
    found = task.run(ENGINES, Budget(), "real", (), 0)
    found = replace(found, programs=task.certificate())
    found.to_json(path)
    return found


def replay(
    saved: Verification | str | Path, budget: Budget | None = None, *, about: str | None = None
) -> Verification:
    """Check a saved verification again from the programs in it.

    Parameters
    ----------
    saved : a verification with its programs, or the path of its file.
    about : hash of the graph it should be about (`Verification.original`); None: whichever it is about.

    Raises
    ------
    ArgumentError : there is no such file, it is damaged, or it holds no programs.
    """
    if isinstance(saved, (str, Path)) and not Path(saved).is_file():
        raise ArgumentError(f"there is no file {saved}: write one with autograd_opt.verify.save")
    v = saved if isinstance(saved, Verification) else Verification.from_json(Path(saved))
    original, optimized, leader = programs_of(v)
    if (original.digest(), optimized.digest()) != (v.original, v.optimized):
        return undecided(Reason.FOREIGN, "the hashes are not those of the programs in the file")
    if about is not None and v.original != about:
        return undecided(Reason.FOREIGN, "it is about another graph than the one asked for")
    budget = budget or Budget()
    outcome = checker.check(
        original, optimized, leader, expansions=budget.expansions, deadline=time.monotonic() + budget.seconds
    )
    if all(outcome.equal) and outcome.equal:
        return replace(
            v, status=Status.PROVED, exact="bitwise" if all(outcome.bitwise) else "real", reason=None, message=""
        )
    return undecided(
        Reason.UNDERIVED, "the saved programs are not proved equal", original=v.original, optimized=v.optimized
    )


def programs_of(saved: Verification) -> tuple[Program, Program, list[int]]:
    """The two programs and the leaders that the verdict is about.

    Raises
    ------
    ArgumentError : the file holds no programs, or damaged ones.
    """
    raw = saved.programs
    if raw is None:
        raise ArgumentError("this verification was saved without its programs: use autograd_opt.verify.verifier.save")
    try:
        vocabulary = Vocabulary()
        vocabulary.types = [Type(None if s is None else tuple(s), d, v, tuple(p)) for s, d, v, p in raw["types"]]
        vocabulary.heads = [Head(o, tuple((k, t) for k, t in a), ty, bool(g), e) for o, a, ty, g, e in raw["heads"]]
        vocabulary._heads = {h: k for k, h in enumerate(vocabulary.heads)}
        if any(not 0 <= h.type < len(vocabulary.types) for h in vocabulary.heads):
            raise ValueError("a type that is not there")
        return (
            program(raw["original"], vocabulary),
            program(raw["optimized"], vocabulary),
            [int(x) for x in raw["leader"]],
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ArgumentError(f"the saved programs are damaged ({error}): verify the graph anew") from error


def program(raw: dict[str, Any], vocabulary: Vocabulary) -> Program:
    """One program; every reference is checked."""
    heads = [int(h) for h in raw["heads"]]
    operands = [tuple(int(x) for x in o) for o in raw["operands"]]
    if len(heads) != len(operands) or any(not 0 <= h < len(vocabulary.heads) for h in heads):
        raise ValueError("heads and operands do not fit")
    if any(not 0 <= x < k for k, o in enumerate(operands) for x in o):
        raise ValueError("an operand comes after its use")
    gradients = [None if x is None else int(x) for x in raw["gradients"]]
    values = [int(x) for x in raw["values"]]
    if any(x is not None and not 0 <= x < len(heads) for x in (*gradients, *values)):
        raise ValueError("a goal that is not there")
    return Program(
        vocabulary,
        heads,
        operands,
        array("q", [int(x) for x in raw["origin"]]),
        int(raw["forward"]),
        values,
        gradients,
        {int(k): int(v) for k, v in raw["cotangents"]},
    )
