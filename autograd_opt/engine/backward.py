"""Entry points of a backward run: arguments checked as torch checks them, then one GraphTask."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.tensor_info import same_memory
from autograd_opt.engine import entry, nested_backward, torch_histories
from autograd_opt.engine.accumulate import accumulate
from autograd_opt.engine.batched import FEW, Batch, OnBatches, RecordedBatch, about_batches, size_of, unwrapped
from autograd_opt.engine.cotangents import make_cotangents, shared_ones
from autograd_opt.engine.entry import grad_usual, install_entry, spared, too_deep
from autograd_opt.engine.executor import run as run_task
from autograd_opt.engine.hooks import prepare, run_leaf_hooks
from autograd_opt.engine.own_memory import own_memory
from autograd_opt.engine.saved_values import require_unwritten, runs_again
from autograd_opt.engine.task import GraphTask
from autograd_opt.graph import handles, references, refusals, released_history, runs, thread_state
from autograd_opt.graph import node as nodes
from autograd_opt.graph.hooks import retain_grad
from autograd_opt.ops.table import MULTI
from autograd_opt.record.dispatch import MODE
from autograd_opt.record.torch_nodes import saves_values
from autograd_opt.record.unrecorded import handed_out

Tensor = torch.Tensor
Tensors = Tensor | Sequence[Any]
cycle_warnings = iter([True])
"""The one warning of cycles that a process gets, as in torch."""


def as_tuple(x: Any) -> tuple[Any, ...]:
    """A tensor, an edge or a sequence of them, as a tuple."""
    return tuple(x) if isinstance(x, (list, tuple)) and not isinstance(x, GradientEdge) else (x,)


def tape_for(roots: Sequence[Any], what: str) -> Any:
    """The tape that recorded the roots: the active one, or an error that says why not."""
    tape = thread_state.get_active()
    if tape is None:
        known = [root.__dict__.get("_node") for root in roots if isinstance(root, Tensor)]
        graphs = [n.tape.graph() for n in known if n is not None and n.tape is not None]
        if any(g is not None and g.thread not in (None, threading.get_ident()) for g in graphs):
            raise errors.OutsideGraphError(errors.at(
                f"{what} was called in a thread other than the one that entered the AutogradGraph: a graph is of one "
                "thread; differentiate in that thread, or enter a graph in this one and compute the loss inside"
            ))
        if any(g is not None and g.keep for g in graphs):
            raise errors.OutsideGraphError(errors.at(
                f"{what} was called after the context of its AutogradGraph was left, and keep=True kept no history: it "
                "does so where no leaf was made by ao.tensor and no other context is around; make leaves by "
                "torch.tensor(..., requires_grad=True), or call it inside the context"
            ))
        if graphs:
            raise errors.OutsideGraphError(errors.at(
                f"{what} was called after the context of its AutogradGraph was left, which releases the graph's nodes: "
                "call it inside `with AutogradGraph(): ...`, where the loss is computed"
            ))
        raise errors.OutsideGraphError(errors.at(
            f"{what} was called outside any AutogradGraph: operations outside a context run as plain torch "
            "and are not recorded; compute the loss and call backward inside `with AutogradGraph(): ...`"
        ))
    return tape


def root_nodes(tape: Any, roots: Sequence[Any]) -> list[Any]:
    """The node of each root (a tensor or a gradient edge), or torch's error for one without a graph.

    Nothing is put on the tape before all of them were looked at.
    """
    found = []
    for i, root in enumerate(roots):
        node = edge_node(root)
        if node is None:
            if not isinstance(root, Tensor):
                raise errors.ArgumentTypeError(errors.at(
                    f"expected a Tensor to differentiate, got {type(root).__name__}"
                ))
            if not references.requires_grad(root) and handles.handle_of(root, False) is None:
                raise without_graph(i)
        elif node.index < 0 and not node.is_leaf:
            raise refusals.freed(node)            # an edge whose node the graph has let go
        found.append(node)
    for i, root in enumerate(roots):
        if found[i] is None:
            node = found[i] = handles.handle_of(root)
            if not node.requires_grad or node.op == "view_apart":
                raise without_graph(i)
    return found


def without_graph(i: int) -> errors.GraphError:
    """The error of a root that nothing leads to."""
    return errors.GraphError(errors.at(
        f"element {i} of tensors does not require grad and does not have a grad_fn"
    ))


def edge_node(edge: Any) -> Any:
    """The node that a `GradientEdge` (or a node itself) stands for; None for anything else."""
    inner: Any = edge.node if isinstance(edge, GradientEdge) else edge
    if not isinstance(inner, nodes.Node):
        if inner is edge:
            return None
        leaf = getattr(inner, "variable", None)
        if leaf is None:
            raise errors.GraphError(errors.at(
                "a GradientEdge made by torch's own autograd was used in an AutogradGraph: make it inside the context"
            ))
        return handles.handle_of(leaf)
    tape = thread_state.get_active()
    if inner.tape is not tape and tape is not None:
        raise refusals.graph_mismatch(inner, tape)
    return inner if inner is edge else output_of(inner, edge.output_nr)


def output_of(node: Any, number: int) -> Any:
    """The node of one output of a multi-output node; the node itself for any other."""
    if not node.op.flags & MULTI:
        return node
    tape: Any = thread_state.get_active()
    for index in range(node.index + 1, len(tape)):
        other = tape.node(index)
        if other.op.name == "output" and other.operands[0] is node and other.raw_attributes["i"] == number:
            return other
    raise errors.GraphError(errors.at(f"output {number} of {node.op.name} is no longer part of the graph"))


def backward(tensors: Tensors, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, inputs: Any = None) -> None:
    """`torch.autograd.backward` with this library's engine."""
    if inputs is None and create_graph is False and not (released_history.graphs and released_history.innermost()) \
            and entry.backward_usual(tensors, grad_tensors, bool(retain_graph)):
        return
    roots = as_tuple(tensors)
    given = as_tuple(grad_tensors) if grad_tensors is not None else (None,) * len(roots)
    if inputs is not None:
        inputs = as_tuple(inputs)
        if not inputs:
            raise errors.GraphError(errors.at("`inputs` argument to `backward()` cannot be empty."))
    tape = tape_for(roots, "backward()")
    with private.DisableTorchFunction():
        found = root_nodes(tape, roots)
        cotangents = make_cotangents(tape, roots, found, given)
        targets = None if inputs is None else [*input_nodes(inputs), *torch_histories.leaves(tape, inputs)]
        for t in inputs or ():
            if isinstance(t, Tensor):
                retain_grad(t)
    if create_graph and (next(cycle_warnings, False) or torch.is_warn_always_enabled()):
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its "
            "gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to "
            "avoid this.", stacklevel=3)
    retain = create_graph if retain_graph is None else bool(retain_graph)
    execute(tape, found, cotangents, targets, retain, create_graph, True, given=inputs)


