"""Runners for an OpInfo harness: this library's gradients of one call.

    grads(fn, args, kwargs, cot) -> (output, gradients)
    grads2(fn, args, kwargs, cot, cot2) -> (output, gradients, gradients of gradients)

The environment variable AUTOGRAD_OPT_OPTIMIZE (0 or 1) chooses `optimize`;
AUTOGRAD_OPT_OPS_LOG names a file to which every recorded operator is appended, one JSON
object a call, opaque calls by the name of the torch function.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import autograd_opt as ao

OPTIMIZE = os.environ.get("AUTOGRAD_OPT_OPTIMIZE", "0") == "1"
LOG = os.environ.get("AUTOGRAD_OPT_OPS_LOG")


def tensors(tree: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


def leaves_of(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Floating and complex tensors that require grad, in order, each once."""
    found: dict[int, torch.Tensor] = {}
    for t in tensors((args, kwargs)):
        if t.requires_grad and (t.is_floating_point() or t.is_complex()):
            found.setdefault(id(t), t)
    return list(found.values())


def plain(tree: Any) -> Any:
    """The same values as plain tensors."""
    def convert(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        t = t.detach()
        if type(t) is not torch.Tensor:
            t.__class__ = torch.Tensor          # as_subclass asks sparse tensors for a storage
        return t
    with torch._C.DisableTorchFunction():
        return tree_map(convert, tree)


def recorded(graph: Any) -> list[str]:
    """The operators of a graph, opaque ones as `opaque:name`."""
    names = set()
    for node in graph.tape.snapshot():
        name = node.op.name
        names.add(f"opaque:{node.attributes.get('call')}" if name.startswith("opaque") else name)
    return sorted(names)


def note(graph: Any, order: int) -> None:
    if LOG:
        with open(LOG, "a") as f:
            f.write(json.dumps({"order": order, "ops": recorded(graph)}) + "\n")


def grads(fn: Any, args: Any, kwargs: Any, cot: Any) -> tuple[Any, list[Any]]:
    leaves = leaves_of(args, kwargs)
    with ao.AutogradGraph(optimize=OPTIMIZE) as graph:
        out = fn(*args, **kwargs)
        roots, given = wanted(out, cot)
        found: Any = [None] * len(leaves)
        if roots and leaves:
            found = graph.grad(roots, leaves, given, allow_unused=True)
        note(graph, 1)
        out = plain(out)
    return out, plain(list(found))


def grads2(fn: Any, args: Any, kwargs: Any, cot: Any, cot2: Any) -> tuple[Any, list[Any], list[Any]]:
    leaves = leaves_of(args, kwargs)
    with ao.AutogradGraph(optimize=OPTIMIZE) as graph:
        out = fn(*args, **kwargs)
        roots, given = wanted(out, cot)
        if not roots or not leaves:
            return plain(out), [None] * len(leaves), [None] * len(leaves)
        first = graph.grad(roots, leaves, given, create_graph=True, allow_unused=True)
        every = leaves + cot.leaves()
        pairs = [(g, cot2(i, g)) for i, g in enumerate(first) if g is not None]
        pairs = [(g, c) for g, c in pairs if c is not None and g.requires_grad]
        second: Any = [None] * len(every)
        if pairs:
            second = graph.grad([g for g, _ in pairs], every, [c for _, c in pairs], allow_unused=True)
        note(graph, 2)
        out, first, second = plain(out), plain(list(first)), plain(list(second))
    return out, first, second


def wanted(out: Any, cot: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The differentiable outputs and their cotangents."""
    pairs = [(t, cot(i, t)) for i, t in enumerate(tensors(out))]
    pairs = [(t, c) for t, c in pairs if c is not None and t.requires_grad]
    return [t for t, _ in pairs], [c for _, c in pairs]
