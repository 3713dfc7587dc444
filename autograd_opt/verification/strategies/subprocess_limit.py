"""Work that may hang, in a process of its own that is ended in time.

sympy has no limit of its own; whatever it does with a user's graph runs here.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Late(Exception):
    """No answer in time, or the process ended without one."""


def results(fn: Callable[[Any], Any], items: Iterable[Any], seconds: float, each: bool = False) -> Iterator[Any]:
    """fn of each item, in a child process, all within `seconds`; `each`: every one within as many.

    Raises
    ------
    Late : the next result did not come in time, or `fn` failed; those before it did.
    """
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    items = list(items)
    child = context.Process(target=_work, args=(sender, fn, items), daemon=True)
    with warnings.catch_warnings():          # Python 3.12 warns where there are threads, torch's own among them
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    sender.close()
    try:
        for _ in items:
            deadline = time.monotonic() + seconds if each else deadline
            try:
                if not receiver.poll(max(0.0, deadline - time.monotonic())):
                    raise Late(f"no answer in {seconds:g} s")
                failed, value = receiver.recv()
            except EOFError:
                child.join()
                raise Late("no answer in its processor time" if child.exitcode == -signal.SIGXCPU
                           else "the process ended without an answer") from None
            if failed:
                raise Late(value)
            yield value
    finally:
        child.kill()
        child.join()
        receiver.close()


def _work(sender: Any, fn: Callable[[Any], Any], items: list[Any]) -> None:
    for item in items:
        try:
            sender.send((False, fn(item)))
        except Exception as error:  # what goes wrong there is said here
            sender.send((True, f"{type(error).__name__}: {error}"))
            break
    sender.close()
