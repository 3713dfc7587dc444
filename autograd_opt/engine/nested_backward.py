"""Runs inside runs that would overflow their thread's stack: they go on in a thread of their own."""

from __future__ import annotations

import threading
from typing import Any

from autograd_opt.abi import interpreter
from autograd_opt.record import modes

_local = threading.local()


def on_fresh_thread(function: Any, tape: Any, *args: Any) -> Any:
    """Call `function(tape, *args)` on a thread with an empty stack, under this thread's modes; wait for it.

    An interrupt ends the innermost run first: two threads must not be at one tape, and what has begun here is
    undone when it has been undone there.
    """
    graph = tape.graph()
    here = threading.get_ident()
    state = modes.state_of_thread()
    outcome: list[Any] = []
    done = threading.Event()                # an interrupted `Thread.join` or `is_alive` takes the thread for ended
    waiting: list[int] = getattr(_local, "waiting", [])     # the threads of this chain, innermost last

    def body() -> None:
        _local.waiting = waiting
        waiting.append(threading.get_ident())
        if graph is not None:
            graph.thread = threading.get_ident()
        try:
            with modes.restored(state, tape):
                outcome.append((function(tape, *args), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            waiting.pop()
            done.set()

    thread = threading.Thread(target=body, name="autograd_opt-nested-run")
    thread.start()
    interrupted: BaseException | None = None
    while True:
        try:
            while not done.is_set() and thread in threading.enumerate():
                done.wait(1.0)
            if graph is not None:
                graph.thread = here
            break
        except BaseException as error:      # wherever it has come, also between two waits
            interrupted = error
            raise_in(waiting, error)
    result, failed = outcome[0] if outcome else (None, None)
    if interrupted is not None or failed is not None:
        raise interrupted or failed  # type: ignore[misc]
    return result


def raise_in(waiting: list[int], error: BaseException) -> None:
    """Raise the same in the innermost of these threads."""
    if waiting:
        interpreter.raise_in_thread(waiting[-1], type(error))
