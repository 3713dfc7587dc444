"""The general mechanism for operators without a rule: torch's own derivative of one call.

The call runs once on detached operands with torch's autograd switched on for it alone; the
small graph that torch builds for it is the node's vector-Jacobian product.  Under
`create_graph` that product is itself such a call over the same small graph, so gradients of
any order exist, and nothing is computed or drawn twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import GRAD
from autograd_opt.abi.tensor_info import sole_owner
from autograd_opt.graph import refusals, thread_state, view_history
from autograd_opt.graph.leaf_nodes import unusual
from autograd_opt.graph.tensor import connected
from autograd_opt.graph.thread_state import torch_autograd
from autograd_opt.ops.table import MULTI, VARIADIC, define
from autograd_opt.record import new_nodes, opaque_calls, recorder, unrecorded
from autograd_opt.record.nested_values import collect, substitute
from autograd_opt.record.opaque_calls import OpaqueCall
from autograd_opt.record.torch_nodes import name_of, stages
from autograd_opt.record.unrecorded import detached

BATCHED_WRONGLY = frozenset(["as_strided_scatter", "index_reduce"])
"""Calls whose derivative torch 2.13 computes wrongly for a batch of cotangents: they are differentiated one by one."""


ACCUMULATE: Any = private.functions.AccumulateGrad
GIVEN_BACK = frozenset("alpha_dropout feature_dropout feature_alpha_dropout cpu".split())
"""Calls that may return their operand as it is, and then ask nothing of it."""


def differentiated(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> OpaqueCall:
    """A call that torch has run under its own autograd."""
    hooked = private.top_saved_tensors_default_hooks(True) is not None
    return OpaqueCall(name, inputs, [edge_of(o) for o in outputs if leads_on(o)], hooked)


def edge_of(output: torch.Tensor) -> GradientEdge:
    """Where a result hangs on torch's graph."""
    function = output.grad_fn
    if function is None or isinstance(function, private.FunctionBase):          # a leaf, or what needs a token
        return torch.autograd.graph.get_gradient_edge(output)
    return GradientEdge(function, output.output_nr)


def pull_back(g: Any, extra: Any, task: Any, node: Any) -> list[Any]:
    """The cotangents of an opaque call's operands."""
    call, operands = extra
    parts = list(g.parts) if hasattr(g, "parts") else [g]
    live = [(o, p) for o, p in zip(call.edges, parts, strict=True) if p is not None]
    if not live:
        return [None] * len(call.inputs)
    outs, gs = [o for o, _ in live], [p for _, p in live]
    if call.name in BATCHED_WRONGLY and task.batch is not None and any(map(task.batch.is_batch, gs)):
        raise NotImplementedError(f"{call.name} has no batching rule")
    asked = [task.wants(n) for n in node.operands]          # torch cannot differentiate some calls by every operand
    if not any(asked):
        return [None] * len(asked)
    if not task.create_graph:
        if task.batch is None and not call.usual and all(asked):
            with torch_autograd(grad=False):
                found = call.cotangents(parts)
                if found is not None:
                    if not task.retain:
                        call.repeats = call.keeps_nothing()
                    return found
        with torch_autograd(), results_end(call):
            if not task.retain:
                call.repeats = call.keeps_nothing()
            ends = tuple([x for x, on in zip(ends_of(call), asked, strict=True) if on])
            given = iter(private.run_torch_engine(
                tuple(outs), tuple(gs), True, False, ends, allow_unreachable=True, accumulate_grad=False))
            return reached(call, outs, [next(given) if on else None for on in asked])
    tracked = [p for p in gs if p.requires_grad]
    if operands is None:
        operands = [None] * len(call.inputs)
    operands = [connected(x.detach(), n) if t is None else t
                for x, t, n in zip(call.inputs, operands, node.operands, strict=True)]
    with torch_autograd():
        if not task.retain:
            call.repeats = call.keeps_nothing()
        copies = [p.detach().requires_grad_(p.requires_grad) for p in gs]
        with results_end(call):
            given = iter(GRAD(outs, [x for x, on in zip(ends_of(call), asked, strict=True) if on], copies,
                              create_graph=True, allow_unused=True))
            grads = [next(given) if on else None for on in asked]
        present = [x for x in grads if x is not None]
        results = results_of(call, node)
        below = variables_below(present, [*results, *(x for x in call.inputs if isinstance(x, Result))])
        inputs = [*zip(call.inputs, operands, strict=True), *zip([c for c in copies if c.requires_grad], tracked,
                                                                 strict=True)]
        inputs = [(x, t) for x, t in inputs if id(x) in below]      # as in torch, no run comes to the others
        inputs += [(x, x.detach()) for x in results if id(x) in below]
        again = differentiated(f"{call.name}_vjp", [x for x, _ in inputs], present)
    with private.DisableTorchFunction():
        originals = [connected(t, results[x]) if x in results else traced(t) for x, t in inputs]
        given = iter(record(again, originals, present))
    return reached(call, outs, [None if x is None else next(given) for x in grads])


