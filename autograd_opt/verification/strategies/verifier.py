"""The entry point: nothing that is wrong with a graph raises; it is undecided, with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from autograd_opt import errors
from autograd_opt._common.arguments import choice, named, whole, yes_or_no
from autograd_opt._common.files import path_of
from autograd_opt._common.garbage import uncollected
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.checker import congruence, unchanged
from autograd_opt.verification.program.instructions import Malformed, Released
from autograd_opt.verification.result.budget import ENGINES, Budget, How, budget_of
from autograd_opt.verification.result.verdict import Reason, Verification, undecided
from autograd_opt.verification.strategies.task import Task


class Question(NamedTuple):
    """One graph, one optimization of it, and how a proof is asked for; the parameters of `verify`."""

    nodes: Sequence[Any]
    roots: Sequence[Any]
    leaves: Sequence[Any] | None
    leader: Any
    alive: Any
    how: How = memory_cache.USUAL


@named
def verify(
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaves: Sequence[Any] | None = None,
    leader: Sequence[int] | None = None,
    *,
    alive: Sequence[int] | None = None,
    engines: Sequence[str] = ENGINES,
    budget: Budget | None = None,
    exact: str = "real",
    assume: Sequence[str] = (),
    seed: int = 0,
    save: str | Path | None = None,
    anew: bool = False,
) -> Verification:
    """Are the optimized values and gradients those of the graph as written?

    Parameters
    ----------
    nodes : the recorded nodes in record order (`graph.tape.snapshot()`).
    roots : output nodes, or their positions in `nodes`.
    leaves : the leaves whose gradients are compared; None: all that require grad.
    leader : position of the node that each node is merged into (itself: not merged);
        None: what the recorder noted and the executor follows.
    alive : 0 for the nodes that a pass dropped; None: none.
    engines : which means may be used, in this order.
    budget : limits; see `Budget`.
    exact : `real`, or `bitwise` to accept nothing less.
    assume : conditions that the caller vouches for.
    seed : for the random points.
    save : a file to write, in a folder that is there, with the graph, so that `replay` verifies it again elsewhere.
    anew : prove it though the same question has been answered in this process; saving always does.

    Returns
    -------
    Verification : never an exception for what is wrong with the graph.

    Raises
    ------
    ArgumentError, ArgumentTypeError : an option is none; said before anything is proved.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    >>> with ao.AutogradGraph(optimize=True) as graph:
    ...     loss = ((a * b).sin() * (a * b)).sum()
    ...     v = verify(graph.tape.snapshot(), [loss.grad_fn])
    >>> v.status, v.exact
    (<Status.PROVED: 'proved'>, 'real')
    """
    how = How(words("engines", engines, ENGINES), budget_of(budget), choice("exact", exact, ("real", "bitwise")),
              words("assume", assume), whole("seed", seed))
    anew = yes_or_no("anew", anew)
    save = None if save is None else path_of("save", save, folder=True)
    if not isinstance(nodes, Sequence):
        raise errors.ArgumentTypeError(errors.at(
            f"nodes is of type {type(nodes).__name__}: pass the list that graph.tape.snapshot() returns"))
    question = Question(nodes, roots, leaves, leader, alive, how)
    key = memory_cache.key_of(memory_cache.seen(nodes, roots, leaves, leader is None), leader, alive, question.how)
    answer = None if anew or save is not None else memory_cache.find(key)
    return decide(key, question, save) if answer is None else answer


def words(what: str, given: Any, known: Sequence[str] = ()) -> tuple[str, ...]:
    """A sequence of words, of the known ones where there are any."""
    if isinstance(given, str):
        raise errors.ArgumentTypeError(errors.at(
            f"{what}={given!r} is text: choose a sequence, such as [{given!r}]"))
    if not isinstance(given, (Sequence, Set)) or (not known and not all(isinstance(word, str) for word in given)):
        raise errors.ArgumentTypeError(errors.at(f"{what}={given!r}: choose a sequence of words"))
    if known and not given:
        raise errors.ArgumentError(errors.at(f"{what}={given!r}: name at least one of {', '.join(map(repr, known))}"))
    return tuple([choice(what, word, known) if known else word for word in given])


def of_run(key: memory_cache.Key | None, question: Question, as_written: bool) -> Verification:
    """As `decide`, for a run: proved without its sweeps where that can be.

    `as_written` says that no pass had a part in it: whether it goes as written is seen without a rule.
    """
    loosely = None if key is None else memory_cache.loosely(*question)
    known = memory_cache.find(loosely)
    if known is not None and key is not None and (again := for_this_graph(known, key, question)) is not None:
        return again
    if not memory_cache.met(loosely):
        loosely = None
    if not as_written:
        return decide(key, question, loosely=loosely, at_sight=True)
    try:
        found = unchanged.answer(key, question.nodes, question.roots, question.leaves)
    except Exception:  # what is wrong is said by who proves it
        found = None
    if found is None:
        return decide(key, question)
    memory_cache.keep(key if loosely is None else loosely, found, rows=3)
    return found


def for_this_graph(known: Verification, key: memory_cache.Key, question: Question) -> Verification | None:
    """The verdict on a graph that differs in numbers which the proof has not read; None where it cannot be read."""
    nodes, roots, leaves, leader, *_ = question
    try:
        original, optimized = unchanged.digests(key, nodes, roots, leaves, leader)
    except (TypeError, LookupError):
        return None
    return replace(known, original=original, optimized=optimized)


def decide(key: memory_cache.Key | None, question: Question, save: str | Path | None = None,
           at_sight: bool = False, loosely: memory_cache.Key | None = None) -> Verification:
    """The answer to a question of this key that this process has not answered.

    `loosely`: the key under which a proof without sweeps, `at_sight`, is kept instead.
    """
    *graph, how = question
    made: list[Task] = []

    def task() -> Task:
        if not made:
            made.append(Task(*graph))
        return made[0]

    with uncollected():
        seen = congruent(key, task, how) if at_sight and key is not None else None
        found = asked(task, how) if seen is None else seen
    if save is not None and made:
        from autograd_opt.verification.certificate import contents

        found = replace(found, recorded=contents(made[0], how, found))
        found.to_json(save)
    else:
        users = made[0].differentiator.read_rules if made else ()
        memory_cache.keep(key if seen is None or loosely is None else loosely, found, 1 if seen is None else 3, users)
    return found


def congruent(key: memory_cache.Key, task: Callable[[], Task], how: How) -> Verification | None:
    """What is proved without sweeps."""
    try:
        return congruence.answer(key, task(), how)
    except Exception:  # what is wrong is said by who proves it
        return None


def asked(task: Callable[[], Task], how: How) -> Verification:
    """The answer about a task; whatever goes wrong in making it or in an engine is one too."""
    start = time.perf_counter()
    try:
        found = task().run(how)
    except Malformed as error:
        return undecided(Reason.RELEASED if isinstance(error, Released) else Reason.MALFORMED, str(error))
    except Exception as error:  # an engine that fails must never look like a proof, nor hide its failure
        return undecided(Reason.FAILED, f"{type(error).__name__}: {error}")
    found.stats["seconds"] = time.perf_counter() - start  # type: ignore[index]
    return found
