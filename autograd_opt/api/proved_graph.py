"""What the passes decide before a run of a graph, and the proofs that the gradients stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named, refuse_unknown, whole
from autograd_opt.api.readable_graph import ReadableGraph
from autograd_opt.engine import backward as engine
from autograd_opt.graph import released_history
from autograd_opt.graph.structure import place_of
from autograd_opt.optimizer import merging as optimize_
from autograd_opt.optimizer import plan_cache

if TYPE_CHECKING:
    from autograd_opt.api.kept import Snapshot
    from autograd_opt.api.options import Tensors, VerifyOptions
    from autograd_opt.verification.result.verdict import Verification
    from autograd_opt.verification.strategies.expressions import GradientExpression

UNWATCHED = "no memory was written outside the record, which a graph without optimize= does not watch for"

DECIDED_HERE = ("nodes", "roots", "leaves", "leader", "alive")
"""Parameters of `autograd_opt.verify.verify` that `AutogradGraph.verify` fills in."""

Tensor = torch.Tensor


def interior(inputs: Any) -> list[int]:
    """Record numbers of the operations among the nodes that a run captures."""
    return [n.index for n in inputs or () if n is not None and not n.is_leaf and n.index >= 0]


class ProvedGraph(ReadableGraph):
    """A graph whose merges are decided, and proved on request, before a run uses them."""

    @property
    def merges(self) -> bool:
        """May equal nodes become one in any run, without asking passes of the user's or the proofs?"""
        return self.optimize and self.default_passes and not self.exact and not self.verify_each

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
        place = place_of(roots[0], plan_cache.MOST_PLACES)
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
        from autograd_opt.verification.strategies.verifier import verify
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
        if found.status == "proved" and not self.tape.optimize:
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
        if not isinstance(leaf, Tensor):
            raise errors.ArgumentTypeError(errors.at(
                f"leaf={leaf!r} is of type {type(leaf).__name__}: choose the tensor itself; names= gives it a name"
            ))
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
