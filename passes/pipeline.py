"""Passes in a row: run, checked, timed, reported, each merge on record."""

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autograd_opt.passes import errors
from autograd_opt.passes.check import check
from autograd_opt.passes.effort import Effort, checks_forced
from autograd_opt.passes.errors import PassResultError
from autograd_opt.passes.leaders import Leaders, first_merges, identity_leaders, merged_nodes, require_limit
from autograd_opt.passes.node_table import NodeTable
from autograd_opt.passes.registry import Pass, PassResult, PassState, get_pass

T = TypeVar("T", bound=np.generic)

__all__ = ["Certificate", "Merge", "Optimized", "PassReport", "Pipeline"]


class Merge(NamedTuple):
    """One line of a certificate: `node` has the value of `leader`."""

    node: int
    leader: int
    reason: str
    """Name of the pass that merged them."""


class PassReport(NamedTuple):
    """What one pass did, counted from its result."""

    name: str
    merged: int
    pruned: int
    seconds: float
    effort: Effort | None

    @property
    def changed(self) -> bool:
        """Whether the pass changed anything."""
        return self.merged != 0 or self.pruned != 0


@dataclass(frozen=True, eq=False)
class Certificate(Sequence[Merge]):
    """Every merge, in the order made; a `Merge` is built only when looked at.

    `nodes`, `leaders` and `reasons` hold the same as arrays, `reasons` as
    numbers into `names`.
    """

    nodes: NDArray[np.intp]
    leaders: Leaders
    reasons: NDArray[np.uint8]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(len(self)))]
        name = self.names[self.reasons[item]]
        return Merge(int(self.nodes[item]), int(self.leaders[item]), name)

    def __iter__(self) -> Iterator[Merge]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Optimized:
    """Result of a pipeline.

    Attributes
    ----------
    leader : int32[n]
        For each node the node that computes its value.
    alive : uint8[n]
        1 where a node must run.
    reports : tuple of PassReport
    failure : PassResultError or None
        Why the unoptimized graph was fallen back to, if it was.
    """

    leader: Leaders
    alive: NDArray[np.uint8]
    reports: tuple[PassReport, ...]
    failure: PassResultError | None
    history: tuple[Leaders, ...]
    """Leaders before the first pass and after each."""

    @property
    def changed(self) -> bool:
        """Whether any pass changed anything."""
        return any(report.changed for report in self.reports)

    @property
    def merged(self) -> int:
        """Number of nodes that have another node as their leader."""
        return sum(report.merged for report in self.reports)

    @property
    def pruned(self) -> int:
        """Number of nodes that nothing needs."""
        return len(self.alive) - self.merged - int(np.count_nonzero(self.alive))

    def certificate(self) -> Certificate:
        """Return every merge with the pass that made it, for a proof to check."""
        steps = [merged_nodes(after, before) for before, after in zip(self.history, self.history[1:], strict=False)]
        nodes = np.concatenate([np.empty(0, np.intp), *steps])
        reasons = np.repeat(np.arange(len(steps)), [len(step) for step in steps])
        names = tuple(report.name for report in self.reports)
        return Certificate(nodes, self.leader[nodes], reasons.astype(np.uint8), names)


