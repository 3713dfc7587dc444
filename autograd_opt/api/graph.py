"""AutogradGraph: the context in which operations are recorded."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
import rustworkx as rx
import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named, refuse_unknown, whole, yes_or_no
from autograd_opt.engine import backward as engine
from autograd_opt.graph import node as nodes
from autograd_opt.graph import released_history
from autograd_opt.graph import tape as tapes
from autograd_opt.optimizer import merging as optimize_
from autograd_opt.optimizer import plan_cache
from autograd_opt.passes import Pipeline
from autograd_opt.record import tasks
from autograd_opt.record.context import Context

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager
    from pathlib import Path

    import networkx
    from torch.fx import GraphModule

    from autograd_opt.api.kept import Snapshot
    from autograd_opt.api.options import GraphOptions, Passes, Tensors, VerifyOptions
    from autograd_opt.inspection.difference import PairExplanation
    from autograd_opt.inspection.report import Report
    from autograd_opt.inspection.snapshot import Item
    from autograd_opt.verification.result.verdict import Verification
    from autograd_opt.verification.strategies.expressions import GradientExpression

UNWATCHED = "no memory was written outside the record, which a graph without optimize= does not watch for"

OPTIONS = "pipeline default_passes optimize exact verify_each anomaly name allowance sources".split()
"""What a graph was asked for, as `Context.configure` keeps it."""

DECIDED_HERE = ("nodes", "roots", "leaves", "leader", "alive")
"""Parameters of `autograd_opt.verify.verify` that `AutogradGraph.verify` fills in."""

Tensor = torch.Tensor


def pipeline_of(optimize: Any, passes: Any) -> tuple[bool, Pipeline]:
    """Whether sums of cotangents stay as written, and the pipeline, of what the user has asked for."""
    exact = optimize_.mode_of(optimize) == "exact"
    return exact, optimize_.pipeline_of(passes, exact)


def interior(inputs: Any) -> list[int]:
    """Record numbers of the operations among the nodes that a run captures."""
    return [n.index for n in inputs or () if n is not None and not n.is_leaf and n.index >= 0]


class AutogradGraph(Context):
    """Record torch operations, optimize them, differentiate them.

    Parameters
    ----------
    optimize : find repeated work while recording and merge it before backward.  "exact": values
        are reused, but every sum of cotangents stays as written, bit for bit.
    passes : pass names or `Pass` objects instead of the default ("cse", "prune").
    verify : prove every optimization before it is used; a refuted one raises, and a run whose
        optimization is not proved goes as written.  `graph.verdicts` holds the latest answers.
    anomaly : name the operation whose backward makes a NaN.
    name : shown in messages.
    allowance : bytes of values that may be kept alive only for reuse, beside as many as
        reuse saves.  By default as much as repeats turn out to need, learned from graph to
        graph opened at one place, 16 MiB at most, and only where the peak does not rise by it.
    sources : remember the user's file and line of every operation.
    keep : hold a snapshot when the context is left, so that printing, drawing, reporting, iterating and indexing
        work afterwards. Results that are still held then keep their history: torch's `backward()` outside goes
        through it. It is let go of with the last of them, or by a run without `retain_graph`. Where a leaf is one
        of `ao.tensor`, of which torch knows nothing, or another context is around, they keep none.

    Raises
    ------
    ArgumentError : an unknown pass name, or a number out of range; the message names the nearest pass.
    ArgumentTypeError : an unknown option, with the nearest; an option of a wrong type.  It is a TypeError.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> a = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph(optimize=True) as graph:
    ...     loss = ((a + 1) * (a + 1)).sum()
    ...     loss.backward()
    >>> a.grad
    tensor([4., 6.])
    """

    def __init__(self, optimize: bool | str = False, *, passes: Passes | None = None,
                 verify: bool = False, anomaly: bool = False, name: str | None = None, allowance: int | None = None,
                 sources: bool = True, keep: bool = False):
        self.keep = yes_or_no("keep", keep)
        self.configure(optimize, passes, verify, anomaly, name, allowance, sources)
        if verify:
            from autograd_opt.verification.result import versions
            from autograd_opt.verification.strategies import verifier
            assert verifier                  # loaded now, so that no step waits for it
            versions.versions()

    kept: Snapshot | None = None
    """The snapshot of a graph made with `keep=True` that has been left."""
    verdicts: deque[Verification]
    released: Any = None
    """What `clear()` has released inside the context and tensors still hold: `autograd_opt.graph.released_history`."""

    def __exit__(self, *exc: Any) -> None:
        if self.thread is None and tasks.waiting and tasks.forget(self):
            self._release()                     # the task that it was opened in does not go on
            return
        if self.keep and self.thread == threading.get_ident():
            from autograd_opt.api.regions import left_with_history
            self.kept = self.snapshot()
            if exc[:1] in ((), (None,)) and left_with_history(self):
                return
        super().__exit__(*exc)

    # Copies --------------------------------------------------------------------------
    def __copy__(self) -> Self:
        """A new graph of the same options and attributes, as a model that holds a graph is copied."""
        if self.thread is not None:
            raise errors.GraphError(errors.at(
                f"{self.label} is open and cannot be copied: copy it before it is opened, or after it was left"
            ))
        made = type(self).__new__(type(self))
        made.configure(False, None, False, False, None, None, True)
        for option in OPTIONS:
            setattr(made, option, getattr(self, option))
        if self.verify_each:
            made.verdicts = deque(maxlen=self.verdicts.maxlen)
        made.__dict__.update(self.__dict__)
        made.__dict__.pop("released", None)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = memo[id(self)] = self.__copy__()
        made.__dict__.update(copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "released"}, memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be pickled."""
        raise errors.ArgumentTypeError(errors.at(
            f"{self.label} cannot be pickled: it records in this process alone; make an AutogradGraph where it is "
            "needed, and pickle tensors, which keep their values"
        ))

    # Lifecycle -----------------------------------------------------------------------
    @property
    def label(self) -> str:
        """How messages call this graph."""
        return f"graph {self.name!r}" if self.name else f"graph #{self.number}"

    @property
    def merges(self) -> bool:
        """May equal nodes become one in any run, without asking passes of the user's or the proofs?"""
        return self.optimize and self.default_passes and not self.exact and not self.verify_each

    def refuse_second_entry(self) -> None:
        """Refuse to be entered while open."""
        raise errors.GraphError(errors.at(f"{self.label} is already open; make a new AutogradGraph"))

    def refuse_leaving(self) -> None:
        """Refuse to be left while closed, or from a thread that has no graph open."""
        self.require_thread("left")
        raise errors.GraphError(errors.at(f"{self.label} is not open, so it cannot be left"))

    def clear(self) -> None:
        """Release everything but the leaves.

        Inside the context recording goes on; what was computed before is a value without a history, of which only
        `detach()` can be differentiated past.

        Raises
        ------
        GraphError : a backward run is under way (a hook has called this), or another thread has the graph open.
        """
        self.require_thread("cleared")
        self.require_idle("cleared")
        if self.thread is None:
            released_history.forget(self)
        else:
            released_history.release(self)
        self._release()

    def require_idle(self, what: str) -> None:
        """Refuse what would take the nodes from a run that visits them."""
        if self.tape is not None and self.tape.running:
            raise errors.GraphError(errors.at(
                f"{self.label} cannot be {what} while a backward run over it is under way: do it after the run"
            ))

    def require_thread(self, what: str) -> None:
        """Refuse to be used from a thread other than the one that entered."""
        if self.thread is not None and self.thread != threading.get_ident():
            raise errors.GraphError(errors.at(
                f"{self.label} was entered in another thread and cannot be {what} in this one: open an AutogradGraph "
                "in each thread"
            ))

    def _state(self) -> str:
        """What is said of a graph that is not open."""
        return "has not been entered yet" if self.tape is None else "has been left, which releases its nodes"

    def require_open(self) -> None:
        """Refuse to be looked at before the context is entered and after it is left."""
        if self.thread is None:
            raise errors.OutsideGraphError(errors.at(
                f"{self.label} {self._state()}: draw, verify and read it inside its context, `with ... as graph:`, "
                "or make it with keep=True"
            ))
        self.require_thread("used")

    def _readable(self) -> AutogradGraph | Snapshot:
        """The graph itself, or its snapshot where it has been left with `keep=True`."""
        return self.kept if self.thread is None and self.kept is not None else self

    @named
    def snapshot(self, outputs: Tensors | None = None, *, verify: bool = False) -> Snapshot:
        """Take the graph as plain data, which outlives it: it prints, draws, reports, is iterated over and indexed.

        Parameters
        ----------
        outputs : what must be kept; default every result that nothing reads.
        verify : prove the optimization now and hold the answer; without, the latest of `verify=True` is held.

        After the context of a graph made with `keep=True` it is the one that was taken when the context was left.

        Raises
        ------
        OutsideGraphError : the graph is not open and was made without `keep=True`, or is left and `outputs` are named.
        GraphError : the graph has been left, and no proof was made inside; proofs need its nodes.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph(sources=False) as graph:
        ...     y = ao.tensor([1.0]) * 2
        ...     kept = graph.snapshot()
        >>> print(kept)
        %0 = leaf()  # f32[1]
        %1 = mul(%0, 2)  # f32[1]
        """
        from autograd_opt.api.kept import Snapshot
        if self.thread is None and self.kept is not None:
            if outputs is not None:
                raise errors.OutsideGraphError(errors.at(
                    f"{self.label} has been left and keeps one snapshot, of all its results: take that of outputs= "
                    "inside its context"
                ))
            if verify:
                self.kept.verify()               # refuses where no proof was made
            return self.kept
        self.require_open()
        latest = self.verdicts[-1] if self.verify_each and self.verdicts else None
        return Snapshot(self, outputs, self.verify(outputs) if verify else latest)

    def __iter__(self) -> Iterator[nodes.Node | Item]:
        """The nodes in the order of recording; after the context those of the snapshot."""
        if self.thread is None and self.kept is not None:
            return iter(self.kept)
        self.require_open()
        return iter(self.tape.snapshot())

    @overload
    def __getitem__(self, index: int) -> nodes.Node | Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[nodes.Node] | list[Item]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The node of a record number, or a list of nodes for a slice."""
        if self.thread is None and self.kept is not None:
            return self.kept[index]
        self.require_open()
        return self.tape.snapshot()[index]

    # Differentiation -----------------------------------------------------------------
    @named
    def backward(self, loss: Tensors, gradient: Tensors | None = None, *, inputs: Tensors | None = None,
                 retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Accumulate the gradients of `loss` into the leaves; what `loss.backward(...)` calls.

        Parameters
        ----------
        loss : a tensor of this graph, or a sequence of them; one element each, unless `gradient` is given.
        gradient : the cotangent of `loss`, of its shape; a sequence for a sequence.
        inputs : the leaves that get a `.grad`; default all.
        retain_graph : keep what a second run needs; by default as `create_graph`.
        create_graph : record the run, so that the gradients can be differentiated.

        Raises
        ------
        OutsideGraphError : called outside this graph's context.
        FreedGraphError : an earlier run has released what this one needs.
        InplaceError : a value that a rule has saved was written since.

        >>> import torch, autograd_opt as ao
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     graph.backward(x * x, torch.ones(2))
        >>> x.grad
        tensor([2., 4.])
        """
        self.require_active("backward")
        engine.backward(loss, gradient, retain_graph, create_graph, inputs)

    @named
    def grad(self, outputs: Tensors, inputs: Tensors, grad_outputs: Tensors | None = None, *,
             retain_graph: bool | None = None, create_graph: bool = False, allow_unused: bool | None = None,
             is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Tensor, ...]:
        """The gradients of `outputs` with respect to `inputs`, as `torch.autograd.grad`, whose parameters it takes.

        Returns
        -------
        A tuple, one tensor of the shape of each input; None for an unused one where `allow_unused`.

        Raises
        ------
        OutsideGraphError : called outside this graph's context.
        RuntimeError : an input is not used, without `allow_unused`, in torch's words.

        >>> import torch, autograd_opt as ao
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     graph.grad((x * x).sum(), x)
        (tensor([2., 4.]),)
        """
        self.require_active("grad")
        return engine.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, True, allow_unused,
                           is_grads_batched, materialize_grads)

    def require_active(self, what: str) -> None:
        """Refuse to differentiate while another graph, or none, is active in this thread."""
        self.require_thread("used")
        if self.tape is None or tapes.get_active() is not self.tape:
            raise errors.OutsideGraphError(errors.at(
                f"{what}() of {self.label} was called outside its context: call it inside `with ... as graph:`"
            ))

    def prepare(self, roots: Sequence[Any], inputs: Any, last: bool) -> bool:
        """Before a run: let the passes decide what merges.  Returns whether anything may.

        `last` says that the run frees the graph; only then are the passes worth their time,
        the numbers given while recording serve until then.
        """
        if self.released is not None:
            released_history.refuse(self, roots, inputs)
        if not roots or not self.optimize:
            return False
        if self.exact and self.default_passes:
            if self.verify_each:
                self._proved_as_written(roots, interior(inputs))
            return False
        usual = self.default_passes and not self.verify_each
        if usual and (self.tape.merges.merging == 0 or not last):
            return bool(self.tape.merges.merging)
        if self.default_passes and self.tape.merges.merging == 0:     # as without proofs: no pass runs
            self._proved_as_written(roots, interior(inputs))
            return False
        place = plan_cache.place_in_program(roots[0])
        if usual and inputs is None and plan_cache.passes_over(place):
            return True
        captured = interior(inputs)
        outputs = [n.index for n in roots]
        seen = self._seen(roots, captured) if self.verify_each else None
        optimized, known = plan_cache.plan(
            place, self.tape, outputs, captured, plan_cache.key_of(self.pipeline),
            lambda: optimize_.run_passes(self.tape, outputs, self.pipeline, captured)[1],
            None if seen is None else seen[0])
        self.planned = self.planned[0] + known, self.planned[1] + 1
        if self.verify_each and not self._proved(optimized.leader, optimized.alive, roots, captured, seen):
            return False
        self.runs.append(optimized)
        if self.exact:
            return False
        place.found = self.tape.set_leaders(optimized.leader)
        if place.found:
            place.known = 0
        return True

    def _goals(self, captured: Sequence[int]) -> list[int] | None:
        """Record numbers of all whose cotangents a run wants; None: of the leaves alone."""
        if not captured:
            return None
        return [n.index for n in self.tape.snapshot() if n.is_leaf and n.requires_grad] + list(captured)

    def _seen(self, roots: Sequence[Any], captured: Sequence[int], led: bool = False) -> Any:
        """What a proof for this run reads; `led`: also whose values are reused."""
        from autograd_opt.verification.cache import memory_cache
        return memory_cache.seen(self.tape.snapshot(), roots, self._goals(captured), led)

    def _proved_as_written(self, roots: Sequence[Any], captured: Sequence[int]) -> None:
        """Give the verdict on a run whose sums stay as written, though values may be reused."""
        self._proved(np.arange(len(self.tape)), None, roots, captured, self._seen(roots, captured, self.exact), True)

    def _proved(self, leader: Any, alive: Any, roots: Sequence[Any], captured: Sequence[int], seen: Any,
                as_written: bool = False) -> bool:
        """Is this optimization proved?  A refuted one raises; without a proof the run goes as written."""
        from autograd_opt.verification.cache import memory_cache
        from autograd_opt.verification.strategies import verifier
        key = memory_cache.key_of(seen, leader, alive, memory_cache.USUAL)
        verdict = memory_cache.find(key)
        if verdict is None:
            nodes = self.tape.snapshot()
            question = verifier.Question(nodes, list(roots), self._goals(captured), leader, alive)
            verdict = verifier.of_run(key, question, as_written)
        self.verdicts.append(verdict)
        if verdict.status == "refuted":
            raise errors.VerificationError(errors.at(f"the optimization of {self.label} was refuted: {verdict}"))
        return bool(verdict.status == "proved")

    # Reading the graph -----------------------------------------------------------------
    def __len__(self) -> int:
        if self.thread is None and self.kept is not None:
            return len(self.kept)
        return 0 if self.tape is None else len(self.tape)

    @property
    def dag(self) -> rx.PyDiGraph[nodes.Node, int]:
        """The graph as written; payloads are nodes, edge payloads operand positions.

        A payload has `op`, `attributes`, `shape`, `dtype`, `device`, `requires_grad`, `is_leaf` and `source`, its line.
        While nothing is recorded this is one object: take a `copy()` of it to change it.

        Raises
        ------
        OutsideGraphError : the graph is not open.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph() as graph:
        ...     y = x * x
        ...     print([node.op.name for node in graph.dag.nodes()], graph.dag.edge_list())
        ['leaf', 'mul'] EdgeList[(0, 1), (0, 1)]
        """
        self.require_open()
        stamp = (len(self.tape), self.tape.epoch)
        if self._dag is None or self._dag[0] != stamp:
            self._dag = (stamp, optimize_.dag_of(self.tape.snapshot()))
        return self._dag[1]

    @named
    def optimized(self, outputs: Tensors | None = None) -> rx.PyDiGraph[nodes.Node, int]:
        """A new DAG: what the passes leave of the graph for `outputs` (default: every sink).

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     y = x.exp() * x.exp()
        ...     print(graph.dag.num_nodes(), graph.optimized(y).num_nodes())
        4 3
        """
        self.require_open()
        table, result = optimize_.run_passes(self.tape, self.root_numbers(outputs), self.pipeline)
        return table.to_dag(self.tape.snapshot(), result.leader, result.alive)[0]

    def root_numbers(self, outputs: Tensors | None = None) -> list[int]:
        """Record numbers of `outputs`, or of every node that nothing uses.

        A `FreedGraphError` says that what they would be differentiated through was cleared.
        """
        self.require_open()
        if outputs is not None:
            found = engine.root_nodes(self.tape, engine.as_tuple(outputs))
        else:
            nodes = self.tape.snapshot()
            used = {o.index for n in nodes for o in n.operands if o is not None}
            found = [n for n in nodes if n.index not in used and not n.is_leaf and (n.alive or n.spent)]
            if self.released is not None:
                found = [n for n in found if n not in self.released.nodes]
        if self.released is not None:
            released_history.refuse(self, found, abroad=True)
        return [n.index for n in found]

    @named
    def verify(self, outputs: Tensors | None = None, inputs: Tensors | None = None,
               **options: Unpack[VerifyOptions]) -> Verification:
        """Prove that the optimized gradients equal the unoptimized ones.

        Returns a `Verification`: `proved`, `refuted` with a counterexample, or `undecided`
        with the reason; never a bool.  Needs the values that a freeing backward releases:
        call it before, or use `retain_graph=True`.

        Parameters
        ----------
        outputs : what is differentiated; default every result that nothing reads.
        inputs : whose gradients; default every leaf that requires one.  A result among them keeps a gradient of
            its own, as in `graph.grad`.
        options : those of `autograd_opt.verify.verify`: `exact`, `budget`, `assume`, `engines`, `seed`, `save`,
            `anew`.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0, 2.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     print(graph.verify((x.exp() * x.exp()).sum()).status)
        proved
        """
        from autograd_opt.verification import verify
        refuse_unknown("graph.verify", options, verify, DECIDED_HERE)
        if self.thread is None and self.kept is not None:
            return self.kept.verify()
        self.require_open()
        roots = self.root_numbers(outputs)
        wanted = None if inputs is None else engine.input_nodes(engine.as_tuple(inputs))
        leaves = None if wanted is None else [n.index for n in wanted if n is not None]
        result = optimize_.run_passes(self.tape, roots, self.pipeline, interior(wanted))[1]
        leader, alive = result.leader.tolist(), result.alive.tolist()
        found = verify(self.tape.snapshot(), roots, leaves, leader, alive=alive, **options)
        if found.status == "proved" and not self.optimize:
            found = replace(found, conditions=(*found.conditions, UNWATCHED))
        return found

    @named
    def gradient_expression(self, leaf: Tensor, optimized: bool = True, *, outputs: Tensors | None = None,
                            names: Mapping[str, Tensor] | None = None, limit: int = 600) -> GradientExpression:
        """The gradient of `leaf` as sympy expressions, as written or optimized.

        Parameters
        ----------
        leaf : the tensor to differentiate with respect to; a result keeps a gradient of its own, as in `graph.grad`.
        optimized : what the optimized graph computes; False: what the graph as written does.
        outputs : what is differentiated; by default the one result that nothing reads.
        names : name of a leaf in the expressions -> the leaf; the others are x0, x1, ... by record number, or leaf0,
            leaf1, ... where that is taken.
        limit : scalar operations above which it refuses.

        Returns
        -------
        GradientExpression : prints as text, `.latex()`; each value read more than once has a
            name and a line; `.operations` counts, `.compact()` names what sympy finds in common.

        Raises
        ------
        ArgumentError : the graph is too large, branches on values, has an operator without
            meaning or several outputs, or was cleared.
        OutsideGraphError : the graph is not open.

        Examples
        --------
        >>> import autograd_opt as ao
        >>> a, b = ao.tensor(2.0), ao.tensor(3.0)
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     loss = (a * b).sin() + (a * b) ** 2
        ...     print(graph.gradient_expression(a, names={"a": a, "b": b}))
        t0 = a*b
        d/da = b*(2*t0 + cos(t0))
        """
        from autograd_opt.verification.strategies.expressions import expression
        limit = whole("limit", limit)
        self.require_open()
        if not isinstance(names, (dict, type(None))):
            raise errors.ArgumentTypeError(errors.at(
                f"names={names!r} is of type {type(names).__name__}: choose a dict from names to leaves"
            ))
        roots = self.root_numbers(outputs) if len(self) else []
        nodes = self.tape.snapshot()
        if outputs is None and len(roots) != 1 and nodes:
            raise errors.ArgumentError(errors.at(
                f"{len(roots)} results of {self.label} are read by nothing: name the one to differentiate with outputs="
            ))
        (target,) = engine.input_nodes((leaf,))
        leader = None
        if nodes:
            leader = optimize_.run_passes(self.tape, roots, self.pipeline, interior([target]))[1].leader.tolist()
        if nodes and target is None:
            raise errors.ArgumentError(errors.at(f"{self.label} has not seen this leaf: no output depends on it"))
        seen = zip(engine.input_nodes(tuple((names or {}).values())), names or {}, strict=True)
        named = {n.index: name for n, name in seen if n is not None}
        try:
            return expression(nodes, roots, target, leader, optimized=optimized, names=named, limit=limit)
        except errors.ArgumentError as error:
            raise errors.ArgumentError(errors.at(str(error))) from error

    def is_acyclic(self) -> bool:
        """Always true for a recorded graph; checked on the DAG."""
        self.require_open()
        return bool(rx.is_directed_acyclic_graph(optimize_.dag_of(self.tape.snapshot())))

    def topological_order(self) -> list[nodes.Node]:
        """The nodes, operands before their users.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]).exp().sin()
        ...     print([node.op.name for node in graph.topological_order()])
        ['leaf', 'exp', 'sin']
        """
        self.require_open()
        dag = optimize_.dag_of(self.tape.snapshot())         # not `self.dag`, which a caller may have changed
        return [dag[i] for i in rx.topological_sort(dag)]

    @named
    def report(self, outputs: Tensors | None = None) -> Report:
        """Nodes before and after, what was merged and reused, and what it saved: a `Report`.

        `outputs` are what must be kept; default every result that nothing reads.  After the context has
        been left the counts of calls and bytes remain.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     y = x.exp() * x.exp()
        ...     report = graph.report()
        >>> report.nodes, report.merged, report.groups[0].expression
        ((4, 3), 1, 'exp(%0)')
        """
        if self.thread is None and self.kept is not None:
            return self.kept.report()
        from autograd_opt.inspection.report import make_report
        return make_report(self, outputs)

    @named
    def explain(self, a: Tensor, b: Tensor) -> PairExplanation:
        """Why two tensors are one value, or which part of their keys differs: a `PairExplanation`.

        Raises
        ------
        GraphError : one of the tensors has no node in this graph, or another thread has the graph open.
        OutsideGraphError : the graph is not open.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     graph.explain(x * 2, x * 2.0).differences[0].text
        'attribute y: 2 and 2.0'
        """
        from autograd_opt.explaining import explain_pair
        self.require_thread("used")
        return explain_pair(self, a, b)

    def __str__(self) -> str:
        from autograd_opt.graph.program_text import program
        if self.thread is None and self.kept is not None:
            return str(self.kept)
        if self.thread is None:
            return f"{self.label} {self._state()}: print it inside its context, or make it with keep=True"
        return program(self.tape.snapshot())

    def __repr__(self) -> str:
        state = "open" if self.thread is not None else "closed"
        return f"<{type(self).__name__} {self.label}: {len(self)} nodes, {state}>"

    @named
    def to_dict(self, optimized: bool = False) -> dict[str, object]:
        """The graph as plain data, ready for JSON: see `autograd_opt.inspection.snapshot.to_dict`."""
        from autograd_opt.inspection.snapshot import to_dict
        return to_dict(self._readable(), optimized)

    @named
    def to_dot(self, optimized: bool = False, *, limit: int | None = None) -> str:
        """The graph in Graphviz's language; folded, framed by module, beyond `limit` (60) nodes.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]) * 2
        ...     '  n0 -> n1;' in graph.to_dot().splitlines()
        True
        """
        from autograd_opt.inspection.drawing import to_dot
        return to_dot(self._readable(), optimized, limit=limit)

    @named
    def to_mermaid(self, optimized: bool = False, *, limit: int | None = None) -> str:
        """The graph in Mermaid's language, which code hosts draw; folded beyond `limit` (60) nodes.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]) * 2
        ...     graph.to_mermaid().splitlines()[3]
        '  n1(["#37;1 mul 2<br/>f32[1]"])'
        """
        from autograd_opt.inspection.drawing import to_mermaid
        return to_mermaid(self._readable(), optimized, limit=limit)

    @overload
    def draw(self, path: None = None, optimized: bool = False, *, limit: int | None = None) -> str: ...
    @overload
    def draw(self, path: str | os.PathLike[str], optimized: bool = False, *, limit: int | None = None) -> Path: ...
    @named
    def draw(self, path: Any = None, optimized: bool = False, *, limit: int | None = None) -> str | Path:
        """A picture: SVG text, or a file by the ending of `path` (.svg, .png, .dot, .mmd).

        Parameters
        ----------
        path : the file, written whole or not at all; None returns SVG text.
        optimized : what the passes leave, instead of the graph as written.
        limit : nodes above which the picture is folded, 1 or more (60).

        Raises
        ------
        ArgumentError : another ending.
        UnsupportedError : SVG or PNG without the program `dot` of Graphviz.
        """
        from autograd_opt.inspection.drawing import draw
        return draw(self._readable(), path, optimized, limit=limit)

    @overload
    def to_html(self, path: None = None, optimized: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | os.PathLike[str], optimized: bool = False) -> Path: ...
    @named
    def to_html(self, path: Any = None, optimized: bool = False) -> str | Path:
        """A self-contained page to browse the graph; `optimized` says which of its two views opens first.

        Without `path` its text is returned.
        """
        from autograd_opt.inspection.page import to_html
        return to_html(self._readable(), path, optimized)

    def profile(self, path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Time the kernels of a block and write a trace, which chrome://tracing and Perfetto show on a time axis.

        Parameters
        ----------
        path : the file, in the format of Chrome's traces (JSON): each source line, and below it its kernels.

        Raises
        ------
        OutsideGraphError : the graph is not open.

        >>> import json, tempfile, autograd_opt as ao
        >>> from pathlib import Path
        >>> file, x = Path(tempfile.mkdtemp()) / "trace.json", ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     with graph.profile(file):
        ...         loss = (x.exp() * x.exp()).sum()
        ...         loss.backward()
        >>> names = [event["name"] for event in json.loads(file.read_text())["traceEvents"]]
        >>> names.count("exp"), "sum" in names
        (1, True)
        """
        from autograd_opt.inspection.profile import profile
        self.require_open()
        return profile(path)

    @named
    def to_networkx(self, optimized: bool = False) -> networkx.MultiDiGraph:
        """A `networkx.MultiDiGraph`: record numbers with the data of `to_dict`, edges with the operand's `position`."""
        kept = self._readable()
        return (self.snapshot() if kept is self else kept).to_networkx(optimized)

    @named
    def to_fx(self, outputs: Tensors | None = None, *, inputs: Tensors | None = None, gradients: bool = False,
              optimized: bool = False) -> GraphModule:
        """The record as a `torch.fx.GraphModule` of aten operations, which runs under torch alone.

        It takes the inputs and returns a tuple of the outputs; with `gradients`, that tuple and one of the gradients
        that a run here computes. Other leaves are part of it as they are now; random operations draw anew.

        Parameters
        ----------
        outputs : what it computes; default every result that nothing reads. Of one element, with `gradients`.
        inputs : leaves that it takes, in this order; default all that require grad, in the order of recording.
        gradients : also those of the outputs' sum with respect to the inputs; None for one that is not used.
        optimized : equal calls are merged, forward and backward together.

        Raises
        ------
        OutsideGraphError : the graph is not open.
        UnsupportedError : the graph does not keep what was called (a Function, an operator without a rule), a hook
            changes a gradient, or a constant is gone.

        >>> import torch, autograd_opt as ao
        >>> x = torch.ones(2, requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     module = graph.to_fx((x.exp() * x.exp()).sum(), gradients=True, optimized=True)
        >>> module(torch.zeros(2))
        ((tensor(2.),), (tensor([2., 2.]),))
        """
        from autograd_opt.api.recorded_fx import graph_module
        self.require_active("to_fx")
        roots, nodes = self.root_numbers(outputs), self.tape.snapshot()
        if inputs is None:
            found = [n for n in nodes if n.is_leaf and n.requires_grad]
        else:
            found = engine.input_nodes(engine.as_tuple(inputs))
        if not all(n is not None and n.is_leaf for n in found):
            raise errors.ArgumentError(errors.at(f"inputs= of to_fx() takes leaves that {self.label} has recorded"))
        return graph_module(nodes, roots, [n.index for n in found], gradients, optimized)

    def follow(self, *models: torch.nn.Module) -> None:
        """Remember which module of these models records what, and their parameters' names, for pictures and pages.

        Raises
        ------
        OutsideGraphError : the graph is not open.
        ArgumentTypeError : a model that is no `torch.nn.Module`.

        >>> import torch, autograd_opt as ao
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
        >>> with ao.AutogradGraph() as graph:
        ...     graph.follow(model)
        ...     y = model(torch.ones(1, 2))
        ...     [(node["name"], node["module"]) for node in graph.to_dict()["nodes"][1:4]]
        [('0.weight', 'Sequential.0'), ('0.bias', 'Sequential.0'), ('', 'Sequential.0')]
        """
        from autograd_opt.inspection.module_names import follow
        self.require_open()
        follow(self, *models)

    def _repr_svg_(self) -> str | None:
        from autograd_opt.inspection.drawing import dot
        return str(self.draw()) if self.thread is not None and len(self) and dot.installed() else None

    def _repr_html_(self) -> str:
        from autograd_opt.inspection.page import notebook_html
        return str(notebook_html(self._readable()))


def autograd_graph(optimize: bool | str = False, **options: Unpack[GraphOptions]) -> AutogradGraph:
    """`AutogradGraph` as a function, with its parameters.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([2.0])
    >>> with ao.autograd_graph(optimize=True):
    ...     (x * x).backward()
    >>> x.grad
    tensor([4.])
    """
    return AutogradGraph(optimize, **options)
