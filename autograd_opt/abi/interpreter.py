"""What CPython offers to C alone: calls between two steps of the interpreter, and exceptions in another thread."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Any


def pending_call(function: Callable[[Any], int]) -> Any:
    """The function as `call_soon` takes it; it must live until it was called."""
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)


def call_soon(pending: Any) -> None:
    """Let the main thread call it between two steps of the interpreter (`Py_AddPendingCall`)."""
    ctypes.pythonapi.Py_AddPendingCall(pending, None)


def raise_in_thread(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception of this class at the next step of another thread (`PyThreadState_SetAsyncExc`)."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


# ----- asyncio -----
HANDLE: Any = asyncio.Handle


def loop_step() -> Any:
    """What an event loop calls to run one of its handles."""
    return HANDLE._run


def replace_loop_step(function: Any) -> None:
    """Let event loops run their handles by another function, in every thread."""
    HANDLE._run = function


def context_of(handle: Any) -> Any:
    """The `contextvars.Context` in which a handle of an event loop runs: for a step of a task the task's own."""
    return handle._context
