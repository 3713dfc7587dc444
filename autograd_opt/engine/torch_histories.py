"""Leaves that torch has computed: what a run sends to them goes on in torch's engine, to whatever their history is.

In a graph that has met one of them, the gradients of torch's own leaves go the same way, so that torch sums what comes
to them from both sides, and calls their hooks once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import boundary, runs
from autograd_opt.graph.references import has_history
from autograd_opt.graph.thread_state import torch_autograd

Tensor = torch.Tensor
run_backward = private.Engine.run_backward
requires_grad = private.TensorBase.requires_grad.__get__


class WentOn(threading.local):
    """How many runs of this thread have gone on to a history of torch's."""

    runs = 0


went_on = WentOn()


def goes_on(run: Any, node: Any) -> bool:
    """True if what `run` sends to this leaf is torch's to send on, or to accumulate."""
    if node.tape.histories is None:
        return False
    if has_history(node.tensor):
        return True
    with private.DisableTorchFunction():
        return bool(requires_grad(node.tensor)) and run.targets is None and node.hooks is None \
            and not run.task.create_graph and run.task.batch is None


def leaves(tape: Any, inputs: Sequence[Any]) -> list[Any]:
    """The nodes of leaves with a history of torch's, where `inputs` may be below them."""
    if not tape.histories or not torch_inputs(inputs):
        return []
    return [n for n in tape.histories if n.index >= 0 and n.tensor is not None]


def torch_inputs(inputs: Sequence[Any]) -> list[int]:
    """Positions of the tensors that torch's engine may know: those that this library has not computed."""
    return [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and
            ("_node" not in t.__dict__ or has_history(t)) and "_made_here" not in t.__dict__]


def hand_on(run: Any, t: Tensor, g: Tensor | None) -> None:
    """Let the cotangent of `t` go on when the run has ended; torch's engine calls the hooks of `t`."""
    if g is None:
        return
    if run.task.create_graph:
        raise recorded()
    if run.task.batch is not None:
        raise batched()
    if not run.onward:
        run.callbacks.insert(0, lambda: end(run))
    run.onward.append((t, g))


def end(run: Any) -> None:
    """One run of torch's engine, for all that was sent to its tensors."""
    tensors, cotangents = zip(*run.onward, strict=True)
    if run.inputs is None:
        torch_run(tensors, cotangents, run.task.retain, (), True)
    else:
        inputs = [run.inputs[i] for i in torch_inputs(run.inputs)]
        if inputs:
            torch_run(tensors, cotangents, run.task.retain, tuple(inputs), True)


def own_run(tensors: Sequence[Any], cotangents: Sequence[Any], retain: bool, create_graph: bool,
            inputs: Sequence[Any] = (), allow_unreachable: bool = False, accumulate_grad: bool = False) -> Any:
    """torch's `run_backward`, not that of this library in front of it."""
    before = boundary.begin_run(not inputs)
    try:
        return run_backward(private.execution_engine(), tensors, cotangents, retain, create_graph, inputs,
                            allow_unreachable, accumulate_grad)
    finally:
        boundary.begin_run(before)


def torch_run(tensors: Sequence[Tensor], cotangents: Sequence[Tensor], retain: bool, inputs: tuple[Tensor, ...],
              accumulate: bool) -> tuple[Tensor | None, ...]:
    """A run of torch's engine, in which nothing is recorded and which no run of this library's is seen around."""
    if any(map(has_history, tensors)):
        went_on.runs += 1
    around = runs.stack()
    stack, around[:] = list(around), []
    try:
        with torch_autograd(grad=False):
            given = tuple(g.detach() for g in cotangents)
            found = own_run(tuple(tensors), given, retain, False, inputs, True, accumulate)
    finally:
        around[:] = stack
    return found if inputs and not accumulate else ()


def joined(wanted: Sequence[Any], nodes: Sequence[Any], found: list[Any], targets: Sequence[Any], retain: bool,
           create_graph: bool, batch: bool) -> list[Any]:
    """The gradients of `wanted`: this library's run has found those at `targets`, and then at the leaves `nodes`."""
    results, ends = found[:len(wanted)], found[len(wanted):]
    onward = [(n, g) for n, g in zip(nodes, ends, strict=True) if g is not None]
    places = torch_inputs(wanted)
    if create_graph or batch:
        if any(leads_to([n.tensor for n, _ in onward if n is not targets[i]], wanted[i]) for i in places):
            raise recorded() if create_graph else batched()
        return results
    if not onward:
        return results
    tensors, cotangents = [n.tensor for n, _ in onward], [g for _, g in onward]
    more = torch_run(tensors, cotangents, retain, tuple(wanted[i] for i in places), False)
    for i, g in zip(places, more, strict=True):
        own = None if is_end(targets[i], nodes) else results[i]      # torch starts there, and has it already
        results[i] = g if own is None else own if g is None else own + g
    return results


def leads_to(tensors: Sequence[Tensor], target: Tensor) -> bool:
    """True if histories of torch's lead from one of these tensors to `target`."""
    if not tensors:
        return False
    with torch_autograd(grad=False):
        zeros = tuple(torch.zeros((), dtype=t.dtype, device=t.device).expand(t.shape) for t in tensors)
        return own_run(tuple(tensors), zeros, True, False, (target,), True)[0] is not None


def is_end(node: Any, nodes: Sequence[Any]) -> bool:
    """True if `node` is one of these leaves."""
    return any(node is n for n in nodes)


def recorded() -> errors.UnsupportedError:
    """A recorded run would go on in torch's graph."""
    return errors.UnsupportedError(errors.at(
        "create_graph=True of a result that was computed from a tensor with torch's own history, which is not recorded "
        "here: compute that tensor inside the context, or use ao.optimize(function), whose results torch differentiates"
    ))


def batched() -> errors.UnsupportedError:
    """A run for many slices of a cotangent would go on in torch's graph."""
    return errors.UnsupportedError(errors.at(
        "is_grads_batched=True of a result that was computed from a tensor with torch's own history: compute that "
        "tensor inside the context, or use ao.optimize(function)"
    ))
