"""The threads of a watched program: a dispatch mode is of one thread, so each gets one of its own when it starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autograd_opt._common.locks import lasting_lock
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.dispatch_modes import LazyValues
from autograd_opt.abi.torch_private import TorchDispatchMode, pop_mode, push_mode

LOCK = lasting_lock()
"""Held while a watch numbers and counts."""


class Unwrapped(TorchDispatchMode):
    """A mode that torch's compiler neither wraps nor takes into account."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A compiled region stays compiled; its inner operations are not seen."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The handler is called as it is: torch's wrapper around it would cost more than it does."""
        return False


class Beside(Unwrapped):
    """What a watch sees of one thread beside that which entered it."""

    def __init__(self, watch: Any) -> None:
        super().__init__()
        self.watch = watch
        self.course = watch.course()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types or not self.watch.running:
            with LazyValues():
                return func(*args, **(kwargs or {}))
        return self.watch.beside(self.course, func, args, kwargs or {})


class _Followed(threading.local):
    """The watches of this thread, and of those that it starts."""

    watches: tuple[Any, ...] = ()


_followed = _Followed()
_open = 0
_original: Any = None


def follow(watch: Any) -> None:
    """Watch the threads that this one starts, and those that they start."""
    global _open, _original
    _followed.watches = (*(w for w in _followed.watches if w.running), watch)
    with LOCK:
        _open += 1
        if _original is None:
            _original = threading.Thread.start
            threading.Thread.start = _start  # type: ignore[method-assign]


def unfollow() -> None:
    """A watch is left: threads that start from now on are none of its."""
    global _open, _original
    _followed.watches = tuple(w for w in _followed.watches if w.running)
    with LOCK:
        _open -= 1
        if not _open and threading.Thread.start is _start:      # else another has put its own around this one
            threading.Thread.start = _original  # type: ignore[method-assign]
            _original = None


def _start(self: threading.Thread) -> None:
    """`Thread.start`, with the watches of this thread on in the new one."""
    original = _original or START
    watches = tuple(w for w in _followed.watches if w.running)
    if not watches:
        original(self)
        return
    run, own = self.run, vars(self).get("run")

    def restore() -> None:
        if own is None:
            vars(self).pop("run", None)
        else:
            vars(self)["run"] = own

    def watched() -> None:
        restore()
        run_watched(run, watches)

    vars(self)["run"] = watched
    try:
        original(self)
    except BaseException:
        restore()
        raise


def run_watched(run: Callable[[], None], watches: tuple[Any, ...]) -> None:
    """Run with a mode for each of these watches."""
    _followed.watches = watches
    modes = [Beside(w) for w in watches]
    for mode in modes:
        push_mode(mode)
    try:
        run()
    finally:
        n = private.len_torch_dispatch_stack()
        if n >= len(modes) and private.get_dispatch_stack_at(n - 1) is modes[-1]:
            for _ in modes:
                pop_mode()


START = threading.Thread.start
