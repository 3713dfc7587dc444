"""Locks that a process made by `os.fork` can take, too."""

from __future__ import annotations

import os
import threading
from typing import Any


def lasting_lock() -> Any:
    """A lock that its holder may take again: a finalizer or a signal may call the same code in the middle of it.

    A fork waits for whoever holds it, so the child finds it free, and what it guards whole; else a worker process
    would wait for ever for a thread that it does not have.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
