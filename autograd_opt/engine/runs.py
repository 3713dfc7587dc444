"""What torch asks of the backward run that is under way.

torch's own Python code (multi-grad hooks, module hooks, callbacks) asks its engine about
the current run through a few entry points; inside one of this library's runs they answer
for it, everywhere else they are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.engine import torch_engine
from autograd_opt.engine.torch_histories import own_run
from autograd_opt.graph import accumulators, thread_state, view_history
from autograd_opt.graph import node as nodes
from autograd_opt.graph.accumulators import Accumulator
from autograd_opt.graph.hooks import common_node
from autograd_opt.graph.runs import current
from autograd_opt.record import transforms

FIRST_ID = 1 << 40
"""Task numbers start here, so that they never equal one of torch's."""


# What torch's own Python code asks. ----------------------------------------------------
def current_graph_task_id() -> int:
    run = current()
    return _original["current_graph_task_id"]() if run is None else FIRST_ID + run.task.id


def will_engine_execute_node(node: Any) -> bool:
    run = current()
    if run is None:
        node = accumulators.torchs(node) if _original["current_graph_task_id"]() != -1 else node
        return node is not None and bool(_original["will_engine_execute_node"](node))
    node = run.own(node)
    if node is None:
        return False
    root = view_history.origin(run.roots[0]) if len(run.roots) == 1 else None
    if root is not None and node is (common_node(root) or root):
        return False                        # as in torch, which looks for nodes below the root
    if run.accumulates or not run.asked_for(node):
        return run.executes(node)
    if node.is_leaf:
        raise errors.GraphError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This "
            "is currently not supported."
        )
    return True


def current_autograd_node() -> Any:
    run = current()
    return _original["current_autograd_node"]() if run is None else run.node


def execution_order() -> list[Any]:
    run = current()
    if run is None:
        return _original["execution_order"]()
    tape = thread_state.get_active()
    ends = {n.index for n in run.targets or () if n is not None} & run.below().keys()
    return [tape.node(i) for i in sorted(run.reached() | ends, reverse=True)]


def gradient_edge(t: Any) -> Any:
    """`get_gradient_edge`; the edge keeps its tensor, and thereby what the rule saved, alive."""
    edge = _original["get_gradient_edge"](t)
    if type(edge.node) is Accumulator and edge.node.node is not None:
        edge = edge._replace(node=edge.node.node)
    return edge._replace(ownership_token=t) if isinstance(edge.node, nodes.Node) else edge


def run_edges(roots: Sequence[Any], grads: Sequence[Any], retain_graph: bool, create_graph: bool,
              inputs: Sequence[Any] = (), allow_unreachable: bool = False, accumulate_grad: bool = False) -> Any:
    """What torch's engine is asked to do, done by this library's."""
    from autograd_opt.engine import backward
    if accumulate_grad:
        return backward.backward(roots, grads, retain_graph, create_graph, inputs or None)
    return backward.grad(roots, inputs, grads, retain_graph, create_graph, allow_unused=allow_unreachable)


def recorded(t: Any) -> bool:
    """Is this tensor or edge one of a graph of this library, of which torch's own engine knows nothing?"""
    if isinstance(t, GradientEdge):
        return isinstance(t.node, nodes.Node)
    return "_node" in t.__dict__ if isinstance(t, torch.Tensor) else False


class Engine(private.Engine):  # type: ignore[misc]
    """torch's engine object, whose callbacks go to the run that is under way."""

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        run = current()
        if run is None:
            super().queue_callback(callback)
        else:
            run.callbacks.append(callback)

    def run_backward(self, tensors: Sequence[Any], grad_tensors: Sequence[Any], keep_graph: bool, create_graph: bool,
                     inputs: Sequence[Any] = (), allow_unreachable: bool = False, accumulate_grad: bool = False) -> Any:
        """Where everything ends that asks torch for gradients, by whatever way it has come."""
        capture = transforms.enclosing()
        if capture is not None and not accumulate_grad:
            return torch_engine.gradients(capture, own_run, tensors, grad_tensors, keep_graph, create_graph, inputs,
                                          allow_unreachable)
        if capture is None and (any(map(recorded, tensors)) or any(map(recorded, inputs))):
            return run_edges(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable,
                             accumulate_grad)
        return own_run(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad)

    def is_checkpoint_valid(self) -> bool:
        """Re-entrant checkpoints need a run that accumulates into every leaf."""
        run = current()
        if run is None or run.handed_on:
            return bool(super().is_checkpoint_valid())
        return run.accumulates and run.targets is None


_original: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Put the entry points in place; done once at import."""
    for function in (current_graph_task_id, will_engine_execute_node, current_autograd_node, execution_order):
        _original[function.__name__] = private.replace(function.__name__, function)
    _original["get_gradient_edge"] = torch.autograd.graph.get_gradient_edge
    torch.autograd.graph.get_gradient_edge = gradient_edge  # type: ignore[assignment]
    private.replace_function_or_accumulator(accumulators.function_or_accumulator)
    private.set_execution_engine(Engine())
    torch.autograd.graph.Node.register(nodes.Node)
    torch.autograd.graph.Node.register(Accumulator)
