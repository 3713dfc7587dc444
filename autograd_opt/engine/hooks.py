"""Hooks during a backward run: what user code sees and may change.

Order at a tensor, as in torch: its pre-hooks in order of registration, then `retain_grad`,
then capture for `grad()`, then the node's pre-hooks; after its rule, the node's post-hooks.
A leaf runs its tensor hooks before `.grad` is written and its post-accumulate hooks after.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.engine.user_code import user_code
from autograd_opt.graph.hooks import NodeHooks, heard
from autograd_opt.graph.references import set_grad
from autograd_opt.graph.view_history import origin

Tensor = torch.Tensor


def before(hooks: NodeHooks, node: Any, g: Any, task: Any) -> Any:
    """Tensor pre-hooks and `retain_grad`; returns the cotangent to go on with.

    An operation with several outputs calls those of all of them, with None for an output that got no cotangent.
    """
    if hooks.outputs:
        for i, each in hooks.outputs:
            g.parts[i] = pass_through(each, node, g.parts[i], task)
        for i, each in hooks.outputs:
            keep(each, node, g.parts[i], task)
        return g
    g = pass_through(hooks, node, g, task)
    keep(hooks, node, g, task)
    return g


def pass_through(hooks: NodeHooks, node: Any, g: Any, task: Any) -> Any:
    """The tensor's hooks, one after the other."""
    if hooks.tensor:
        g = writable(g, task)
        with user_code(task, node):
            for fn in list(hooks.tensor.values()):
                g = checked(fn, fn(g), g)
    return g


def keep(hooks: NodeHooks, node: Any, g: Any, task: Any) -> None:
    """What `retain_grad` asks for."""
    if not hooks.retain or g is None:
        return
    t = None if hooks.owner is None else hooks.owner()
    if t is None:
        t = node.tensor
    if t is None:
        return
    if "_node" in t.__dict__:
        with user_code(task, node):
            retain(t, copied(g) if t.grad is None else t.grad + g)
            if "_retained_here" in t.__dict__:
                t.__dict__["_retained_here"] = t.grad
    else:                                       # a region has handed it out
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")         # torch does not know that it was asked for its gradient
            old = t.grad
        with private.DisableTorchFunction():
            set_grad(t, g.detach().clone() if old is None else old + g.detach())


def prepare(hooks: NodeHooks, node: Any, g: Any, task: Any) -> Any:
    """Node pre-hooks; they see and may replace the tuple of cotangents, one for each output."""
    if not hooks.pre:
        return g
    if not hasattr(g, "parts"):
        g = writable(g, task)
    seen = shown(g, node)
    with user_code(task, node):
        for fn in list(hooks.pre.values()):
            seen = replaced(fn, fn(seen), seen)
    parts = restored(seen, g, node)
    if hasattr(g, "parts"):
        g.parts[:] = parts
        return g
    return parts[0]


def after(hooks: NodeHooks, node: Any, results: tuple[Any, ...], g: Any, task: Any) -> tuple[Any, ...]:
    """Node post-hooks; they see (cotangents of operands, cotangents of outputs)."""
    seen = shown(g, node)
    with user_code(task, node):
        for fn in list(hooks.post.values()):
            results = replaced(fn, fn(results, seen), results)
    return results


def copied(g: Tensor) -> Tensor:
    """The first gradient that is retained; as in torch row-major."""
    return g.clone(memory_format=torch.contiguous_format) if g.layout is torch.strided else g.clone()


def writable(g: Any, task: Any) -> Any:
    """A mean's cotangent as a hook may write it: the run keeps one number for all elements, torch a tensor."""
    if not task.means or type(g) is not Tensor:
        return g
    with private.DisableTorchFunction():
        memory = private.storage_id(g.untyped_storage()) if g.layout is torch.strided and 0 in g.stride() else None
        shared = any(private.storage_id(part.untyped_storage()) == memory for part in task.means)
        return g.clone(memory_format=torch.contiguous_format) if shared else g


def retain(t: Tensor, g: Tensor) -> None:
    """`t.grad = g`; as in torch also where `t` has been given another shape since."""
    if g.shape != t.shape:
        t.grad = torch.empty_like(t)
        with private.DisableTorchFunction():
            t.grad.data = g
    else:
        set_grad(t, g)


