"""Saved-tensor hooks: what `torch.autograd.graph.saved_tensors_hooks` does to values saved here.

While a pair of hooks is on, every tensor that a rule saves goes through the pack hook when
the operation is recorded, and through the unpack hook when a backward run reads it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import nullcontext
from operator import is_not
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_map
from autograd_opt.graph import handles, refusals, runs
from autograd_opt.graph import tape as tapes
from autograd_opt.graph.tensor import connected
from autograd_opt.record.guard import user_state

Tensor = torch.Tensor


class Entered(threading.local):
    """The pairs of saved-tensor hooks that are on in a thread, the innermost last."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = []

    def enter(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        private.push_saved_tensors_default_hooks(pack_hook, unpack_hook)
        self.pairs.append((pack_hook, unpack_hook))
        tapes.set_saving_hooks(1)

    def leave(self) -> None:
        private.pop_saved_tensors_default_hooks()
        if self.pairs:
            self.pairs.pop()
        # torch's own stack says whether one is left: pairs may also be pushed and popped past these methods
        tapes.set_saving_hooks(int(private.top_saved_tensors_default_hooks(True) is not None))

    def changed(self, before: list[Any], task: Any) -> None:
        """Note the pairs from before user code that has changed them: the end of its node brings them back."""
        now = self.pairs
        if (before or now) and task.pairs is None and (len(before) != len(now) or any(map(is_not, before, now))):
            task.pairs = before

    def restore(self, before: list[Any]) -> None:
        """What user code called in a run has entered or left is undone, as in torch."""
        same = 0
        while same < len(before) and same < len(self.pairs) and before[same] is self.pairs[same]:
            same += 1
        while len(self.pairs) > same:
            self.leave()
        for i in range(same, len(before)):
            self.enter(*before[i])
            self.pairs[i] = before[i]


ENTERED = Entered()


class Packed:
    """What a pack hook returned, and whose value it stands for."""

    __slots__ = ("held", "node", "unpack")

    def __init__(self, unpack: Callable[[Any], Any], held: Any, node: Any):
        self.unpack, self.held, self.node = unpack, held, node

    def value(self) -> Tensor:
        """Ask the unpack hook; under `create_graph` the result is connected to its node."""
        run = runs.current()
        recorded = run is not None and run.task.create_graph and self.node is not None and self.node.requires_grad
        t = self.plain()
        return connected(t, self.node) if recorded else t

    def seen_by_user(self) -> Tensor:
        """What `ctx.saved_tensors` shows: it belongs to its node in every kind of run, as in torch."""
        t = self.plain()
        return connected(t, self.node) if self.node is not None and self.node.requires_grad else t

    def plain(self) -> Tensor:
        """What the unpack hook gives; the same for every slice of a batch."""
        run = runs.current()
        with user_state(), run.task.batch.left() if run is not None and run.task.batch is not None else nullcontext():
            t = self.unpack(self.held)
        if not isinstance(t, Tensor):
            raise errors.ArgumentTypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}"
            )
        return t


class SavedTensor:
    """A tensor that torch's own Python code saves (the arguments of a checkpoint)."""

    def __init__(self, t: Tensor):
        self.node = handles.handle_of(t)
        self.version = handles.version(t)
        self.packed = pack(t, self.node)
        if type(self.packed) is not Packed:                 # it is held here, and by the graph once it is used
            self.node.tape.let_go_unread((self.node,))

    def unpack(self) -> Tensor:
        """The tensor, or what the hooks made of it, connected to its node."""
        if type(self.packed) is not Packed:
            if handles.version(self.packed) != self.version:
                raise errors.InplaceError(errors.at(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    "an argument of a checkpoint. Write to a clone() instead"
                ))
            return self.packed
        t = self.packed.plain()
        return connected(t, self.node) if self.node.requires_grad else t


def make_saved_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original` outside any context, this module's class inside."""
    def make(t: Tensor, is_output: bool) -> Any:
        if tapes.get_recording() is None:
            return original(t, is_output)
        if t.is_inference():
            raise refusals.inference_saved()
        return SavedTensor(t)
    return make


def pack(t: Any, node: Any, is_output: bool = False) -> Any:
    """Hand `t`, whose node is `node`, to the innermost pack hook; `t` itself where there is none."""
    hooks: Any = private.top_saved_tensors_default_hooks(False)
    if hooks is None:
        return t
    before = handles.version(t)
    given = t.detach() if is_output else t
    with user_state():
        private.set_grad_enabled(False)
        held = hooks[0](given)
    if handles.version(t) != before:
        raise errors.GraphError(errors.at(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot "
            "be modified by in-place operations as this can lead to unexpected side-effects: write to a clone()"
        ))
    return Packed(hooks[1], held, node)


@functools.cache
def saving_order(name: str, count: int) -> tuple[int, ...]:
    """In which order torch saves the tensors among the first `count` operands of an operator: by their names."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in () if packet is None else packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        names = [a.name for a in arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]
        if len(names) >= count:
            return tuple(sorted(range(count), key=names.__getitem__))
    return tuple(range(count))


def pack_extra(extra: Any) -> Any:
    """Pack the tensors that a kernel saved for its rule besides its operands."""
    return tree_map(lambda e: pack(e, None) if isinstance(e, Tensor) else e, extra)


def unpack_extra(extra: Any) -> Any:
    """What `pack_extra` was given."""
    if isinstance(extra, (tuple, list)):
        return type(extra)(unpack_extra(e) for e in extra)
    return extra.value() if type(extra) is Packed else extra
