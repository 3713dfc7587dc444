"""Verifications in files: saved with the graph that they are about, verified again without it.

A file is believed in nothing but what the recorded graph was: both programs, and what is proved of them, are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autograd_opt.errors import ArgumentError
from autograd_opt.verify.budget import ENGINES, Budget, How
from autograd_opt.verify.frozen import freeze, positions, thaw
from autograd_opt.verify.ir import Malformed
from autograd_opt.verify.task import Task
from autograd_opt.verify.verdict import Reason, Verification, undecided
from autograd_opt.verify.verifier import asked, verify


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
    if isinstance(saved, (str, Path)) and not Path(saved).is_file():
        raise ArgumentError(f"there is no file {saved}: write one with autograd_opt.verify.save")
    v = saved if isinstance(saved, Verification) else Verification.from_json(Path(saved))
    try:
        task, options = task_of(v)
    except Malformed as error:
        return undecided(Reason.MALFORMED, str(error))
    if (task.original.digest(), task.optimized.digest()) != (v.original, v.optimized):
        return undecided(Reason.FOREIGN, "the hashes are not those of the graph in the file, by today's rules")
    if about is not None and v.original != about:
        return undecided(Reason.FOREIGN, "it is about another graph than the one asked for")
    found = asked(lambda: task, How(budget=budget or Budget(), **options))
    return replace(found, recorded=v.recorded)


def contents(task: Task, how: How) -> dict[str, Any]:
    """What a file holds beside the verdict."""
    return {
        **freeze(task.recorded),
        "roots": task.roots,
        "wanted": task.leaves,
        "leader": task.leader,
        "alive": task.alive,
        "rewrites": [[r.node, r.rule, r.replacement, list(r.cut)] for r in task.rewrites],
        "options": {"engines": list(how.engines), "exact": how.exact, "assume": list(how.assume), "seed": how.seed},
    }


def task_of(saved: Verification) -> tuple[Task, dict[str, Any]]:
    """The task that the verdict is about, and how it was asked.

    Raises
    ------
    ArgumentError : the file holds no graph, or a damaged one.
    Malformed : a graph that cannot be verified.
    """
    raw = saved.recorded
    if raw is None:
        raise ArgumentError("this verification was saved without its graph: pass save=path to verify")
    try:
        recorded = thaw(dict(raw))
        n = len(recorded.heads)
        options = raw["options"]
        given = {
            "engines": tuple(e for e in ENGINES if e in options["engines"]),
            "exact": {"real": "real", "bitwise": "bitwise"}[options["exact"]],
            "assume": tuple(map(str, options["assume"])),
            "seed": int(options["seed"]),
        }
        task = Task(
            recorded.nodes,
            positions(raw["roots"], n),
            positions(raw["wanted"], n),
            positions(raw["leader"], n),
            raw["alive"],
            [(node, rule, to, tuple(positions(cut, n))) for node, rule, to, cut in raw["rewrites"]],
            recorded=recorded,
        )
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ArgumentError(f"the saved graph is damaged ({error}): verify the graph anew") from error
    return task, given
