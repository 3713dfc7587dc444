"""Verifications in files: saved with the graph that they are about, verified again without it.

A file is believed in nothing but what the recorded graph was: both programs, and what is proved of them, are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autograd_opt.errors import ArgumentError, ArgumentTypeError, at
from autograd_opt.verification.program.instructions import Malformed
from autograd_opt.verification.result.budget import ENGINES, Budget, How, budget_of
from autograd_opt.verification.result.parse_verdict import broken, entries, names_among, numbers, parse, texts
from autograd_opt.verification.result.verdict import Reason, Status, Verification, undecided
from autograd_opt.verification.serialize import DAMAGE, freeze, thaw
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verification.strategies.verifier import asked, verify


def save(
    path: str | Path,
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaves: Sequence[Any] | None = None,
    leader: Sequence[int] | None = None,
    **options: Any,
) -> Verification:
    """Verify as `verify` does, and write a file that `replay` checks without the graph."""
    return verify(nodes, roots, leaves, leader, save=path, **options)


def replay(
    saved: Verification | str | Path, budget: Budget | None = None, *, about: str | None = None
) -> Verification:
    """Verify again what a saved verification is about; the answer is today's, not the saved one.

    Parameters
    ----------
    saved : a verification with its graph, or the path of its file.
    about : hash of the graph it should be about (`Verification.original`); None: whichever it is about.

    Raises
    ------
    ArgumentError : there is no such file, it is damaged, or it holds no graph.
    """
    if not isinstance(saved, (str, Path, Verification)):
        raise ArgumentTypeError(at(
            f"saved is of type {type(saved).__name__}: choose a Verification, or the path of a file"))
    if not isinstance(about, (str, type(None))):
        raise ArgumentTypeError(at(
            f"about is of type {type(about).__name__}: choose the hash in Verification.original"))
    limits = budget_of(budget)
    v = saved if isinstance(saved, Verification) else parse(Path(saved))
    try:
        task, options = task_of(v)
        digests = task.original.digest(), task.optimized.digest()
    except Malformed as error:
        return undecided(Reason.MALFORMED, str(error))
    except DAMAGE as error:
        raise broken("the saved graph is damaged", error) from error
    if digests != (v.original, v.optimized):
        return undecided(Reason.FOREIGN, "the hashes are not those of the graph in the file, by today's rules")
    if about is not None and v.original != about:
        return undecided(Reason.FOREIGN, "it is about another graph than the one asked for")
    found = asked(lambda: task, How(budget=limits, **options))
    return replace(found, recorded=v.recorded)


def contents(task: Task, how: How, found: Verification) -> dict[str, Any]:
    """What a file holds beside the verdict; `derivation` is what `check_certificate.py` reads."""
    from autograd_opt.verification.derivation import derivation

    derived = found.status is Status.PROVED and found.engine in ("structural", "linear")
    return {
        "derivation": derivation(task) if derived else None,
        **freeze(task.recorded),
        "roots": task.roots,
        "wanted": task.leaves,
        "leader": task.leader,
        "alive": task.alive,
        "options": {"engines": list(how.engines), "exact": how.exact, "assume": list(how.assume), "seed": how.seed},
    }


def task_of(saved: Verification) -> tuple[Task, dict[str, Any]]:
    """The task that the verdict is about, and how it was asked.

    Raises
    ------
    ArgumentError : the file holds no graph.
    Malformed : a graph that cannot be verified.
    DAMAGE : the graph is damaged.
    """
    raw = saved.recorded
    if raw is None:
        raise ArgumentError(at("this verification was saved without its graph: pass save=path to verify"))
    recorded = thaw(dict(raw))
    n = len(recorded.heads)
    options = entries(raw["options"], ("engines", "exact", "assume", "seed"), "options")
    given = {
        "engines": names_among(options["engines"], ENGINES, "engines"),
        "exact": {"real": "real", "bitwise": "bitwise"}[options["exact"]],
        "assume": texts(options["assume"], "assume"),
        "seed": numbers([options["seed"]], "seed")[0],
    }
    task = Task(
        recorded.nodes,
        numbers(raw["roots"], "roots", n),
        numbers(raw["wanted"], "wanted", n),
        numbers(raw["leader"], "leader", n),
        None if raw["alive"] is None else numbers(raw["alive"], "alive", 2),
        recorded=recorded,
    )
    return task, given
