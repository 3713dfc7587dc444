"""The general mechanism for operators without a rule: torch's own derivative of one call.

The call runs once on detached operands with torch's autograd switched on for it alone; the
small graph that torch builds for it is the node's vector-Jacobian product.  Under
`create_graph` that product is itself such a call over the same small graph, so gradients of
any order exist, and nothing is computed or drawn twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from autograd_opt import node as nodes
from autograd_opt import recorder
from autograd_opt.ops.table import MULTI, VARIADIC, define

C = torch._C


@contextmanager
def torch_autograd(grad: bool = True) -> Iterator[None]:
    """Inside a context: torch's own autograd for one call, no recording, no torch functions."""
    old = nodes.pause()
    try:
        with C.DisableTorchFunction(), included_autograd(), torch.set_grad_enabled(grad):
            yield
    finally:
        nodes.resume(old)


@contextmanager
def included_autograd() -> Iterator[None]:
    """Undo, for a while, the exclusion of autograd's dispatch keys."""
    exclude = C._dispatch_tls_local_exclude_set()
    for key in AUTOGRAD_KEYS:
        exclude = exclude.remove(key)
    with C._ForceDispatchKeyGuard(C._dispatch_tls_local_include_set(), exclude):
        yield


@contextmanager
def excluded_autograd() -> Iterator[None]:
    """Inside a context: exclude autograd's dispatch keys again, where an opaque call had included them."""
    exclude = C._dispatch_tls_local_exclude_set()
    for key in AUTOGRAD_KEYS:
        exclude = exclude.add(key)
    with C._ForceDispatchKeyGuard(C._dispatch_tls_local_include_set(), exclude):
        yield


AUTOGRAD_KEYS = [k for name, k in C.DispatchKey.__members__.items() if name.startswith("Autograd")]


class OpaqueCall:
    """One call differentiated by torch: its detached operands and the edges of its outputs.

    Edges, not the outputs: a view's own edge would be made anew after a write to its base,
    and outputs that torch does not need are not kept alive.
    """

    __slots__ = ("edges", "inputs", "name")

    def __init__(self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]):
        self.name, self.inputs = name, inputs
        self.edges = [torch.autograd.graph.get_gradient_edge(o) for o in outputs if o.requires_grad]

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def pull_back(g: Any, extra: Any, task: Any) -> list[torch.Tensor | None]:
    """The cotangents of an opaque call's operands."""
    call, operands = extra
    parts = g.parts if hasattr(g, "parts") else [g]
    live = [(o, p) for o, p in zip(call.edges, parts, strict=True) if p is not None]
    if not live:
        return [None] * len(call.inputs)
    outs, gs = [o for o, _ in live], [p for _, p in live]
    if not task.create_graph:
        with torch_autograd():
            return list(torch.autograd.grad(outs, call.inputs, gs, retain_graph=task.retain, allow_unused=True))
    with torch_autograd():
        copies = [p.detach().requires_grad_() for p in gs]
        grads = torch.autograd.grad(outs, call.inputs, copies, create_graph=True, allow_unused=True)
        present = [x for x in grads if x is not None]
        again = OpaqueCall(f"{call.name}_vjp", call.inputs + copies, present)
    with C.DisableTorchFunction():
        results = iter(record(again, [*operands, *gs], present))
    return [None if x is None else next(results) for x in grads]


def alias(output: torch.Tensor, operands: list[torch.Tensor]) -> torch.Tensor:
    """The output without torch's graph; a real view of the operand whose memory it shows."""
    if output.layout is torch.strided:
        storage = output.untyped_storage()._cdata
        for t in operands:
            if t.layout is torch.strided and t.dtype is output.dtype and t.untyped_storage()._cdata == storage:
                return t.as_strided(output.shape, output.stride(), output.storage_offset())
    return output.detach()


def record(call: OpaqueCall, operands: list[torch.Tensor], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Attach an opaque node for a call that has run; returns its outputs, detached."""
    results = [alias(o, operands) for o in outputs]
    tracked = [r for o, r in zip(outputs, results, strict=True) if o.requires_grad]
    if len(tracked) == 1:
        node = recorder.record_node(OPAQUE, tuple(operands), {"call": call.name}, tracked[0], True, (call, operands))
        node.view = True if tracked[0]._is_view() else None
    elif tracked:
        recorder.record_multi(OPAQUE_MULTI, tuple(operands), {"call": call.name}, tracked, True, (call, operands))
    return results


def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call whole."""
    leaves, spec = tree_flatten((args, kwargs))
    if not torch.is_grad_enabled():
        return recorder.run_raw(func, args, kwargs)
    tape = nodes.get_recording()
    operands: list[torch.Tensor] = []
    positions: list[int] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            node = nodes.handle_of(leaf)
            if node is not None and node.requires_grad:
                operands.append(leaf)
                positions.append(i)
    if not operands or tape is None:
        return recorder.run_raw(func, args, kwargs)
    with torch_autograd():
        unique: dict[int, torch.Tensor] = {}
        for i, t in zip(positions, operands, strict=True):
            if id(t) not in unique:
                unique[id(t)] = t.detach().as_subclass(torch.Tensor).requires_grad_()
            leaves[i] = unique[id(t)]
        first = {id(t): t for t in operands}
        new_args, new_kwargs = tree_unflatten(leaves, spec)
        out = func(*new_args, **new_kwargs)
        flat, out_spec = tree_flatten(out)
        given = {id(d): first[k] for k, d in unique.items()}
        flat = [given.get(id(o), o) for o in flat]      # a call that returns its argument returns the user's
        where = [i for i, o in enumerate(flat) if isinstance(o, torch.Tensor) and id(o) not in first]
        call = OpaqueCall(getattr(func, "__name__", str(func)), list(unique.values()), [flat[i] for i in where])
    if where:
        with C.DisableTorchFunction():
            results = record(call, list(first.values()), [flat[i] for i in where])
        for i, r in zip(where, results, strict=True):
            flat[i] = r
    return tree_unflatten(flat, out_spec)


OPAQUE = define("opaque", "*tensors, call=''", VARIADIC, joint=pull_back, bind=lambda *a: (a, {}))
OPAQUE_MULTI = define("opaque_multi", "*tensors, call=''", MULTI | VARIADIC, joint=pull_back, bind=lambda *a: (a, {}))