def grad(outputs: Tensors, inputs: Tensors, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """`torch.autograd.grad` with this library's engine."""
    if materialize_grads and allow_unused is False:
        raise errors.ArgumentError(errors.at(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        ))
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.", FutureWarning, stacklevel=3)
    if allow_unused is None:
        allow_unused = materialize_grads
    if not (is_grads_batched or materialize_grads) and met(outputs):
        usual = grad_usual(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
        if usual is not None:
            return usual
    roots, wanted = as_tuple(outputs), as_tuple(inputs)
    if not wanted:
        raise errors.GraphError(errors.at("`inputs` argument to `grad()` cannot be empty."))
    given = as_tuple(grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    tape = tape_for(roots, "grad()")
    with private.DisableTorchFunction():
        found = root_nodes(tape, roots)
        cotangents = make_cotangents(tape, roots, found, given, is_grads_batched)
        own = input_nodes(wanted)
        onward = torch_histories.leaves(tape, wanted)
        targets = own + onward
    retain = create_graph if retain_graph is None else bool(retain_graph)
    handed = tape.merges.handed
    if is_grads_batched and create_graph:
        results = recorded_batch(tape, found, cotangents, targets) if retain and size_of(cotangents) > FEW else None
        if results is None:
            results = in_slices(tape, found, cotangents, targets, retain, create_graph)
    else:
        outer = None if is_grads_batched else unwrapped(cotangents)
        if outer is not None:
            if create_graph:
                raise errors.UnsupportedError(errors.at(
                    "grad(create_graph=True) with cotangents that torch._vmap_internals._vmap has batched: use "
                    "torch.vmap, or is_grads_batched=True"
                ))
            cotangents = outer[1]
        batch = Batch(size_of(cotangents)) if is_grads_batched or outer is not None else None
        results = execute(tape, found, cotangents, targets, retain, create_graph, False, batch)
        if not create_graph:
            handed_out(results)
        if outer is not None:
            results = [None if g is None else private.legacy_add_batch_dim(g, 0, outer[0]) for g in results]
    merged = tape.merges.twins if create_graph else tape.merges.handed - handed
    if merged and spared(results, cotangents, create_graph):
        results = own_memory(tape, found, cotangents, targets, results, create_graph)
    if onward:
        results = torch_histories.joined(wanted, onward, results, own, retain, create_graph, is_grads_batched)
    for i, (t, g) in enumerate(zip(wanted, results, strict=True)):
        if g is None and materialize_grads:
            results[i] = zeros(t, create_graph)
        elif g is None and not allow_unused:
            raise unused(i)
    return tuple(results)


def zeros(t: Any, requires_grad: bool) -> Tensor:
    """The gradient of an input that was not used, where one was asked for."""
    if not isinstance(t, Tensor):
        raise errors.GraphError(errors.at("materialize_grads cannot be used when the given input is a GradientEdge"))
    with private.DisableTorchFunction():        # they are no value of the program's that could be found again
        return torch.zeros_like(t, requires_grad=requires_grad)


def met(outputs: Any) -> bool:
    """Has a graph met what is differentiated?  What has no node gets none before it was looked at."""
    t = outputs[0] if type(outputs) in (tuple, list) and outputs else outputs
    return "_node" in getattr(t, "__dict__", ())


def unused(i: int) -> errors.GraphError:
    """The error of an input that has no gradient."""
    return errors.GraphError(errors.at(
        f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
        "Set allow_unused=True if this is the desired behavior."
    ))


def input_nodes(inputs: Sequence[Any]) -> list[Any]:
    """The nodes to capture; None for a tensor that the graph has not seen."""
    targets = []
    for t in inputs:
        node = edge_node(t)
        if node is not None:
            targets.append(node)
            continue
        if not isinstance(t, Tensor):
            raise errors.GraphError(errors.at(
                f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__}"))
        if not references.requires_grad(t):
            raise errors.GraphError(errors.at("One of the differentiated Tensors does not require grad"))
        found = handles.handle_of(t, False)
        if found is not None and found.view is not None and not found.is_leaf \
                and private.version_of(t) != found.version:
            found = handles.handle_of(t)          # torch gives a view of written memory its history anew
        elif private.is_view(t) and (found is None or found.is_leaf or not found.requires_grad):
            found = handles.handle_of(t)          # and its first history to one that nothing has read yet
        while found is not None and found.op == "written":
            found = found.operands[0]           # a write without a record leaves the gradient where it was
        targets.append(None if found is not None and found.op == "view_apart" else found)
    return targets


def execute(tape: Any, roots: list[Any], cotangents: list[Tensor], inputs: list[Any] | None,
            retain: bool, create_graph: bool, accumulate: bool, batch: Batch | None = None,
            handed_on: bool = False, given: Sequence[Any] | None = None) -> list[Any]:
    """Optimize if asked for, then run one GraphTask; leaves every mode as it was.

    `handed_on`: the gradients of leaves go on in torch's engine, which calls the hooks of the leaves.
    `given`: what `backward(inputs=)` was given, where leaves that torch has computed are among the inputs besides.
    """
    if too_deep():
        return nested_backward.on_fresh_thread(
            execute, tape, roots, cotangents, inputs, retain, create_graph, accumulate, batch, handed_on, given)
    graph = tape.graph()
    # What a recorded run computes can be differentiated with respect to each twin, so it stays as written.
    merge = False                           # a run inside a run leaves the outer one's merges as they are
    if graph is not None and not create_graph and not tape.running:
        tape.fixed += 1                     # passes and proofs hold record numbers
        try:
            merge = graph.prepare(roots, inputs, not retain)
        finally:
            tape.fixed -= 1
    elif graph is not None and graph.released is not None:
        released_history.refuse(graph, roots, inputs)
    task = GraphTask(tape, retain, create_graph, merge, batch)
    task.shares = graph is not None and graph.merges
    anomaly = bool(graph is not None and graph.anomaly) or torch.is_anomaly_enabled()
    task.anomaly = anomaly and (torch.is_anomaly_check_nan_enabled() or not torch.is_anomaly_enabled())
    run = runs.Run(task, roots, inputs, accumulate)
    run.handed_on, run.inputs = handed_on, given
    stack = runs.stack()
    stack.append(run)
    tape.fixed += 1                         # hooks of targets and callbacks come after the engine's loop
    try:
        result = recorded_run(run, cotangents) if create_graph else numeric_run(run, cotangents)
        if not retain:
            tape.consumed = True
        runs.finish(run)
    except Exception as error:
        if anomaly:
            refusals.report_forward(error)
        raise
    finally:
        stack.pop()
        tape.fixed -= 1
    tape.let_go_unread([*roots, *(inputs or ())])
    return result if result is not None else []


def recorded_run(run: runs.Run, cotangents: list[Tensor]) -> Any:
    """Execute with every operation of the rules recorded (`create_graph`)."""
    grad_mode = private.is_grad_enabled()
    private.set_grad_enabled(True)
    try:
        with private.EnableTorchFunction(), MODE:
            if run.task.batch is None:
                return engine_run(run, cotangents)
            with OnBatches(run.task.batch):
                results = engine_run(run, [run.task.batch.joined(g) for g in cotangents])
            return [None if g is None else run.task.batch.stacked(g) for g in results]
    finally:
        private.set_grad_enabled(grad_mode)


def engine_run(run: runs.Run, cotangents: list[Tensor]) -> Any:
    """Execute; the results are the cotangents of the targets after their leaves' hooks."""
    run.task.calls = run.accumulates
    results = run_task(run.task, run.roots, cotangents, run.targets, run.targets is None, accumulate)
    if run.targets is None:
        return results
    done: dict[int, Any] = {}
    for i, (node, g) in enumerate(zip(run.targets, results, strict=True)):
        if g is None and i not in run.task.undefined:
            if run.accumulates and node is not None and node.op == "output" and not called(node) \
                    and run.comes_to(node.operands[0]):
                require_executable(node.operands[0])        # by way of another of its results
            continue
        if id(node) not in done:
            sole = sys.getrefcount(g) == HELD
            done[id(node)] = arrive(run, node, g, sole)
        results[i] = done[id(node)]
    return results


def held_alone() -> int:
    """How many references this Python counts to a result in the loop of `engine_run` that nothing else holds."""
    for _, (_, g) in enumerate(zip((None,), [object()], strict=True)):
        return sys.getrefcount(g)
    raise AssertionError


HELD = held_alone()


def arrive(run: runs.Run, node: Any, g: Tensor | None, sole: bool) -> Any:
    """What happens at a target, besides being captured; `sole`: nothing else holds the cotangent."""
    if run.accumulates:
        if node.is_leaf:
            accumulate(run.task, node, g, sole)
        elif not run.leads(node) and not called(node):      # torch executes such a node, and drops its results
            maker = node.operands[0] if node.op == "output" else node
            if not ends_in_a_view(maker) and not ends_without_values(maker):
                require_executable(maker)
            if node.hooks is not None:
                prepare(node.hooks, node, g, run.task)
        return g
    return run_leaf_hooks(node.tensor, g, run.task) if node.is_leaf and not run.handed_on else g


def called(node: Any) -> bool:
    """Has the run called a Function here?"""
    return bool((node.operands[0] if node.op == "output" else node).op.functions)


def require_executable(node: Any) -> None:
    """Refuse a node that has been freed, or of whose saved values one was written."""
    if not runs_again(node):
        raise refusals.freed(node)
    require_unwritten(node)


def ends_in_a_view(node: Any) -> bool:
    """Does torch make this product of a matrix product and a view of it, which alone is executed at a target?"""
    if node.op.name not in ("matmul", "linear"):
        return False
    first, second = (len(n.shape) for n in node.operands[:2])
    return (first, second) not in ((2, 2), (1, 1), (2, 1))


def ends_without_values(node: Any) -> bool:
    """Is this a call taken whole whose last node in torch, which alone is executed at a target, saves no tensor?"""
    last = (node.raw_attributes or {}).get("torch") if node.op.name.startswith("opaque") else None
    return last is not None and not saves_values(last)


def numeric_run(run: runs.Run, cotangents: list[Tensor]) -> Any:
    """Execute on plain values: nothing is recorded but what hooks and functions record."""
    was_paused = thread_state.get_recording() is None
    thread_state.pause()
    grad_mode = private.is_grad_enabled()
    try:
        with private.DisableTorchFunction():
            private.set_grad_enabled(False)
            return engine_run(run, cotangents) if run.task.batch is None else batched_run(run, cotangents)
    finally:
        with private.DisableTorchFunction():
            private.set_grad_enabled(grad_mode)
        if not was_paused:
            thread_state.resume(0)


def batched_run(run: runs.Run, cotangents: list[Tensor]) -> list[Any]:
    """Execute once for all slices of the cotangents."""
    batch = run.task.batch
    with batch.entered():
        results = engine_run(run, [batch.joined(g) for g in cotangents])
        return [None if g is None else in_rows(batch.stacked(g), cotangents) for g in results]


def in_rows(t: Tensor, given: list[Tensor]) -> Tensor:
    """A batch of gradients slice after slice in memory, as torch's kernels leave them; one that repeats, or shows what
    was given, stays.
    """
    if t.layout is not torch.strided or t.is_contiguous() or 0 in t.stride():
        return t
    return t if any(same_memory(t, g) for g in given) else t.contiguous()


def recorded_batch(tape: Any, roots: list[Any], cotangents: list[Tensor], targets: list[Any]) -> list[Any] | None:
    """One recorded run for all slices of the cotangents; None where a hook can only be called with slices."""
    try:
        return execute(tape, roots, cotangents, targets, True, True, False, RecordedBatch(size_of(cotangents)))
    except RuntimeError as error:
        if isinstance(error, errors.AutogradOptError) or not about_batches(error):
            raise
        return None


def in_slices(tape: Any, roots: list[Any], cotangents: list[Tensor], targets: list[Any],
              retain: bool, create_graph: bool, handed_on: bool = False) -> list[Any]:
    """One run for each slice of the cotangents, results stacked: for a recorded run over a few."""
    n = size_of(cotangents)
    given = [[c[k] for c in cotangents] for k in range(n)]
    rows = [execute(tape, roots, slices, targets, retain or k < n - 1, create_graph, False, None, handed_on)
            for k, slices in enumerate(given)]

    def together(parts: list[Any]) -> Any:
        if parts[0] is None:
            return None
        for c, slices in zip(cotangents, zip(*given, strict=True), strict=True):
            if all(part is s for part, s in zip(parts, slices, strict=True)):
                return c                        # handed on as it was given
        return torch.stack(parts)

    with torch.set_grad_enabled(create_graph):
        return [together([row[j] for row in rows]) for j in range(len(targets))]


install_entry(accumulate, shared_ones, own_memory, unused)
