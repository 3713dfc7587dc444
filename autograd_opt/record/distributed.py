"""DistributedDataParallel inside a context: refused, as its gradients would stay each process's own.

Its reducer waits for hooks on torch's AccumulateGrad nodes, which only torch's own engine calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import thread_state


def install() -> None:
    """Put the refusal in place; done once at import."""
    private.replace("data_parallel_forward", refusing(private.entry_point("data_parallel_forward")))


def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a `DistributedDataParallel` does before its forward, without what contexts cannot do."""
    @functools.wraps(original)
    def before_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and thread_state.get_recording() is not None and torch.is_grad_enabled() \
                and self.require_backward_grad_sync and not private.reduces_in_python(self):
            raise errors.UnsupportedError(errors.at(
                "DistributedDataParallel called in an AutogradGraph: its reducer waits for torch's own engine, and "
                "gradients would not be averaged over processes. Call model.module(...) instead, and average each "
                "parameter's .grad after backward(): torch.distributed.all_reduce(p.grad), then divide by the number "
                "of processes; in model.no_sync() and torch.no_grad() it may be called"
            ))
        return original(self, *inputs, **kwargs)
    return before_forward
