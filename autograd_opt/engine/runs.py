"""The backward runs that are under way in a thread, innermost last, and what torch asks of them.

torch's own Python code (multi-grad hooks, module hooks, callbacks) asks its engine about
the current run through a few entry points; inside one of this library's runs they answer
for it, everywhere else they are torch's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge

from autograd_opt import errors
from autograd_opt._common.locks import lasting_lock
from autograd_opt.engine import accumulators
from autograd_opt.engine.accumulators import Accumulator
from autograd_opt.graph import node as nodes

_local = threading.local()
ACCUMULATING = lasting_lock()
"""Held while a `.grad` is written: kernels let other threads run, which may share the leaf."""
FRAMES = 0.4
"""A nested run that starts deeper than this part of the recursion limit continues in a thread of its own."""
DEPTH = 40
"""As many nested runs share one thread at most."""
FIRST_ID = 1 << 40
"""Task numbers start here, so that they never equal one of torch's."""


class Run:
    """One backward run: what it started from, what it was asked for, what comes at its end."""

    __slots__ = ("_leaves", "_reached", "accumulates", "callbacks", "handed_on", "node", "roots", "targets", "task")

    def __init__(self, task: Any, roots: list[Any], targets: list[Any] | None, accumulates: bool):
        self.task, self.roots, self.targets, self.accumulates = task, roots, targets, accumulates
        self.callbacks: list[Callable[[], Any]] = []
        self.node: Any = None
        self.handed_on = False              # is it part of a run of torch's engine, to which its results go?
        self._reached: set[int] | None = None
        self._leaves: dict[int, Any] | None = None

    def executes(self, node: Any) -> bool:
        """Does this run execute `node`?"""
        if self._reached is None:
            self._reached = self.reached()
        return node.index in self._reached

    def asked_for(self, node: Any) -> bool:
        """Is `node`, or a result of the call it stands for, a target, and is it on a path from a root?"""
        found = any(n is not None and (n is node or (n.op == "output" and n.operands[0] is node))
                    for n in self.targets or ())
        return found and self.comes_to(node)

    def leads(self, node: Any) -> bool:
        """Is `node` executed on the way to another target?"""
        wanted = {n.index for n in self.targets or () if n is not None}
        return any(n is not None and (n.index in wanted or self.executes(n)) for n in node.operands)

    def comes_to(self, node: Any) -> bool:
        """Is there a path from a root to `node`?"""
        return node.index in self.below()

    def own(self, node: Any) -> Any:
        """The node of this run that `node` is, or that stands here for the leaf of another graph's, or of torch's."""
        shown = node.node if type(node) is Accumulator else node
        if isinstance(shown, nodes.Node) and shown.tape is self.roots[0].tape:
            return shown
        if self._leaves is None:
            self._leaves = {id(n.tensor): n for n in self.below().values() if n.is_leaf}
        leaf = accumulators.leaf_of(node)
        found = self._leaves.get(id(leaf))
        return found if found is not None and found.tensor is leaf else None

    def below(self) -> dict[int, Any]:
        """The nodes on a path from a root, by record number."""
        seen: dict[int, Any] = {}
        stack = list(self.roots)
        while stack:
            node = stack.pop()
            if node.index in seen or node.index < 0:
                continue
            seen[node.index] = node
            if node.op != "view_apart":                 # whose operand no gradient comes to
                stack += [n for n in node.operands if n is not None and n.requires_grad]
        return seen

    def reached(self) -> set[int]:
        """Record numbers on a path from a root, and to a target where there are any."""
        seen = self.below()
        if self.targets is None:
            return set(seen)
        wanted = {n.index for n in self.targets if n is not None}
        leading: set[int] = set()
        for index in sorted(seen):
            if any(n is not None and (n.index in wanted or n.index in leading) for n in seen[index].operands):
                leading.add(index)
        return leading | (wanted & seen.keys()) if self.accumulates else leading


def stack() -> list[Run]:
    """The runs of this thread."""
    return _local.__dict__.setdefault("stack", [])


def current() -> Run | None:
    """The innermost run of this thread."""
    runs = _local.__dict__.get("stack")
    return runs[-1] if runs else None


def too_deep() -> bool:
    """Would one more nested run endanger this thread's stack?"""
    runs = stack()
    if not runs:
        return False
    if len(runs) >= DEPTH:
        return True
    frame, count, limit = sys._getframe(), 0, int(FRAMES * sys.getrecursionlimit())
    while frame is not None and count < limit:
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count >= limit


def finish(run: Run) -> None:
    """Call the callbacks, also those that callbacks add."""
    done = 0
    while done < len(run.callbacks):
        run.callbacks[done]()
        done += 1


# What torch's own Python code asks. ----------------------------------------------------
def current_graph_task_id() -> int:
    run = current()
    return _original["_current_graph_task_id"]() if run is None else FIRST_ID + run.task.id


def will_engine_execute_node(node: Any) -> bool:
    run = current()
    if run is None:
        node = accumulators.torchs(node) if _original["_current_graph_task_id"]() != -1 else node
        return node is not None and bool(_original["_will_engine_execute_node"](node))
    node = run.own(node)
    if node is None:
        return False
    if len(run.roots) == 1 and node is run.roots[0]:
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
    return _original["_current_autograd_node"]() if run is None else run.node


def execution_order() -> list[Any]:
    run = current()
    if run is None:
        return _original["_current_graph_task_execution_order"]()
    tape = nodes.get_active()
    return [tape.node(i) for i in sorted(run.reached(), reverse=True)]  # type: ignore[union-attr]


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


class Metadata(NamedTuple):
    """What torch's Python code asks of one output of a node."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    is_nested_tensor: bool = False
    is_cpp_nested_tensor: bool = False


class Engine(type(torch.autograd.Variable._execution_engine)):  # type: ignore[misc]
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
        from autograd_opt.engine import torch_engine
        from autograd_opt.record import transforms
        capture = transforms.enclosing()
        if capture is not None and not accumulate_grad:
            return torch_engine.gradients(
                capture, super().run_backward, tensors, grad_tensors, keep_graph, create_graph, inputs,
                allow_unreachable)
        if capture is None and (any(map(recorded, tensors)) or any(map(recorded, inputs))):
            return run_edges(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable,
                             accumulate_grad)
        return super().run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable,
                                    accumulate_grad)

    def is_checkpoint_valid(self) -> bool:
        """Re-entrant checkpoints need a run that accumulates into every leaf."""
        run = current()
        if run is None or run.handed_on:
            return bool(super().is_checkpoint_valid())
        return run.accumulates and run.targets is None


_original: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Put the entry points in place; done once at import."""
    for name, function in {
        "_current_graph_task_id": current_graph_task_id,
        "_will_engine_execute_node": will_engine_execute_node,
        "_current_autograd_node": current_autograd_node,
        "_current_graph_task_execution_order": execution_order,
    }.items():
        _original[name] = getattr(torch._C, name)
        setattr(torch._C, name, function)
    _original["get_gradient_edge"] = torch.autograd.graph.get_gradient_edge
    torch.autograd.graph.get_gradient_edge = gradient_edge  # type: ignore[assignment]
    torch.autograd.graph._get_grad_fn_or_grad_acc = accumulators.function_or_accumulator
    torch.autograd.Variable._execution_engine = Engine()
    torch.autograd.graph.Node.register(nodes.Node)
    torch.autograd.graph.Node.register(Accumulator)
