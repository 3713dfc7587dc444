"""DistributedDataParallel inside a context: refused, as its gradients would stay each process's own.

Its reducer waits for hooks on torch's AccumulateGrad nodes, which only torch's own engine calls.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from autograd_opt import errors
from autograd_opt.graph import tape as tapes


def install() -> None:
    """Put the refusal in place; done once at import."""
    original = DistributedDataParallel._pre_forward

    @functools.wraps(original)
    def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and tapes.get_recording() is not None and torch.is_grad_enabled() \
                and self.require_backward_grad_sync and not self._use_python_reducer:
            raise errors.UnsupportedError(errors.at(
                "DistributedDataParallel called in an AutogradGraph: its reducer waits for torch's own engine, and "
                "gradients would not be averaged over processes. Call model.module(...) instead, and average each "
                "parameter's .grad after backward(): torch.distributed.all_reduce(p.grad), then divide by the number "
                "of processes; in model.no_sync() and torch.no_grad() it may be called"
            ))
        return original(self, *inputs, **kwargs)

    DistributedDataParallel._pre_forward = _pre_forward  # type: ignore[method-assign]
