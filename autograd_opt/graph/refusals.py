"""Make the errors that speak of recorded nodes: what was recorded where, and what to do."""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

import torch

from autograd_opt._common.callsite import place_text
from autograd_opt.abi import torch_private as private
from autograd_opt.errors import (
    FreedGraphError,
    GraphError,
    GraphMismatchError,
    InplaceError,
    UnsupportedError,
    at,
)
from autograd_opt.graph.node import origin
from autograd_opt.graph.program_text import excerpt
from autograd_opt.graph.thread_state import get_active


def source_of(node: Any) -> str:
    """Where a node was recorded."""
    return place_text(node.source)


def graph_name(graph: Any) -> str:
    """How messages call a graph."""
    return "a graph that has been left" if graph is None else str(graph.label)


def graph_mismatch(node: Any, mine: Any) -> GraphMismatchError:
    """A gradient in one graph would go on in another, where `node`, or what it stands for, was recorded."""
    first = origin(node)
    other = first.tape
    theirs = graph_name(other.graph() if other is not None and other.graph is not None else None)
    ours = graph_name(mine.graph() if mine.graph is not None else None)
    return GraphMismatchError(at(
        f"a tensor recorded by {theirs} (result of {first.op.name}"
        f"{', at ' + source_of(first) if first.source else ''}) was used in {ours}"
        f"{' at ' + source_of(node) if node is not first and node.source else ''}, and a gradient would go through it: "
        "graphs do not share gradients; use .detach() to take the value across"
    ))


def foreign(t: Any) -> GraphError:
    """A non-leaf of torch's own autograd met a graph."""
    return GraphError(at(
        f"a tensor of shape {list(t.shape)} with torch's own grad_fn was used in an AutogradGraph: its history was "
        "recorded by torch outside the context and cannot be differentiated here; compute it inside, or pass .detach()"
    ))


def sharded() -> UnsupportedError:
    """A module given to `fully_shard` was called in a graph."""
    return UnsupportedError(at(
        "a module given to fully_shard was called in an AutogradGraph or a region: hooks of torch's own engine gather "
        "and free its parameters. Call ao.optimize(module) on it, outside of any context; the rest of the step stays "
        "torch's"
    ))


def kind_of(t: Any) -> str:
    """How messages call a tensor that is not of torch's ordinary kinds."""
    if t.is_nested:
        return "a nested tensor"
    if type(t).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor of class {type(t).__name__}, which has a __torch_dispatch__ of its own"
    return f"a tensor of class {type(t).__name__}" if t.layout is torch.strided else f"a tensor of layout {t.layout}"


def seen_by_compiler() -> UnsupportedError:
    """A context inside a function that torch compiles."""
    return UnsupportedError(at(
        "torch.compile does not see into the context of an AutogradGraph: compile functions that are called inside "
        "it, and put @torch.compiler.disable on the one that opens it"
    ))


def unsupported_operand(t: Any, operation: str = "an operation", tracked: bool = True) -> UnsupportedError:
    """An operand that cannot be recorded."""
    if private.is_compiling():
        return seen_by_compiler()
    met = "met a tensor that requires grad in" if tracked else "was given to"
    return UnsupportedError(at(
        f"{kind_of(t)} {met} {operation}: an AutogradGraph does not record such "
        "tensors; convert it to an ordinary one before, or compute this part outside the context and pass .detach()"
    ))


NOTED: weakref.WeakSet[type] = weakref.WeakSet()


def note_class(kind: Any) -> None:
    """Warn once of a class of the user's whose `__torch_function__` is not asked inside a context."""
    own, usual = (getattr(k.__torch_function__, "__func__", None) for k in (kind, torch.Tensor))
    if own is None or own is usual or not issubclass(kind, torch.Tensor) \
            or kind.__module__.split(".")[0] in ("torch", "autograd_opt") or kind in NOTED:
        return
    NOTED.add(kind)
    warnings.warn(at(
        f"an AutogradGraph does not ask the __torch_function__ of {kind.__qualname__}: inside its context tensors of "
        "this class compute as torch.Tensor does, and results are not of the class; where that is what you want, pass "
        ".as_subclass(torch.Tensor)"
    ), stacklevel=2)


