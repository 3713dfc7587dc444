"""Entry points of a backward run: arguments checked as torch checks them, then one GraphTask."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt import errors, references
from autograd_opt import node as nodes
from autograd_opt.executor import GraphTask

Tensor = torch.Tensor
Tensors = Tensor | Sequence[Any]


def as_tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Tensor) or not isinstance(x, (list, tuple)) else tuple(x)


def tape_for(roots: Sequence[Any], what: str) -> Any:
    """The tape that recorded the roots: the active one, or an error that says why not."""
    tape = nodes.get_active()
    if tape is None:
        raise errors.OutsideGraphError(errors.at(
            f"{what} was called outside any AutogradGraph: operations outside a context run as plain torch "
            "and are not recorded; compute the loss and call backward inside `with AutogradGraph(): ...`"
        ))
    return tape


def root_nodes(tape: Any, roots: Sequence[Any]) -> list[Any]:
    """The node of each root, or torch's error for one without a graph."""
    found = []
    for i, root in enumerate(roots):
        if not isinstance(root, Tensor):
            raise errors.ArgumentTypeError(errors.at(f"expected a Tensor to differentiate, got {type(root).__name__}"))
        node = nodes.handle_of(root)
        if not node.requires_grad:
            raise errors.GraphError(errors.at(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            ))
        found.append(node)
    return found


def make_cotangents(roots: Sequence[Tensor], given: Sequence[Any], batched: bool = False) -> list[Tensor]:
    """Cotangents of the roots: ones for a real scalar, else what the caller gave, checked."""
    if len(given) != len(roots):
        raise errors.GraphError(errors.at(f"got {len(roots)} tensors and {len(given)} gradients"))
    out = []
    for i, (root, g) in enumerate(zip(roots, given, strict=True)):
        if g is None:
            if root.numel() != 1:
                raise errors.GraphError(errors.at("grad can be implicitly created only for scalar outputs"))
            if not root.is_floating_point():
                raise errors.GraphError(errors.at(
                    f"grad can be implicitly created only for real scalar outputs but got {root.dtype}"
                ))
            out.append(torch.ones_like(root.detach(), memory_format=torch.preserve_format).as_subclass(Tensor))
            continue
        if not isinstance(g, Tensor):
            raise errors.ArgumentTypeError(errors.at(
                f"gradients can be either Tensors or None, but got {type(g).__name__}"
            ))
        shape = g.shape[1:] if batched else g.shape
        if shape != root.shape:
            if batched:
                raise errors.GraphError(errors.at(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                    "dimension. The sizes of the remaining dimensions are expected to match the shape of "
                    f"corresponding output, but a mismatch was detected: grad_output[{i}] has a shape of {g.shape} "
                    f"and output[{i}] has a shape of {root.shape}."
                ))
            raise errors.GraphError(errors.at(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                f"{root.shape}."
            ))
        if g.is_complex() != root.is_complex():
            raise errors.GraphError(errors.at(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {root.dtype}."
            ))
        out.append(g if g.dtype is root.dtype else g.to(root.dtype))
    return out


def backward(tensors: Tensors, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, inputs: Any = None) -> None:
    """`torch.autograd.backward` with this library's engine."""
    roots = as_tuple(tensors)
    given = as_tuple(grad_tensors) if grad_tensors is not None else (None,) * len(roots)
    if inputs is not None:
        inputs = as_tuple(inputs)
        if not inputs:
            raise errors.GraphError(errors.at("`inputs` argument to `backward()` cannot be empty."))
    tape = tape_for(roots, "backward()")
    with torch._C.DisableTorchFunction():
        found = root_nodes(tape, roots)
        cotangents = make_cotangents(roots, given)
    if create_graph:
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its "
            "gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to "
            "avoid this.", stacklevel=3)
    retain = create_graph if retain_graph is None else bool(retain_graph)
    if inputs is None:
        execute(tape, found, cotangents, None, retain, create_graph)
        return
    targets = input_nodes(inputs)
    captured = execute(tape, found, cotangents, targets, retain, create_graph)
    task = GraphTask(tape, True, create_graph, False)
    for t, g in zip(inputs, captured, strict=True):
        if g is not None:
            references.add_to_grad(t, g, task.create_graph)