def reached(call: OpaqueCall, outs: list[Any], grads: Sequence[torch.Tensor | None]) -> list[Any]:
    """The cotangents; NotImplemented for an operand that nothing leads to from these outputs: no run comes to it."""
    if all(g is not None for g in grads):
        return list(grads)
    below = variables_of([(o.node, o.output_nr) for o in outs])
    return [g if g is not None or id(x) in below else NotImplemented for g, x in zip(grads, call.inputs, strict=True)]


def traced(t: torch.Tensor) -> torch.Tensor:
    """The operand; a copy made before a write in place belongs to the value before it."""
    origin = t.__dict__.get("_copy_of")
    return t if origin is None else connected(t, origin)


class Result:
    """A result of an earlier call that torch's functions for its derivative have read: an input of theirs.

    What comes to it goes on at its node, where its hooks are, and not in torch's graph of the earlier call.
    """

    def __init__(self, edge: GradientEdge):
        kind = private.input_metadata(edge.node)[edge.output_nr]
        self.edge, self.shape, self.dtype, self.device = edge, torch.Size(kind.shape), kind.dtype, kind.device
        self.layout = torch.strided

    def detach(self) -> torch.Tensor:
        """What stands for the result among the operands; its elements are read by nobody."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)

    def stop(self, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """Let zeros go on below the result in torch's graph."""
        return tuple(torch.zeros_like(g) if i == self.edge.output_nr and g is not None else g
                     for i, g in enumerate(cotangents))


def results_of(call: OpaqueCall, node: Any) -> dict[Result, Any]:
    """The results of a call that have nodes, with these: torch's functions for its derivatives may read them.

    What comes to outputs of torch's functions that are no results, as hidden ones of TorchScript's, goes on there.
    """
    nodes = new_nodes.output_nodes(node) if node.op is OPAQUE_MULTI else {0: node}
    return {Result(edge): nodes[i] for i, edge in enumerate(call.edges)
            if i in nodes and private.has_metadata(edge.node)
            and len(private.input_metadata(edge.node)) > edge.output_nr}


def ends_of(call: OpaqueCall) -> tuple[Any, ...]:
    """Where torch's engine stops: the inputs of a call."""
    return tuple(x.edge if isinstance(x, Result) else x for x in call.inputs)


@contextmanager
def results_end(call: OpaqueCall) -> Iterator[None]:
    """A run of torch's engine that takes what comes to results of earlier calls, and sends nothing on from there."""
    handles = [x.edge.node.register_prehook(x.stop) for x in call.inputs if isinstance(x, Result)]
    try:
        with bare(call.inputs):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def bare(inputs: Sequence[Any]) -> Iterator[None]:
    """A run of torch's engine to leaves as they were in the call, without their hooks, which see the sums only."""
    with private.DisableTorchFunction():
        leaves: list[Any] = [t for t in inputs if isinstance(t, torch.Tensor)]
        hooked = [(t, private.backward_hooks(t)) for t in leaves if private.backward_hooks(t)]
        frozen = [t for t in leaves if not t.requires_grad]
        change(hooked, frozen, False)
    try:
        yield
    finally:
        with private.DisableTorchFunction():
            change(hooked, frozen, True)


