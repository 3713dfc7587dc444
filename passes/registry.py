"""Passes by name. A pass reads a table and returns leaders, liveness, or both."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes import errors
from autograd_opt.passes._cse import cse
from autograd_opt.passes._prune import prune
from autograd_opt.passes.effort import Effort
from autograd_opt.passes.leaders import Leaders, canonical
from autograd_opt.passes.node_table import NodeTable

__all__ = [
    "Pass",
    "PassResult",
    "PassState",
    "get_pass",
    "pass_names",
    "register_pass",
    "unregister_pass",
]


@dataclass(frozen=True, slots=True)
class PassState:
    """What the passes before this one have decided; the arrays are read-only."""

    outputs: NDArray[np.int64]
    leader: Leaders
    alive: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass decides; None leaves things as they were.

    What changed is counted by the pipeline, not claimed by the pass.
    """

    leader: Leaders | None = None
    alive: NDArray[np.uint8] | None = None
    effort: Effort | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A named function from a table and a state to a result; equal to itself alone.

    Parameters
    ----------
    name : str
    run : callable
        ``run(table, state) -> PassResult``.
    exact : bool
        The pass merges only nodes of equal keys whose operands have equal
        leaders; the checker then holds it to that.
    trusted : bool
        Results are checked only when the pipeline is told to check everything.
    keeps_sums : bool
        No cotangent is added to another in another order: the pass never merges
        what a cotangent flows through.
    repeatable : bool
        The result depends on the table and the outputs alone, so that it may be
        used again for a table with the same content.
    """

    name: str
    run: Callable[[NodeTable, PassState], PassResult]
    exact: bool = False
    trusted: bool = False
    keeps_sums: bool = False
    repeatable: bool = False


_registered: dict[str, Pass] = {}


def register_pass(
    name: str,
    run: Callable[[NodeTable, PassState], PassResult],
    *,
    exact: bool = False,
    trusted: bool = False,
    keeps_sums: bool = False,
    repeatable: bool = False,
) -> Pass:
    """Make a pass available by name, to every pipeline built from now on.

    Parameters
    ----------
    name
        By which `passes=` selects it.
    run
        From a table of nodes and what earlier passes found to what this one finds.
    exact, trusted, keeps_sums, repeatable
        What it promises, as the attributes of `Pass` say.

    Raises
    ------
    ArgumentError
        If the name is taken.
    ArgumentTypeError
        If the name is no string, `run` cannot be called, or an option is not
        True or False.

    Examples
    --------
    >>> nothing = register_pass("nothing", lambda table, state: PassResult())
    >>> get_pass("nothing") is nothing
    True
    >>> unregister_pass("nothing")
    """
    if not isinstance(name, str) or not name:
        raise errors.ArgumentTypeError(errors.at(f"a pass has a name, not {name!r}: give text"))
    if not callable(run):
        raise errors.ArgumentTypeError(errors.at(
            f"the pass {name!r} is a function of a table and a state, not {run!r}"))
    options = {"exact": exact, "trusted": trusted, "keeps_sums": keeps_sums, "repeatable": repeatable}
    for option, value in options.items():
        if not (isinstance(value, (int, np.bool_)) and value in (0, 1)):
            raise errors.ArgumentTypeError(errors.at(f"the pass {name!r}: {option}={value!r}: choose True or False"))
    made = Pass(name, run, exact, trusted, keeps_sums, repeatable)
    if _registered.setdefault(name, made) is not made:
        raise errors.ArgumentError(errors.at(f"a pass named {name!r} is registered already: choose another"))
    return made


def unregister_pass(name: str) -> None:
    """Forget a pass that was registered under `name`.

    Pipelines that have it already keep it.

    Raises
    ------
    UnknownPassError
        If there is none; the message suggests the nearest name.
    ArgumentError
        If it is built in.
    """
    found = get_pass(name)
    if name in _built_in:
        raise errors.ArgumentError(errors.at(
            f"the pass {name!r} is built in and stays registered: leave it out of passes= where it should not run"))
    _registered.pop(found.name, None)


def get_pass(name: str) -> Pass:
    """Return the pass registered under `name`.

    Raises
    ------
    UnknownPassError
        If there is none; the message suggests the nearest name.
    """
    found = _registered.get(name) if isinstance(name, str) else None
    if found is None:
        error = errors.UnknownPassError(name, _registered)
        error.place = errors.where()
        raise error
    return found


def pass_names() -> list[str]:
    """Return the names of all registered passes, in order of registration."""
    return list(_registered)


def _cse(table: NodeTable, state: PassState) -> PassResult:
    effort = Effort()
    leader = cse(table, leader=canonical(table.same, table.flags, state.leader), effort=effort)
    return PassResult(leader=leader, effort=effort)


def _prune(table: NodeTable, state: PassState) -> PassResult:
    return PassResult(alive=prune(table, state.outputs, state.leader))


register_pass("cse", _cse, exact=True, trusted=True, repeatable=True)
register_pass("prune", _prune, trusted=True, keeps_sums=True, repeatable=True)
_built_in = frozenset(_registered)