def is_function(node: Any) -> bool:
    """Is this a call of a Function, whose outputs need not all be differentiable?"""
    return node is not None and bool(node.op.functions)


def shown(g: Any, node: Any) -> tuple[Any, ...]:
    """The cotangents of a node's outputs as its hooks see them.

    As in torch, of a Function also those of outputs that have none, of other operations those of indices not.
    """
    parts = tuple(g.parts) if hasattr(g, "parts") else (g,)
    if is_function(node):
        tracked, count = node._places
        by_place = dict(zip(tracked, parts, strict=True))
        return tuple(by_place.get(i) for i in range(count))
    if hasattr(g, "parts"):
        return tuple(p for p, number in zip(parts, numbers(node), strict=True) if number)
    return parts


def restored(seen: tuple[Any, ...], g: Any, node: Any) -> list[Any]:
    """What `shown` has made `seen` of: one cotangent for each output that the executor knows."""
    if is_function(node):
        return [seen[i] for i in node._places[0]]
    if hasattr(g, "parts"):
        left = iter(seen)
        return [next(left) if number else None for number in numbers(node)]
    return list(seen)


def numbers(node: Any) -> list[bool]:
    """Is each output of a kind that has gradients?"""
    return [dtype.is_floating_point or dtype.is_complex for _, dtype, _ in node.shape]


def replaced(fn: Any, result: Any, seen: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a node hook returned, if it may replace the cotangents it has seen."""
    if result is None:
        return seen
    result = result if isinstance(result, tuple) else (result,)
    if len(result) != len(seen):
        raise errors.GraphError(
            f"hook '{name_of(fn)}' has returned an incorrect number of values (got {len(result)}, but expected "
            f"{len(seen)})"
        )
    return tuple(checked(fn, new, old, True) for new, old in zip(result, seen, strict=True))


def name_of(fn: Any) -> str:
    """How messages call a hook."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def checked(fn: Any, result: Any, g: Tensor | None, none: bool = False) -> Any:
    """What a tensor hook returned, if it may replace the cotangent; `none`: may it drop it?"""
    if result is None:
        return None if none else g
    if g is None:
        raise errors.GraphError("can't replace a None gradient with a non-None value")
    if not isinstance(result, Tensor):
        raise errors.ArgumentTypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    if result.shape != g.shape:
        raise errors.GraphError(f"hook '{name_of(fn)}' has changed the size of value")
    if result.dtype != g.dtype:
        raise errors.GraphError(
            f"hook '{name_of(fn)}' has changed the type of value (was {g.dtype} got {result.dtype})"
        )
    return result


def run_leaf_hooks(t: Tensor, g: Any, task: Any) -> Any:
    """The tensor hooks of a leaf, set inside or outside a context."""
    own, torchs = t.__dict__.get("_leaf_hooks"), private.backward_hooks(t)
    if not own and not torchs:
        return g
    heard()
    g = writable(g, task)
    with user_code(task):
        for fn in [*(torchs or {}).values(), *(own or {}).values()]:
            g = checked(fn, fn(g), g)
    return g


def at_root(node: Any, g: Any, task: Any) -> None:
    """A run with targets starts at `node` alone, and comes from there to none: its hooks run all the same."""
    node = origin(node)
    call = node.operands[0] if node.op.name == "output" and node.operands else None
    if node.is_leaf:
        run_leaf_hooks(node.tensor, g, task)
    elif call is not None and call.hooks is not None and call.hooks.outputs:
        for i, each in call.hooks.outputs:                  # torch's one node calls those of all its outputs
            before(each, node, g if i == node.raw_attributes["i"] else None, task)
    elif node.hooks is not None:
        before(node.hooks, node, g, task)


def run_post_accumulate(t: Tensor, task: Any) -> None:
    """The post-accumulate hooks of a leaf."""
    own, torchs = t.__dict__.get("_post_hooks"), private.post_accumulate_grad_hooks(t)
    if not own and not torchs:
        return
    heard()
    with user_code(task):
        for fn in [*(torchs or {}).values(), *(own or {}).values()]:
            if fn(t) is not None:
                raise errors.GraphError("Tensor post accumulate grad hooks should return None.")
