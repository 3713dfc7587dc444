"""A new process, without the time that one takes to start."""

from __future__ import annotations

from autograd_opt.optimizer.plan_cache import PLANS
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.rewrites import rewrites


def new_process():
    """Forget what lives as long as a process."""
    rewrites.KNOWN.clear()
    memory_cache.forget()
    PLANS.clear()