def change(hooked: list[tuple[Any, Any]], frozen: list[Any], back: bool) -> None:
    """Take the hooks of leaves and let frozen ones require grad, or give both back."""
    for t, hooks in hooked:
        private.backward_hooks_property.__set__(t, hooks if back else None)
    for t in frozen:
        t.requires_grad_(not back)


def variables_below(results: Sequence[torch.Tensor], last: Sequence[Result] = ()) -> set[int]:
    """The ids of the leaves that derivatives of `results` lead to in torch's own graph, results among them.

    `last`: results of earlier calls, which are ends as leaves are.
    """
    return {*variables_of([(r.grad_fn, r.output_nr) for r in results], last), *map(id, results)}


def variables_of(stack: list[tuple[Any, int]], last: Sequence[Result] = ()) -> dict[int, Any]:
    """The leaves, and those of `last`, below these outputs of torch's nodes, by id."""
    ends = {(x.edge.node, x.edge.output_nr): x for x in last}
    seen, found = set(), {}
    while stack:
        function, number = stack.pop()
        if function is None or (function in seen and not ends):
            continue
        end = ends.get((function, number)) if ends else None
        if end is None and type(function) is ACCUMULATE:
            end = function.variable
        if end is not None:
            found[id(end)] = end
        elif function not in seen:
            seen.add(function)
            stack += function.next_functions
    return found


def leads_on(output: torch.Tensor) -> bool:
    """Does a gradient of the output go anywhere?  None does from a view that torch made under no_grad."""
    return output.requires_grad and (not output.is_leaf or not private.is_view(output) or view_history.own_flag(output))


def apart(output: torch.Tensor) -> torch.Tensor:
    """Such a view, with the node that torch's words describe."""
    from autograd_opt.record import views
    base: Any = private.base_of(output)
    if not base.is_leaf:                    # torch's own history, to which nothing leads from here
        with torch.no_grad():
            base = base.detach().requires_grad_()
            output = base.as_strided(output.shape, output.stride(), output.storage_offset())
    views.set_apart(output)
    return output


def alias(output: torch.Tensor, operands: list[torch.Tensor], views: bool = False) -> torch.Tensor:
    """The output without torch's graph; a real view of the operand whose memory it shows.

    `views`: where it is a view of memory that the call has made, it stays one.
    """
    if output.layout is torch.strided and sole_owner(output):
        return output.detach()
    if output.requires_grad and output.layout is torch.strided:
        storage = private.storage_id(output.untyped_storage())
        for t in operands:
            if t.layout is torch.strided and t.dtype is output.dtype \
                    and private.storage_id(t.untyped_storage()) == storage:
                return t.as_strided(output.shape, output.stride(), output.storage_offset())
    if views and private.is_view(output) and output.layout is torch.strided \
            and not (output.is_conj() or output.is_neg()):
        base: Any = private.base_of(output)
        if base.dtype is output.dtype:
            return base.detach().as_strided(output.shape, output.stride(), output.storage_offset())
    return output.detach()


def shows(view: torch.Tensor, operands: list[torch.Tensor]) -> bool:
    """True if `view` is one of an operand, not of memory that the call has made."""
    if not private.is_view(view):
        return False
    base = private.base_of(view)
    return any(base is (private.base_of(t) if private.is_view(t) else t) for t in operands)


def shows_sparse(output: torch.Tensor) -> bool:
    """Does the result of a call show memory of a sparse tensor, as `values()` does?"""
    if output.layout is not torch.strided or not private.is_view(output):
        return False
    base: Any = private.base_of(output)
    return base.layout is not torch.strided


def described(call: OpaqueCall) -> dict[str, Any]:
    """The attributes of its node: what was called, and the name of torch's last node for it."""
    return {"call": call.name, "torch": name_of(call.edges[0].node)}


