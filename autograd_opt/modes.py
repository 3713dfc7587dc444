"""Modes that torch keeps to itself: saved-tensor hooks are noticed by their own class.

Their installation does not pass through any torch function, so entering and leaving
`saved_tensors_hooks` tells the active graph here, per thread.
"""

from __future__ import annotations

import threading
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from autograd_opt import node as nodes

_local = threading.local()


def hooks_active() -> bool:
    """Are saved-tensor hooks installed in this thread?"""
    return getattr(_local, "depth", 0) > 0


def _shift(by: int) -> None:
    _local.depth = getattr(_local, "depth", 0) + by
    tape = nodes.get_active()
    if tape is not None:
        tape.plain = _local.depth == 0


def install() -> None:
    """Let `saved_tensors_hooks` and its subclasses report to the active graph."""
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    def __enter__(self: Any) -> Any:
        result = enter(self)
        _shift(1)
        return result

    def __exit__(self: Any, *exc: Any) -> Any:
        _shift(-1)
        return leave(self, *exc)

    saved_tensors_hooks.__enter__ = __enter__  # type: ignore[method-assign]
    saved_tensors_hooks.__exit__ = __exit__  # type: ignore[method-assign]
