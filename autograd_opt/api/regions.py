"""Regions: calls recorded in a graph of their own, each of which is one node of torch's graph.

A call records the function in a new `AutogradGraph`, leaves the graph, and makes one
`torch.autograd.Function` of it: its inputs are the leaves that the recording has met
(parameters, and tensors that torch has computed), its outputs the tensors that the function
returns. When torch's engine reaches that node, the graph is entered again for one backward run,
and the cotangents of the leaves go on in torch's graph, to histories and accumulators.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from autograd_opt import errors
from autograd_opt.abi import torch_private
from autograd_opt.abi import torch_private as private
from autograd_opt.api import region_results
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.engine import backward as engine
from autograd_opt.engine import torch_engine
from autograd_opt.engine.batched import Batch
from autograd_opt.engine.entry import run_for_torch
from autograd_opt.engine.own_memory import own_memory
from autograd_opt.graph import boundary, refusals
from autograd_opt.graph import tape as tapes
from autograd_opt.graph.tensor import CustomTensor

Tensor = torch.Tensor
detach = torch.Tensor.detach
hooks_in_place = private.top_saved_tensors_default_hooks
transform_level = private.maybe_current_level
keeps_graph = private.get_current_graph_task_keep_graph
set_frame_callback = torch_private.frame_callback()
numbers = itertools.count(1)
USUAL: dict[str, Any] = {"optimize": True, "passes": None, "verify": False, "anomaly": False, "name": None,
                         "allowance": None, "sources": True}
"""The options of a region, in the order in which `configure` takes them."""
NOT_COMPILED = "a call of what ao.optimize was given is recorded as it runs: torch.compile ends its graph before it"


def runs_as_written() -> bool:
    """True if a call here is torch's own: nothing follows it, a graph records it, or torch looks at its operations."""
    return not private.is_grad_enabled() or tapes.get_active() is not None or private.len_torch_dispatch_stack() > 0 \
        or hooks_in_place(True) is not None or transform_level() is not None or forward_ad._current_level >= 0 \
        or private.get_tracing_state() is not None


class Region:
    """What the calls of one optimized function have in common."""

    def __init__(self, options: dict[str, Any]):
        self.options = options
        self.place = f"region {next(numbers)}"
        AutogradGraph(**options)            # refuses options that are wrong
        self.settings = tuple({**USUAL, **options}.values())

    def __reduce__(self) -> Any:
        """A copy learns by itself what it need not keep."""
        return type(self), (self.options,)

    def __call__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of `function(*args, **kwargs)`, with a history of one node."""
        before = set_frame_callback(None)
        try:
            if runs_as_written():
                return function(*args, **kwargs)
            return self.recorded(function, args, kwargs)
        finally:
            set_frame_callback(before)

    def recorded(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call, and make one node of it."""
        graph = AutogradGraph.__new__(AutogradGraph)
        graph.keep = False
        graph.configure(*self.settings)
        graph.place = self.place
        graph.__enter__()
        try:
            box = [function(*args, **kwargs)]       # no other name holds the result: see `kept_outside`
            call = Call(graph)
            outputs, originals = call.results(box, keeps=True)
        except BaseException:
            give_back(graph)
            raise
        graph.suspend()
        outputs = call.published(outputs)
        if len(outputs) == 1 and box[0] is originals[0]:
            return outputs[0]
        made = dict(zip(map(id, originals), outputs, strict=True))
        return region_results.exchanged(box, lambda t: made.get(id(t), t))[0] if made else box[0]


torch_private.not_compiled(Region.__call__, NOT_COMPILED)


def give_back(graph: AutogradGraph) -> None:
    """Leave a graph whose function has failed; what it has written holds values without a history."""
    try:
        for t in boundary.boundary(graph.tape)[2]:
            boundary.hand_over(graph.tape, t)
    finally:
        graph.__exit__()


def left_with_history(graph: AutogradGraph) -> bool:
    """Leave `graph`, and let what is held of its results be ordinary tensors with its history; False where none can be.

    The graph may be entered again, so the history is that of a copy.
    """
    tape = graph.tape
    if graph.outer is not None or tape.running or any(map(made_here, boundary.boundary(tape)[1])):
        return False
    call = Call(graph)
    call.results([], keeps=True)
    graph.suspend()
    call.graph = call.kept.graph = own = copy.copy(graph)
    own.keep, own.kept, own.place, own.tape = False, None, graph.place, tape
    graph.tape, tape.graph = tapes.Tape(), weakref.ref(own)
    with torch.enable_grad():
        call.published([])
    return True


