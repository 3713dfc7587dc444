"""Hooks: what user code sees and may change during a backward run.

Order at a tensor, as in torch: its pre-hooks in order of registration, then `retain_grad`,
then capture for `grad()`, then the node's pre-hooks; after its rule, the node's post-hooks.
A leaf runs its tensor hooks before `.grad` is written and its post-accumulate hooks after.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi.original_functions import REGISTER_HOOK, REGISTER_POST_ACCUMULATE
from autograd_opt.engine import runs
from autograd_opt.graph import node as nodes
from autograd_opt.record.dispatch import MODE
from autograd_opt.record.saved_tensors import ENTERED

Tensor = torch.Tensor
_ids = itertools.count()


PIECEWISE = frozenset("""
    tensor_split hsplit vsplit dsplit lstm gru rnn_tanh rnn_relu lstm_cell meshgrid broadcast_tensors
    atleast_1d atleast_2d atleast_3d gradient
""".split())
"""Operations whose outputs have a node each in torch, so that each calls its hooks where it is reached itself."""


class Handle:
    """Returned by every registration; `remove()` takes the hook away, also during a run."""

    def __init__(self, hooks: dict[int, Any]):
        self.id = next(_ids)
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def add(hooks: OrderedDict[int, Any], fn: Callable[..., Any]) -> Handle:
    handle = Handle(hooks)
    hooks[handle.id] = fn
    return handle


class NodeHooks:
    """The hooks of one recorded tensor and its node."""

    def __init__(self) -> None:
        self.tensor: OrderedDict[int, Any] = OrderedDict()
        self.retain = False
        self.owner: Any = None              # weakly, the tensor whose gradient is retained
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()
        self.outputs: list[tuple[int, NodeHooks]] = []
        """Number and hooks of each output that has some, where the operation has several outputs."""

    def before(self, node: Any, g: Any, task: Any) -> Any:
        """Tensor pre-hooks and `retain_grad`; returns the cotangent to go on with.

        An operation with several outputs calls those of all of them, with None for an output that got no cotangent.
        """
        if self.outputs:
            for i, hooks in self.outputs:
                g.parts[i] = hooks.pass_through(node, g.parts[i], task)
            for i, hooks in self.outputs:
                hooks.keep(node, g.parts[i], task)
            return g
        g = self.pass_through(node, g, task)
        self.keep(node, g, task)
        return g

    def pass_through(self, node: Any, g: Any, task: Any) -> Any:
        """The tensor's hooks, one after the other."""
        if self.tensor:
            g = writable(g, task)
            with user_code(task, node):
                for fn in list(self.tensor.values()):
                    g = checked(fn, fn(g), g)
        return g

    def keep(self, node: Any, g: Any, task: Any) -> None:
        """What `retain_grad` asks for."""
        if not self.retain or g is None:
            return
        t = node.tensor
        if t is None and self.owner is not None:
            t = self.owner()
        if t is not None:
            with user_code(task, node):
                retain(t, copied(g) if t.grad is None else t.grad + g)

    def prepare(self, node: Any, g: Any, task: Any) -> Any:
        """Node pre-hooks; they see and may replace the tuple of cotangents, one for each output."""
        if not self.pre:
            return g
        if not hasattr(g, "parts"):
            g = writable(g, task)
        seen = shown(g, node)
        with user_code(task, node):
            for fn in list(self.pre.values()):
                seen = replaced(fn, fn(seen), seen)
        parts = restored(seen, g, node)
        if hasattr(g, "parts"):
            g.parts[:] = parts
            return g
        return parts[0]

    def after(self, task: Any, results: tuple[Any, ...], g: Any, node: Any = None) -> tuple[Any, ...]:
        """Node post-hooks; they see (cotangents of operands, cotangents of outputs)."""
        seen = shown(g, node)
        with user_code(task, node):
            for fn in list(self.post.values()):
                results = replaced(fn, fn(results, seen), results)
        return results


def copied(g: Tensor) -> Tensor:
    """The first gradient that is retained; as in torch row-major."""
    return g.clone(memory_format=torch.contiguous_format) if g.layout is torch.strided else g.clone()


def writable(g: Any, task: Any) -> Any:
    """A mean's cotangent as a hook may write it: the run keeps one number for all elements, torch a tensor."""
    if not task.means or type(g) is not Tensor:
        return g
    with torch._C.DisableTorchFunction():
        memory = g.untyped_storage()._cdata if g.layout is torch.strided and 0 in g.stride() else None
        shared = any(part.untyped_storage()._cdata == memory for part in task.means)
        return g.clone(memory_format=torch.contiguous_format) if shared else g


def retain(t: Tensor, g: Tensor) -> None:
    """`t.grad = g`; as in torch also where `t` has been given another shape since."""
    if g.shape != t.shape:
        t.grad = torch.empty_like(t)
        with torch._C.DisableTorchFunction():
            t.grad.data = g
    else:
        from autograd_opt.graph.references import set_grad
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


@contextmanager
def user_code(task: Any, node: Any = None) -> Iterator[None]:
    """Inside a run, the state that user code expects: torch functions seen, recording possible."""
    run = runs.current()
    before = run.node if run is not None else None
    pairs = ENTERED.pairs[:]
    if run is not None:
        run.node = node
    try:
        if task.create_graph:
            yield
            return
        nodes.resume(0)
        grad_mode = torch._C.is_grad_enabled()
        try:
            with torch._C._EnableTorchFunction(), MODE:
                yield
        finally:
            nodes.pause()
            torch._C._set_grad_enabled(grad_mode)
    finally:
        ENTERED.changed(pairs, task)
        if run is not None:
            run.node = before