def grad(outputs: Tensors, inputs: Tensors, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """`torch.autograd.grad` with this library's engine."""
    if materialize_grads and allow_unused is False:
        raise errors.ArgumentError(errors.at(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        ))
    if allow_unused is None:
        allow_unused = materialize_grads
    roots, wanted = as_tuple(outputs), as_tuple(inputs)
    if not wanted:
        raise errors.GraphError(errors.at("`inputs` argument to `grad()` cannot be empty."))
    given = as_tuple(grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    tape = tape_for(roots, "grad()")
    with torch._C.DisableTorchFunction():
        found = root_nodes(tape, roots)
        cotangents = make_cotangents(roots, given, is_grads_batched)
        targets = input_nodes(wanted)
    retain = create_graph if retain_graph is None else bool(retain_graph)
    if is_grads_batched:
        results = batched(tape, found, cotangents, targets, retain, create_graph)
    else:
        results = execute(tape, found, cotangents, targets, retain, create_graph)
    for i, (t, g) in enumerate(zip(wanted, results, strict=True)):
        if g is None and materialize_grads:
            results[i] = torch.zeros_like(t)
        elif g is None and not allow_unused:
            raise errors.GraphError(errors.at(
                f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            ))
    return tuple(results)


def input_nodes(inputs: Sequence[Any]) -> list[Any]:
    """The nodes to capture; None for a tensor that the graph has not seen."""
    targets = []
    for t in inputs:
        if isinstance(t, nodes.Node):
            targets.append(t)
            continue
        if not isinstance(t, Tensor):
            raise errors.ArgumentTypeError(errors.at(f"expected Tensors as inputs, got {type(t).__name__}"))
        if not references.requires_grad(t):
            raise errors.GraphError(errors.at("One of the differentiated Tensors does not require grad"))
        targets.append(nodes.handle_of(t, False))
    return targets


def execute(tape: Any, roots: list[Any], cotangents: list[Tensor], inputs: list[Any] | None,
            retain: bool, create_graph: bool) -> list[Any]:
    """Optimize if asked for, then run one GraphTask; leaves every mode as it was."""
    graph = tape.graph()
    merge = graph.prepare(roots, inputs, not retain) if graph is not None else False
    task = GraphTask(tape, retain, create_graph, merge)
    task.anomaly = bool(graph is not None and graph.anomaly) or torch.is_anomaly_enabled()
    if create_graph:
        with torch._C._EnableTorchFunction(), torch.enable_grad():
            result = task.run(roots, cotangents, inputs, inputs is None, references.accumulate)
    else:
        old = nodes.pause()
        grad_mode = torch._C.is_grad_enabled()
        try:
            with torch._C.DisableTorchFunction():
                torch._C._set_grad_enabled(False)
                result = task.run(roots, cotangents, inputs, inputs is None, references.accumulate)
        finally:
            with torch._C.DisableTorchFunction():
                torch._C._set_grad_enabled(grad_mode)
            nodes.resume(old)
    if not retain:
        tape.consumed = True
    for callback in task.callbacks:
        callback()
    return result if result is not None else []


def batched(tape: Any, roots: list[Any], cotangents: list[Tensor], targets: list[Any],
            retain: bool, create_graph: bool) -> list[Any]:
    """One run for each slice of the cotangents, results stacked."""
    n = cotangents[0].shape[0]
    rows = [execute(tape, roots, [c[k] for c in cotangents], targets, retain or k < n - 1, create_graph)
            for k in range(n)]
    return [None if rows[0][j] is None else torch.stack([row[j] for row in rows]) for j in range(len(targets))]
