"""A new process, without the time that one takes to start."""

from __future__ import annotations

from autograd_opt.plans import PLANS
from autograd_opt.verify import known, lasting, rewrites, world


def new_process():
    """Forget what lives as long as a process; what waits to be written is lost."""
    rewrites.KNOWN.clear()
    rewrites.READ.clear()
    known.forget()
    lasting.forget()
    world.forget()
    PLANS.clear()
