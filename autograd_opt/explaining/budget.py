"""What watching costs, and the timer that takes the mode off when it costs too much."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from autograd_opt._common.callsite import TORCH
from autograd_opt.abi import interpreter

TICK = 0.02
"""Seconds of processor time between two looks at the budget."""
DISPATCH = tuple(TORCH + name for name in (
    f"_library{os.sep}", f"_dynamo{os.sep}", "_ops.py", "_compile.py", f"utils{os.sep}_python_dispatch.py"))
"""Files of torch whose functions it may call between taking a mode off and calling its handler."""


def inside_dispatch(frame: FrameType | None, handler: CodeType) -> bool:
    """Is an operation being dispatched in this chain of frames?"""
    while frame is not None:
        if frame.f_code is handler or frame.f_code.co_filename.startswith(DISPATCH):
            return True
        frame = frame.f_back
    return False


_asked: list[Any] = []


class Timer:
    """Looks at the budget now and then, between two steps of the program's own Python.

    A signal of processor time does it, which no sleeping or waiting program notices; in other
    threads than the main one, or where the program uses that signal itself, the mode stays on.
    `soon` does not wait for the signal: it asks the interpreter for the next such moment.
    """

    def __init__(self, look: Callable[[FrameType | None], None], handler: CodeType) -> None:
        self.look, self.handler = look, handler
        self.asked = False
        self.pending = interpreter.pending_call(self.wake)
        self.old: Any = None
        self.active = False

    def start(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGVTALRM) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            return
        self.old = signal.signal(signal.SIGVTALRM, lambda number, frame: self.look(frame))
        signal.siginterrupt(signal.SIGVTALRM, False)
        signal.setitimer(signal.ITIMER_VIRTUAL, TICK, TICK)
        self.active = True

    def soon(self) -> None:
        """Look at the first moment at which no operation is being dispatched."""
        if self.active and not self.asked:
            self.asked = True
            interpreter.call_soon(self.pending)

    def wake(self, _: Any) -> int:
        """Called by the interpreter between two steps of whatever Python runs."""
        frame = sys._getframe(1) if self.active else None
        if frame is not None and inside_dispatch(frame, self.handler):
            interpreter.call_soon(self.pending)
            return 0
        self.asked = False
        if self.active:
            self.look(frame)
        return 0

    def stop(self) -> None:
        if self.asked:
            _asked.append(self.pending)  # the interpreter may still call it
        if self.active:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self.old)
            self.active = False