def heard(value: Any = None) -> Any:
    """Let the runs of the graph that records here write `.grad` in torch's order: a hook of a leaf sees it."""
    tape: Any = nodes.get_active()
    if tape is not None:
        tape.heard = True
    return value


def hooks_of(node: Any) -> NodeHooks:
    """The node's hooks, made on first use."""
    if node.hooks is None:
        node.hooks = NodeHooks()
        if node.op.name == "output" and node.operands and call_of(node.operands[0]) not in PIECEWISE:
            hooks_of(node.operands[0]).outputs.append((node.raw_attributes["i"], node.hooks))
    return node.hooks


def call_of(node: Any) -> str:
    """The name of what was called: of the operator, or of the torch function that an opaque node stands for."""
    return str((node.raw_attributes or {}).get("call", node.op.name))


def own_node(t: Tensor, node: Any) -> Any:
    """The node whose cotangent is the gradient of `t`: below those of writes without a record."""
    from autograd_opt.record.views import origin
    return origin(nodes.handle_of(t) if nodes.get_active() is not None else node)


def read(t: Tensor) -> Any:
    """The node of `t`; a view whose base has come to require grad is given the one that it has now."""
    from autograd_opt.graph.references import base_requires_grad
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf or node.requires_grad or node.view is None or nodes.get_active() is None:
        return node
    return nodes.handle_of(t) if base_requires_grad(t) else node


def register_tensor_hook(t: Tensor, fn: Callable[[Tensor], Any]) -> Any:
    """`t.register_hook(fn)` inside a context."""
    if (getattr(fn, "__module__", None) or "").startswith("torch.distributed.fsdp"):
        raise errors.sharded()
    node = read(t)
    if node is not None and node.op == "view_apart":
        return add(t.__dict__.setdefault("_leaf_hooks", OrderedDict()), fn)     # nothing ever arrives there
    if node is not None and not node.is_leaf:
        if not node.requires_grad:
            raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
        return add(hooks_of(own_node(t, node)).tensor, fn)
    if t.__dict__.get("_requires_grad"):
        return heard(add(t.__dict__.setdefault("_leaf_hooks", OrderedDict()), fn))
    if "_requires_grad" in t.__dict__ or not t.requires_grad:
        raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
    with torch._C.DisableTorchFunction():
        return heard(REGISTER_HOOK(t, fn))


def register_post_accumulate(t: Tensor, fn: Callable[[Tensor], Any]) -> Any:
    """`t.register_post_accumulate_grad_hook(fn)` inside a context."""
    node = read(t)
    if node is not None and node.op == "view_apart":
        return add(t.__dict__.setdefault("_post_hooks", OrderedDict()), fn)
    if node is not None and not node.is_leaf:
        raise errors.GraphError(errors.at("post accumulate grad hooks cannot be registered on non-leaf tensors"))
    if "_requires_grad" in t.__dict__:
        if not t.__dict__["_requires_grad"]:
            raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
        return heard(add(t.__dict__.setdefault("_post_hooks", OrderedDict()), fn))
    with torch._C.DisableTorchFunction():
        return heard(REGISTER_POST_ACCUMULATE(t, fn))


def retain_grad(t: Tensor) -> None:
    """`t.retain_grad()` inside a context."""
    from autograd_opt.graph import references
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf or not node.requires_grad:
        if not references.requires_grad(t):
            raise errors.GraphError(errors.at("can't retain_grad on Tensor that has requires_grad=False"))
        return                                  # a leaf, or a view that nothing has read since its base requires grad
    if node.op == "view_apart" or t.__dict__.get("_retains_grad"):
        return                                  # a reshaped tensor goes on retaining the gradient of its old shape
    hooks = hooks_of(own_node(t, node))
    hooks.retain, hooks.owner = True, weakref.ref(t)
    t.__dict__["_retains_grad"] = True      # also when a write under no_grad moves it to a newer node


def keep_hooks(t: Tensor) -> None:
    """`t.detach_()` cuts `t` off from its node, not from its hooks: as in torch both go on calling the same ones."""
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf:
        return
    found = own_node(t, node).hooks
    if found is not None and found.tensor:
        t.__dict__["_leaf_hooks"] = found.tensor
    else:
        t.__dict__.pop("_leaf_hooks", None)


def run_leaf_hooks(t: Tensor, g: Any, task: Any) -> Any:
    """The tensor hooks of a leaf, set inside or outside a context."""
    own, torchs = t.__dict__.get("_leaf_hooks"), t._backward_hooks
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
    from autograd_opt.record.views import origin
    node = origin(node)
    if node.is_leaf:
        run_leaf_hooks(node.tensor, g, task)
    elif node.hooks is not None:
        node.hooks.before(node, g, task)


def run_post_accumulate(t: Tensor, task: Any) -> None:
    """The post-accumulate hooks of a leaf."""
    own, torchs = t.__dict__.get("_post_hooks"), t._post_accumulate_grad_hooks
    if not own and not torchs:
        return
    heard()
    with user_code(task):
        for fn in [*(torchs or {}).values(), *(own or {}).values()]:
            if fn(t) is not None:
                raise errors.GraphError("Tensor post accumulate grad hooks should return None.")