def of_several(outputs: list[torch.Tensor], leading: list[bool]) -> tuple[int, ...]:
    """Which results that lead on torch takes for one of several views, as a Jacobian is: nobody may write them."""
    tracked = [o for o, on in zip(outputs, leading, strict=True) if on]
    return tuple(i for i, o in enumerate(tracked)
                 if private.is_view(o) and view_history.making_of(o) == view_history.Making.MULTI_OUTPUT_NODE)


def record(call: OpaqueCall, operands: list[torch.Tensor], outputs: list[torch.Tensor],
           views: bool = False) -> list[torch.Tensor]:
    """Attach an opaque node for a call that has run; returns its outputs, detached."""
    leading = [leads_on(o) for o in outputs]
    results = [apart(o) if o.requires_grad and not on else alias(o, operands, views)
               for o, on in zip(outputs, leading, strict=True)]
    tracked = [r for r, on in zip(results, leading, strict=True) if on]
    kept = call.held(operands)          # nothing holds the others for the user
    if not tracked:
        if (tape := thread_state.get_recording()) is not None:
            tape.let_go_unread(recorder.nodes_or_refuse(operands, call.name) or ())
        return results
    attributes = described(call)
    if views and (several := of_several(outputs, leading)):
        attributes["of_several"] = several
    if len(tracked) == 1:
        if shows_sparse(outputs[leading.index(True)]):
            attributes[view_history.OF_SPARSE] = True
        node = new_nodes.record_node(OPAQUE, tuple(operands), attributes, tracked[0], True, (call, kept))
        node.view = True if shows(tracked[0], operands) else None
        return results
    numbers = tuple(e.output_nr for e in call.edges)
    if numbers != tuple(range(len(numbers))):               # results of several nodes of torch's
        attributes["numbers"] = numbers
    new_nodes.record_multi(OPAQUE_MULTI, tuple(operands), attributes, tracked, True, (call, kept))
    for t in tracked:
        if shows(t, operands):
            t.__dict__["_node"].view = True
    return results


Pair = tuple[Any, torch.Tensor]
"""What torch has followed, a leaf of its own or a `Result`, and the tensor that it stands for."""


def record_call(name: str, below: Callable[[list[torch.Tensor], list[Pair]], list[Pair]], outputs: list[torch.Tensor],
                views: bool = False, earlier: list[Pair] | None = None) -> list[torch.Tensor]:
    """Attach the node of a call that torch has run, or one for each result where one leads to another.

    `below(outputs, earlier)`: the operands of these outputs.  `earlier`: what the call has made so far, which becomes
    longer.  Returns the outputs, detached.
    """
    made: list[Pair] = [] if earlier is None else earlier
    with torch_autograd():
        order = stages(outputs, not views) if len(outputs) > 1 else None
        goes_on = earlier is not None or order is not None
        call, operands, ends = followed(name, below, outputs if order is None else [outputs[order[0]]], made, goes_on)
    if order is None:
        with private.DisableTorchFunction():
            results = record(call, operands, outputs, views)
        made += [(x, t) for x, t in zip(ends, results, strict=False) if x is not None]
        return results
    found: dict[int, torch.Tensor] = {}
    for k in order:
        if found:
            with torch_autograd():
                call, operands, ends = followed(name, below, [outputs[k]], made, goes_on)
        with private.DisableTorchFunction():
            found[k] = record(call, operands, [outputs[k]], views)[0]
        made += [(x, found[k]) for x in ends if x is not None]
    return [found[k] for k in range(len(outputs))]


def followed(name: str, below: Callable[[list[torch.Tensor], list[Pair]], list[Pair]], outputs: list[torch.Tensor],
             made: list[Pair], goes_on: bool) -> tuple[OpaqueCall, list[torch.Tensor], list[Result | None]]:
    """(the part of a call that computes `outputs`, its operands, where torch's engine stops for later parts)."""
    pairs = below(outputs, made)
    call = differentiated(name, [x for x, _ in pairs], outputs)
    ends = [Result(edge_of(o)) if leads_on(o) else None for o in outputs] if goes_on else []
    return call, [t for _, t in pairs], ends


