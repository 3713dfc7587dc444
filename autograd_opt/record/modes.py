"""Modes that torch keeps to itself, and torch's helpers that bypass torch functions.

Installing saved-tensor hooks does not pass through any torch function, so entering and
leaving `saved_tensors_hooks` tells the active graph here, per thread.  The hooks may be
called by torch itself, inside one opaque call; they then find the graph's modes in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_map
from autograd_opt.graph import runs, thread_state
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.record import context, saved_tensors
from autograd_opt.record.guard import without_modes


class ThreadState(NamedTuple):
    """What a run that moves to another thread takes along."""

    grad_mode: bool
    hooks: tuple[Any, Any] | None
    graph: Any
    runs: list[Any]
    paused: bool


def state_of_thread() -> ThreadState:
    """The calling thread's modes, as far as a backward run depends on them."""
    return ThreadState(
        private.is_grad_enabled(), private.top_saved_tensors_default_hooks(False),
        context.innermost_graph(), list(runs.stack()), thread_state.get_recording() is None,
    )


@contextmanager
def restored(state: ThreadState, tape: Any) -> Iterator[None]:
    """Put `state` in place in a new thread; `runs` are known, but count anew for the depth."""
    from autograd_opt.record.dispatch import MODE
    context.set_innermost_graph(state.graph)
    thread_state.set_active_tape(tape)
    thread_state.set_saving_hooks(int(state.hooks is not None))
    try:
        with private.AutoDispatchBelowAutograd(), MODE, torch.set_grad_enabled(state.grad_mode):
            if state.hooks is None:
                yield
            else:
                private.push_saved_tensors_default_hooks(*state.hooks)
                try:
                    yield
                finally:
                    private.pop_saved_tensors_default_hooks()
    finally:
        thread_state.set_active_tape(None)
        context.set_innermost_graph(None)


def install() -> None:
    """Let `saved_tensors_hooks` and its subclasses report to the active graph."""
    def __enter__(self: Any) -> None:
        saved_tensors.ENTERED.enter(saved_tensors.AtHome(self.pack_hook), saved_tensors.AtHome(self.unpack_hook))

    def __exit__(self: Any, *exc: Any) -> None:
        saved_tensors.ENTERED.leave()

    saved_tensors_hooks.__enter__ = __enter__  # type: ignore[method-assign]
    saved_tensors_hooks.__exit__ = __exit__  # type: ignore[method-assign]
    checkpoint.SavedTensor = (checkpoint.SavedTensor, saved_tensors.SavedTensor)  # type: ignore[assignment, attr-defined]
    private.replace("checkpointed_tensor", saved_tensors.make_saved_tensor(private.entry_point("checkpointed_tensor")))
    for name in TRACERS:
        private.replace(name, unrecorded(private.entry_point(name)))


# torch.jit.trace takes down what torch itself calls: every call, also one that a graph would not compute again.
TRACERS = ("trace_function", "trace_function_with_names", "trace_graph", "trace_method", "trace_method_with_names")


def unrecorded(trace: Callable[..., Any]) -> Callable[..., Any]:
    """`trace`, which runs the function it is given as outside any context, on torch's own tensors.

    Tensors of a graph that the function closes over refuse to be constants (`tensor.outside`), as torch's do.
    """
    @functools.wraps(trace)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(plain, args), tree_map(plain, kwargs)
        if thread_state.get_recording() is None:
            return trace(*args, **kwargs)
        from autograd_opt.graph.thread_state import torch_autograd
        with torch_autograd(private.is_grad_enabled(), functions=True), without_modes():
            return trace(*args, **kwargs)
    return call


def plain(t: Any) -> Any:
    """A tensor of a graph as one of torch's own, on the same memory."""
    if type(t) is not CustomTensor:
        return t
    return t.detach().as_subclass(torch.Tensor).requires_grad_(t.requires_grad)