class Kept:
    """Releases a graph when the last node of torch's that is of it has gone."""

    __slots__ = ("graph",)

    def __init__(self, graph: AutogradGraph):
        self.graph = graph

    def __del__(self) -> None:
        self.graph._release()


class Call:
    """One recorded call, as its node in torch's graph holds it."""

    __slots__ = ("alone", "freed", "graph", "held", "inputs", "kept", "leaves", "lock", "outputs", "roots", "written")

    def __init__(self, graph: AutogradGraph, kept: Kept | None = None):
        self.graph = graph
        self.kept = Kept(graph) if kept is None else kept
        self.lock = threading.RLock()
        self.alone = True                   # is no other node of torch's, its derivative say, of the same graph?
        self.freed: set[int] = set()
        self.roots: list[Any] = []
        self.leaves: list[Any] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.written: list[Tensor] = []
        self.held: Any = None

    def __del__(self) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Hold the results' nodes no more: what no other node of torch's holds is freed."""
        held, self.held = self.held, None
        if held is not None:
            held.__exit__()

    def results(self, result: list[Any], keeps: bool = False) -> tuple[list[Tensor], Sequence[Tensor]]:
        """(tensors to hand out, the recorded ones they stand for); called while the graph is open.

        If `keeps`, a tensor that is still held elsewhere than in `result` becomes an ordinary one where it is.
        """
        tape = self.graph.tape
        self.leaves, self.inputs, written = boundary.boundary(tape)
        with private.DisableTorchFunction():
            for t in self.inputs:
                if type(t) is CustomTensor and made_here(t):
                    refuse_leaf(t)
            found: dict[int, CustomTensor] = {}
            held: dict[int, int] = {}

            def met(t: CustomTensor) -> CustomTensor:
                held[id(t)] = held.get(id(t), 1) + 1            # in `result`, and once in `found`
                return found.setdefault(id(t), t)

            if len(result) == 1 and type(result[0]) is CustomTensor:
                met(result[0])
            else:
                region_results.exchanged(result, met)
            for t in written:
                found.pop(id(t), None)
            if keeps:
                kept = boundary.kept_outside(tape, held, written)
                for t in kept:
                    found.pop(id(t), None)
                written = [*written, *kept]
            originals = list(found.values())
            known = boundary.nodes_of(tape, originals)
            changed = boundary.nodes_of(tape, written)
            others = [boundary.hand_over(tape, t) for t in written]
            outputs = handed_out(originals, self.inputs)
            self.roots = [*known, *changed]
            self.written = [t for t, n in zip(written, changed, strict=True) if n.requires_grad]
            self.held = tapes.Held(self.roots)
            self.held.__enter__()
            del others
        return outputs, originals

    def published(self, outputs: list[Tensor]) -> list[Tensor]:
        """The outputs, each with this call as its history where it requires grad; called outside of the graph."""
        follows = [n.requires_grad and n.op != "view_apart" for n in self.roots]
        whole = all(follows)
        if not whole:
            self.roots = [n for n, on in zip(self.roots, follows, strict=True) if on]
        tracked = [*(t for t, on in zip(outputs, follows, strict=False) if whole or on), *self.written]
        if not tracked:
            return outputs
        self.outputs = tracked
        results = iter(apply_region(self, *self.inputs))
        self.outputs = self.written = self.inputs = []
        boundary.loosen(self.graph.tape, self.leaves)
        return [next(results) if on else t for t, on in zip(outputs, follows, strict=False)]

    def pulled_back(self, node: Any, cotangents: tuple[Any, ...]) -> list[Any]:
        """The cotangents of the leaves; `node` is torch's."""
        recorded = private.is_grad_enabled()
        retain = keeps_graph() or recorded
        reached = [executes(f) for f, _ in node.next_functions]
        wanted = self.leaves if all(reached) else [n for n, on in zip(self.leaves, reached, strict=True) if on]
        roots, given = self.roots, list(cotangents)
        if any(g is None for g in given):
            roots = [n for n, g in zip(roots, given, strict=True) if g is not None]
            given = [g for g in given if g is not None]
        if not roots or not wanted:
            return [None] * len(reached)
        with self.lock:
            if not self.alone and not retain:
                self.free_later(roots)
            found = self.run(roots, given, wanted, retain or not self.alone, recorded)
        if wanted is self.leaves:
            return found
        left = iter(found)
        return [next(left) if on else None for on in reached]

    def free_later(self, live: list[Any]) -> None:
        """Let no later run of torch's engine start at these results; this one may come to the graph again."""
        for node in live:
            if id(node) in self.freed:
                raise refusals.freed(node)

        def free() -> None:
            self.freed.update(map(id, live))
            if len(self.freed) == len(self.roots):
                self.let_go()

        private.execution_engine().queue_callback(free)

    def run(self, roots: list[Any], given: list[Tensor], wanted: list[Any], retain: bool, recorded: bool) -> list[Any]:
        """One backward run over the graph, entered again for it."""
        graph = self.graph
        inside = tapes.get_active() is graph.tape
        if not inside:
            graph.resume()
        call = None
        try:
            given, levels = torch_engine.outside(given)
            found: Any = None
            if levels:
                found = batch_run(graph.tape, roots, given, wanted, retain, recorded, levels)
            elif not recorded:
                found = run_for_torch(graph.tape, roots, given, wanted, retain)
            if found is None:
                found = engine.execute(graph.tape, roots, given, wanted, retain, recorded, False, handed_on=True)
            if graph.tape.merges.twins and not levels:
                found = own_memory(graph.tape, roots, given, wanted, found, recorded)
            if recorded:
                call = Call(graph, self.kept)
                call.alone = self.alone = False
                outputs, originals = call.results(found)
        finally:
            if not inside:
                graph.suspend()
        if call is None:
            return found
        made = dict(zip(map(id, originals), call.published(outputs), strict=True))
        return [made.get(id(g), g) for g in found]