class Pipeline:
    """A row of passes over one table.

    A pass can set leaders and liveness, nothing else; where its result breaks a
    rule of :func:`~autograd_opt.passes.check` it is refused.

    Parameters
    ----------
    passes : iterable of str or Pass
        Names are looked up once, here.
    check : bool, optional
        Check the result of every pass, or of none. By default passes that are
        not built in are checked, and all of them if ``AUTOGRAD_OPT_CHECK=1``.
    limit : int, optional
        Make at most this many merges in all, the first ones, to find a bad one
        by bisection.
    on_error : {"raise", "fall back"}
        What to do with a refused result: raise, or warn and return the
        unoptimized graph, with the error in ``Optimized.failure``.

    Raises
    ------
    UnknownPassError
        If a name is not registered; the message suggests the nearest one.
    ArgumentTypeError, ArgumentError
        If something else is no pass, or an option makes no sense.

    Examples
    --------
    >>> table = NodeTable.from_operands([0, 7, 7, 8], [(), (0, 0), (0, 0), (1, 2)])
    >>> optimized = Pipeline(["cse", "prune"]).run(table, [3])
    >>> optimized.leader, optimized.alive
    (array([0, 1, 1, 3], dtype=int32), array([1, 1, 0, 1], dtype=uint8))
    >>> list(optimized.certificate())
    [Merge(node=2, leader=1, reason='cse')]
    """

    def __init__(
        self,
        passes: Iterable[str | Pass] = ("cse", "prune"),
        *,
        check: bool | None = None,
        limit: int | None = None,
        on_error: Literal["raise", "fall back"] = "raise",
    ) -> None:
        if on_error not in ("raise", "fall back"):
            raise errors.ArgumentError(errors.at(f"on_error is 'raise' or 'fall back', not {on_error!r}"))
        if check not in (None, True, False):
            raise errors.ArgumentError(errors.at(f"check is True, False or None, not {check!r}"))
        if limit is not None:
            require_limit(limit)
        self.passes = _all_passes(passes)
        self.repeatable = all(step.repeatable for step in self.passes)
        self.key = self.passes
        self.check = check
        self.check_all = checks_forced()
        self.limit = limit
        self.on_error = on_error

    def run(self, table: NodeTable, outputs: ArrayLike) -> Optimized:
        """Run all passes.

        Parameters
        ----------
        table : NodeTable
        outputs : sequence of int
            Nodes whose values are asked for.

        Raises
        ------
        PassResultError
            If a result is refused and `on_error` is ``"raise"``.
        """
        nothing = identity_leaders(len(table))
        everything = np.ones(len(table), np.uint8)
        state = PassState(table.nodes(outputs), _frozen(nothing), _frozen(everything))
        reports: list[PassReport] = []
        history = [state.leader]
        try:
            for step in self.passes:
                state, report = self._run_one(step, table, state)
                reports.append(report)
                history.append(state.leader)
        except PassResultError as error:
            error.place = errors.where()
            if self.on_error == "raise":
                raise
            warnings.warn(f"the graph is left unoptimized: {error}", stacklevel=2)
            return Optimized(nothing, everything, (), error, (nothing,))
        return Optimized(state.leader, state.alive, tuple(reports), None, tuple(history))

    def _run_one(self, step: Pass, table: NodeTable, state: PassState) -> tuple[PassState, PassReport]:
        begin = time.perf_counter()
        try:
            result = step.run(table, state)
        except Exception as error:
            error.add_note(f"raised by the pass {step.name!r} of an autograd_opt pipeline; nothing was merged")
            raise
        seconds = time.perf_counter() - begin
        _require_result(step, result)
        leader, alive = state.leader, state.alive
        given = None
        if result.leader is not None:
            given = _entries(step, "leader", result.leader, state.leader)
            leader = self._new_leaders(step, state.leader, given)
            # a leader takes over what the nodes merged into it were needed for
            alive = np.zeros(len(table), np.uint8)
            alive[leader[state.alive.view(np.bool_)]] = 1
        undone_by_limit = result.leader is not None and leader is not given
        if result.alive is not None and not undone_by_limit:
            alive = _entries(step, "alive", result.alive, state.alive)
        after = PassState(state.outputs, _frozen(leader), _frozen(alive))
        if self._checks(step):
            check(
                table,
                state.outputs,
                leader,
                alive,
                pass_name=step.name,
                exact=step.exact,
                before=state.leader,
            )
        merged = _count_merged(leader) - _count_merged(state.leader)
        gone = np.count_nonzero(state.alive) - np.count_nonzero(alive) - merged
        return after, PassReport(step.name, merged, int(gone), seconds, result.effort)

    def _new_leaders(self, step: Pass, before: Leaders, leader: Leaders) -> Leaders:
        outside = (leader < 0) | (leader >= len(leader))
        undone = outside if outside.any() else leader != leader[before]
        if undone.any():
            node = int(undone.argmax())
            fact = f"leader {leader[node]} undoes a merge or is no node"
            raise PassResultError(step.name, node, fact, "start from state.leader")
        if self.limit is None:
            return leader
        return first_merges(leader, before, self.limit - _count_merged(before))

    def _checks(self, step: Pass) -> bool:
        if self.check is not None:
            return self.check
        return not step.trusted or self.check_all


def _all_passes(given: Iterable[str | Pass]) -> tuple[Pass, ...]:
    if isinstance(given, str):
        get_pass(given)
        raise errors.ArgumentTypeError(errors.at(f"passes are given as a list: [{given!r}]"))
    try:
        passes = tuple(get_pass(p) if isinstance(p, str) else p for p in given)
    except TypeError:
        raise errors.ArgumentTypeError(errors.at(f"passes are given as a list of names, not as {given!r}")) from None
    for step in passes:
        if not isinstance(step, Pass):
            raise errors.ArgumentTypeError(errors.at(
                f"{step!r} is neither the name of a pass nor a Pass: register_pass(name, run) makes one"))
    return passes


def _require_result(step: Pass, result: Any) -> None:
    """Refuse what is no result at all."""
    if not isinstance(result, PassResult):
        fact = f"it returned a {type(result).__name__}"
        raise PassResultError(step.name, None, fact, "return PassResult(leader=...), or PassResult() for no change")
    if result.effort is not None and not isinstance(result.effort, Effort):
        raise PassResultError(step.name, None, f"effort is a {type(result.effort).__name__}", "give an Effort or None")


def _entries(step: Pass, name: str, given: Any, like: NDArray[T]) -> NDArray[T]:
    """One entry per node, as a contiguous array that the pass, unless trusted, cannot change any more."""
    if not isinstance(given, np.ndarray) or given.shape != like.shape or given.dtype != like.dtype:
        known = hasattr(given, "shape") and hasattr(given, "dtype")
        fact = f"{name} is {given.dtype}{list(given.shape)}" if known else f"{name} is a {type(given).__name__}"
        remedy = f"return {like.dtype}{list(like.shape)}"
        raise PassResultError(step.name, None, fact, remedy)
    if step.trusted:
        return given
    return np.array(given, like.dtype, order="C", copy=True)


def _frozen(array: NDArray[T]) -> NDArray[T]:
    view = array.view()
    view.flags.writeable = False
    return view


def _count_merged(leader: Leaders) -> int:
    return len(leader) - int(np.count_nonzero(leader == np.arange(len(leader), dtype=np.int32)))