def unsupported_result(t: Any, operation: str) -> UnsupportedError:
    """A result that would require grad and cannot be recorded."""
    return UnsupportedError(at(
        f"{operation} of a tensor that requires grad gives {kind_of(t)}: an AutogradGraph does not record such "
        "tensors; use ordinary tensors (padded, say), or compute this part outside the context and pass .detach()"
    ))


def freed(node: Any) -> FreedGraphError:
    """Second backward over released values; torch's wording first."""
    place = f" (reached {node.op.name}{', recorded at ' + source_of(node) if node.source else ''})"
    error = FreedGraphError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed "
        "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
        "backward through the graph a second time or if you need to access saved tensors after "
        "calling backward." + place
    )
    around = program_around(node)
    if around:
        error.add_note(around)
    return error


def cleared(graph: Any, node: Any) -> FreedGraphError:
    """Something recorded before `graph.clear()` was to be differentiated after it."""
    what = "a result" if node.op.name == "output" else node.op.name
    return FreedGraphError(at(
        f"{graph.label} was cleared after {what}{' at ' + source_of(node) if node.source else ''} was recorded, "
        "which released what its derivative needs: compute it again after clear(), clear after backward, or use "
        ".detach() to go on with the value alone"
    ))


def inference_saved() -> GraphError:
    """An inference tensor would have to be saved for backward."""
    return GraphError(at(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
        "in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
    ))


def dropped(node: Any) -> FreedGraphError:
    """A run started from a function whose tensor is gone, and with it what its rule had saved."""
    return FreedGraphError(
        f"the values saved for {node.op.name}"
        f"{', recorded at ' + source_of(node) if node.source else ''}, were released with "
        "its tensor: keep the tensor, or an edge made by torch.autograd.graph.get_gradient_edge, until backward"
    )


def modified(node: Any, i: int) -> InplaceError:
    """A saved tensor was written after it was saved; torch's wording first."""
    names = node.op.operands
    which = "the output" if i < 0 else f"operand {i} ({names[i]})" if i < len(names) else f"operand {i}"
    return InplaceError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {which} of {node.op.name}"
        f"{', recorded at ' + source_of(node) if node.source else ''}. Write to a clone() instead, "
        "or do the write before the operation"
    )


def locate(error: BaseException, node: Any) -> None:
    """Add to an exception which recorded operation was being differentiated."""
    if node.source and not getattr(error, "_autograd_opt_located", False):
        try:
            error._autograd_opt_located = True  # type: ignore[attr-defined]
            error._autograd_opt_node = (node.name(), source_of(node))  # type: ignore[attr-defined]
        except AttributeError:
            return
        error.add_note(f"while differentiating {node.op.name}, recorded at {source_of(node)}\n{program_around(node)}")


def program_around(node: Any) -> str:
    """About ten lines of the recorded program around `node`; nothing where the graph is gone."""
    tape = get_active()
    return "" if tape is None or node.index < 0 else excerpt(tape.snapshot(), node)


def report_forward(error: BaseException) -> None:
    """Anomaly mode: warn where the operation that failed in backward was recorded."""
    node = getattr(error, "_autograd_opt_node", None)
    if node is not None:
        name, place = node
        text = f"Error detected in {name}. The forward call that caused the error was recorded at {place}."
        try:
            warnings.warn(text, stacklevel=4)
        except Warning:                         # warnings are errors; the error of the run itself must arrive
            print(text, file=sys.stderr)


def check_nan(g: Any, node: Any, i: int = 0) -> None:
    """Anomaly mode: raise when a rule made a NaN for operand `i`."""
    parts = [p for p in getattr(g, "parts", [g]) if p is not None]
    for part in parts:
        if private.is_batchedtensor(part):
            part = private.get_unwrapped(part)
        if part.is_floating_point() and bool(torch.isnan(part.detach()).any()):
            raise GraphError(
                f"Function '{node.name()}' returned nan values in its {i}th output."
                f"{' The operation was recorded at ' + source_of(node) if node.source else ''}"
            )
