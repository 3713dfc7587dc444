"""Hooks: what a node and a leaf hold of them, and how they are registered; `engine/hooks.py` calls them."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import REGISTER_HOOK, REGISTER_POST_ACCUMULATE
from autograd_opt.graph import handles, thread_state

Tensor = torch.Tensor
_ids = itertools.count()


PIECEWISE = frozenset("""
    tensor_split hsplit vsplit dsplit lstm gru rnn_tanh rnn_relu lstm_cell meshgrid broadcast_tensors
    atleast_1d atleast_2d atleast_3d gradient func_grad_and_value func_vjp func_jvp linearize functionalize vmap
""".split())
"""Calls whose outputs have a node each in torch, so that each calls its hooks where it is reached itself."""


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
        self.joined: OrderedDict[int, Any] | None = None
        """Those of the tensor before another shape was given to it, which later ones join, as in torch."""
        self.retain = False
        self.owner: Any = None              # weakly, the tensor whose gradient is retained
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()
        self.outputs: list[tuple[int, NodeHooks]] = []
        """Number and hooks of each output that has some, where the operation has several outputs."""


def heard(value: Any = None) -> Any:
    """Let the runs of the graph that records here write `.grad` in torch's order: a hook of a leaf sees it."""
    tape: Any = thread_state.get_active()
    if tape is not None:
        tape.heard = True
    return value


def hooks_of(node: Any) -> NodeHooks:
    """The node's hooks, made on first use."""
    if node.hooks is None:
        node.hooks = NodeHooks()
        call = common_node(node)
        if call is not None:
            hooks_of(call).outputs.append((node.raw_attributes["i"], node.hooks))
    return node.hooks


def common_node(node: Any) -> Any:
    """For one of several outputs of a call, the call, where it is one node in torch; else None."""
    if node.op.name != "output" or not node.operands:
        return None
    call = node.operands[0]
    return None if (call.raw_attributes or {}).get("call", call.op.name) in PIECEWISE else call


def own_node(t: Tensor, node: Any) -> Any:
    """The node whose cotangent is the gradient of `t`: below those of writes without a record."""
    from autograd_opt.graph.view_history import origin
    return origin(handles.handle_of(t) if thread_state.get_active() is not None else node)


def read(t: Tensor) -> Any:
    """The node of `t`; a view whose base has come to require grad is given the one that it has now."""
    from autograd_opt.graph.references import base_requires_grad
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf or node.requires_grad or node.view is None or thread_state.get_active() is None:
        return node
    return handles.handle_of(t) if base_requires_grad(t) else node


def register_tensor_hook(t: Tensor, fn: Callable[[Tensor], Any]) -> Any:
    """`t.register_hook(fn)` inside a context."""
    if (getattr(fn, "__module__", None) or "").startswith("torch.distributed.fsdp"):
        from autograd_opt.graph.refusals import sharded
        raise sharded()
    node = read(t)
    if node is not None and node.op == "view_apart":
        return add(t.__dict__.setdefault("_leaf_hooks", OrderedDict()), fn)     # nothing ever arrives there
    if node is not None and not node.is_leaf:
        if not node.requires_grad:
            raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
        hooks = hooks_of(own_node(t, node))
        return add(hooks.tensor if hooks.joined is None else hooks.joined, fn)
    if t.__dict__.get("_requires_grad"):
        return heard(add(t.__dict__.setdefault("_leaf_hooks", OrderedDict()), fn))
    if "_requires_grad" in t.__dict__ or not t.requires_grad:
        raise errors.GraphError(errors.at("cannot register a hook on a tensor that doesn't require gradient"))
    with private.DisableTorchFunction():
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
    with private.DisableTorchFunction():
        return heard(REGISTER_POST_ACCUMULATE(t, fn))


def retain_grad(t: Tensor) -> None:
    """`t.retain_grad()` inside a context."""
    from autograd_opt.graph import references
    node = t.__dict__.get("_node")
    if node is None or node.is_leaf or not node.requires_grad:
        if not references.requires_grad(t):
            raise errors.GraphError(errors.at("can't retain_grad on Tensor that has requires_grad=False"))
        if references.has_history(t):
            with private.DisableTorchFunction():
                t.retain_grad()                 # torch's engine, which goes on from here, comes by
        return                                  # a leaf, or a view that nothing has read since its base requires grad
    if node.op == "view_apart" or t.__dict__.get("_retains_grad"):
        return                                  # a reshaped tensor goes on retaining the gradient of its old shape
    hooks = hooks_of(own_node(t, node))
    hooks.retain, hooks.owner = True, weakref.ref(t)
    t.__dict__["_retains_grad"] = True      # also when a write under no_grad moves it to a newer node


def torch_retains(t: Tensor) -> Any:
    """torch's node that computed `t`, if that is to retain its gradient."""
    with private.DisableTorchFunction():
        return t.grad_fn if t.retains_grad else None


def take_over_retention(t: Tensor, node: Any, former: Any) -> None:
    """Let `node`, to which a write has moved `t`, retain its gradient, as torch's node `former` of the old value would.

    torch moves its retention with a write of its own.  Of this one it knows nothing, and goes on to retain the gradient
    of the old value: a hook of its node puts the right one back.
    """
    hooks = hooks_of(node)
    hooks.retain, hooks.owner = True, weakref.ref(t)
    t.__dict__["_retains_grad"] = True
    t.__dict__["_retained_here"] = None     # from a run of this library's until torch's goes on from it

    def put_back(_: Any, owner: Any = hooks.owner) -> None:
        written = owner()
        if written is not None and written.__dict__["_retained_here"] is not None:
            written.grad, written.__dict__["_retained_here"] = written.__dict__["_retained_here"], None

    former.register_prehook(put_back)


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