def batch_run(tape: Any, roots: list[Any], cotangents: list[Tensor], targets: list[Any], retain: bool, recorded: bool,
              levels: list[torch_engine.Level]) -> list[Any]:
    """One run for all slices of cotangents that are batches of these levels of `vmap`."""
    sizes = [level.size for level in levels]
    with private.temporarily_clear_interpreter_stack():
        cotangents = [g.reshape(math.prod(sizes), *g.shape[len(sizes):]) for g in cotangents]
        if recorded:
            found = engine.in_slices(tape, roots, cotangents, targets, retain, recorded)
        else:
            found = engine.execute(tape, roots, cotangents, targets, retain, recorded, False,
                                   Batch(math.prod(sizes)), handed_on=True)
    return [None if g is None else torch_engine.entered(g, levels, sizes) for g in found]


def executes(function: Any) -> bool:
    """True if the run of torch's engine that is under way comes to `function`."""
    if function is None:
        return False
    try:
        return torch_executes(function)
    except RuntimeError:                    # a leaf, whose gradient the run is asked for
        return True


torch_executes = private.torch_executes_node


class OptimizedRegion(torch.autograd.Function):
    """A region in torch's graph."""

    @staticmethod
    def forward(ctx: Any, call: Call, *leaves: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.call = call
        dirty = [t for t in call.written if t.requires_grad]
        if dirty:
            ctx.mark_dirty(*dirty)
        return tuple(call.outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return (None, *ctx.call.pulled_back(ctx, cotangents))


# past what torch's own `apply` does for transforms and for functions with a `setup_context`
apply_region = super(torch.autograd.Function, OptimizedRegion).apply


def handed_out(results: Sequence[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Ordinary tensors over the memory of results.

    Views of a leaf, and of each other, stay views, which torch does not let a program write if it cannot follow.
    """
    if not any(t._is_view() for t in results):
        return [detach(t) for t in results]
    bases: dict[int, Tensor] = {t.untyped_storage()._cdata: t for t in leaves if t.layout is torch.strided}
    out = []
    with torch.no_grad():
        for t in results:
            storage = t.untyped_storage()._cdata if t.layout is torch.strided else 0
            base = bases.get(storage)
            if base is not None and base.dtype is t.dtype and not (t.is_conj() or t.is_neg()):
                out.append(base.as_strided(t.shape, t.stride(), t.storage_offset()))
            else:
                out.append(detach(t))
                if storage:
                    bases[storage] = out[-1]
    return out


def made_here(t: Tensor) -> bool:
    """True if torch's graph does not know of the leaf `t`."""
    return type(t) is CustomTensor and "_requires_grad" in t.__dict__


def refuse_leaf(t: Tensor) -> None:
    """Refuse a leaf that torch's graph does not know of."""
    raise errors.UnsupportedError(errors.at(
        f"a tensor made by autograd_opt.tensor, of shape {list(t.shape)}, was used in a region: torch's graph, of "
        "which a region is a node, has no place for its gradient; make it with torch.tensor(..., requires_grad=True)"
    ))