def general(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call whole, whatever its arguments and results are."""
    from autograd_opt.record import views

    if thread_state.get_recording() is None:
        return unrecorded.run_raw(func, args, kwargs)
    name = getattr(func, "__name__", str(func))
    grad = private.is_grad_enabled()
    tensors: list[torch.Tensor] = []
    collect(args, tensors)
    collect(kwargs, tensors)
    if not grad:
        out = unfollowed(func, args, kwargs, tensors)
        views.set_apart(out)
        return out
    with private.DisableTorchFunction():
        try:
            found = recorder.nodes_or_refuse(tensors, name)
        except RuntimeError:
            if name not in GIVEN_BACK or (out := func(*args, **kwargs)) is not tensors[0]:
                raise
            return out
    originals = {id(t): t for t, n in zip(tensors, found or (), strict=False) if n.requires_grad}
    if not originals:
        return unfollowed(func, args, kwargs, tensors)
    with torch_autograd():
        unique = {k: detached(t).requires_grad_() for k, t in originals.items()}
        out = func(*substitute(args, unique), **substitute(kwargs, unique))
    return conclude(func, out, list(originals.values()), list(unique.values()))


def unfollowed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """The result of a call that no gradient follows, of arguments with these tensors."""
    with private.DisableTorchFunction():
        strided = all(t.layout is torch.strided for t in tensors)
    if strided:
        return unrecorded.run_raw(func, args, kwargs)
    with torch_autograd(grad=False):                # below autograd, kernels count their own writes
        return func(*args, **kwargs)


class Script:
    """A function of TorchScript that runs no Python: what it computes is one call of torch's."""

    __slots__ = ("__name__", "original", "script")

    def __init__(self, original: Callable[..., Any], script: Any):
        self.original, self.script, self.__name__ = original, weakref.ref(script), f"scripted_{script.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: list[torch.Tensor] = []
        collect((args, kwargs), given)
        constants = [t for t in given if not t.requires_grad]
        out = self.original(self.script(), *args, **kwargs)
        if any(t.requires_grad for t in constants):
            raise errors.UnsupportedError(errors.at(
                f"{self.__name__}() has written into an argument, which would follow a gradient from here on: "
                "let it return the new value, or write outside of it"))
        return out


def conclude(func: Any, out: Any, originals: list[torch.Tensor], copies: list[torch.Tensor]) -> Any:
    """Attach the nodes of a call that torch has run on `copies` of the operands; its result without torch's graph."""
    name = getattr(func, "__name__", str(func))
    # a call that returns its argument returns the user's
    given: dict[int, torch.Tensor] = {id(d): t for d, t in zip(copies, originals, strict=True)}
    with torch_autograd():
        results: list[torch.Tensor] = []
        collect(out, results)
        outputs = list({id(o): o for o in results if id(o) not in given}.values())
        for o in outputs:
            if o.requires_grad and unusual(o):
                raise refusals.unsupported_result(o, name)
    pairs: list[Pair] = [*zip(copies, originals, strict=True)]

    def below(part: list[torch.Tensor], earlier: list[Pair]) -> list[Pair]:
        if part is outputs:
            return pairs
        found = variables_below(part, [x for x, _ in earlier])
        return [(x, t) for x, t in (*pairs, *earlier) if id(x) in found]

    results = record_call(name, below, outputs, type(func) is Script)
    given.update((id(o), r) for o, r in zip(outputs, results, strict=True))
    return substitute(out, given)


OPAQUE = define("opaque", "*tensors, call='', torch=''", VARIADIC, joint=opaque_calls.pull_back,
                bind=lambda *a: (a, {}))
OPAQUE_MULTI = define("opaque_multi", "*tensors, call='', torch=''", MULTI | VARIADIC, joint=opaque_calls.pull_back,
                      bind=lambda *a: (a, {}))

handler = opaque_calls.Whole()
"""The route of callables that are recorded whole."""
opaque_calls.install(OPAQUE, OPAQUE_MULTI, general, conclude, pull_back, reached)
