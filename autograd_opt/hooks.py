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

from autograd_opt import errors, runs
from autograd_opt import node as nodes
from autograd_opt.dispatch import MODE

Tensor = torch.Tensor
_ids = itertools.count()


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
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()

    def before(self, node: Any, g: Any, task: Any) -> Any:
        """Tensor pre-hooks and `retain_grad`; returns the cotangent to go on with."""
        with user_code(task):
            for fn in list(self.tensor.values()):
                g = checked(fn, fn(g), g)
            if self.retain:
                t = node.tensor
                if t is not None:
                    t.grad = g if t.grad is None else t.grad + g
        return g

    def prepare(self, node: Any, g: Any, task: Any) -> Any:
        """Node pre-hooks; they see and may replace the tuple of cotangents."""
        if not self.pre:
            return g
        with user_code(task):
            for fn in list(self.pre.values()):
                result = fn((g,))
                if result is not None:
                    g = result[0] if isinstance(result, tuple) else result
        return g

    def after(self, task: Any, results: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
        """Node post-hooks; they see (cotangents of operands, cotangents of outputs)."""
        with user_code(task):
            for fn in list(self.post.values()):
                result = fn(results, (g,))
                if result is not None:
                    results = result if isinstance(result, tuple) else (result,)
        return results


def checked(fn: Any, result: Any, g: Tensor) -> Tensor:
    """What a tensor hook returned, if it may replace the cotangent."""
    if result is None:
        return g
    name = getattr(fn, "__name__", type(fn).__name__)
    if not isinstance(result, Tensor):
        raise errors.ArgumentTypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    if result.shape != g.shape:
        raise errors.GraphError(f"hook '{name}' has changed the size of value")
    if result.dtype != g.dtype:
        raise errors.GraphError(f"hook '{name}' has changed the type of value (was {g.dtype} got {result.dtype})")
    return result


@contextmanager
def user_code(task: Any) -> Iterator[None]:
    """Inside a run, the state that user code expects: torch functions on, recording possible."""
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


def hooks_of(node: Any) -> NodeHooks:
    """The node's hooks, made on first use."""
    if node.hooks is None:
        node.hooks = NodeHooks()
    return node.hooks  # type: ignore[no-any-return]


def register_tensor_hook(t: Tensor, fn: Callable[[Tensor], Any]) -> Any:
    """`t.register_hook(fn)` inside a context."""
    node = t.__dict__.get("_node")
    if node is not None and not node.is_leaf:
        if not node.requires_grad:
            raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
        return add(hooks_of(nodes.handle_of(t) if nodes.get_active() is not None else node).tensor, fn)
    if t.__dict__.get("_requires_grad"):
        return add(t.__dict__.setdefault("_leaf_hooks", OrderedDict()), fn)
    if "_requires_grad" in t.__dict__ or not t.requires_grad:
        raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
    with torch._C.DisableTorchFunction():
        return torch.Tensor.register_hook(t, fn)


def register_post_accumulate(t: Tensor, fn: Callable[[Tensor], Any]) -> Any:
    """`t.register_post_accumulate_grad_hook(fn)` inside a context."""
    node = t.__dict__.get("_node")
    if node is not None and not node.is_leaf:
        raise errors.GraphError(errors.at("post accumulate grad hooks cannot be registered on non-leaf tensors"))
    if "_requires_grad" in t.__dict__:
        if not t.__dict__["_requires_grad"]:
            raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
        return add(t.__dict__.setdefault("_post_hooks", OrderedDict()), fn)
    with torch._C.DisableTorchFunction():
        return torch.Tensor.register_post_accumulate_grad_hook(t, fn)


def retain_grad(t: Tensor) -> None:
    """`t.retain_grad()` inside a context."""
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf:
        if not t.requires_grad:
            raise errors.GraphError(errors.at("can't retain_grad on Tensor that has requires_grad=False"))
        return
    if not node.requires_grad:
        raise errors.GraphError(errors.at("can't retain_grad on Tensor that has requires_grad=False"))
    hooks_of(nodes.handle_of(t)).retain = True


def run_leaf_hooks(t: Tensor, g: Any, task: Any) -> Any:
    """The tensor hooks of a leaf, set inside or outside a context."""
    own, torchs = t.__dict__.get("_leaf_hooks"), t._backward_hooks
    if not own and not torchs:
        return g
    with user_code(task):
        for fn in [*(torchs or {}).values(), *(own or {}).values()]:
            g = checked(fn, fn(g), g)
    return g


def run_post_accumulate(t: Tensor, task: Any) -> None:
    """The post-accumulate hooks of a leaf."""
    own, torchs = t.__dict__.get("_post_hooks"), t._post_accumulate_grad_hooks
    if not own and not torchs:
        return
    with user_code(task):
        for fn in [*(torchs or {}).values(), *(own or {}).values()]:
            if fn(t) is not None:
                raise errors.GraphError("Tensor post accumulate grad hooks should return None.")
