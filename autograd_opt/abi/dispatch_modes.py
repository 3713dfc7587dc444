"""Dispatch modes of several threads at once, after which torch's notes are what they were."""

from __future__ import annotations

from typing import Any

from torch.utils import _python_dispatch

from autograd_opt._common.locks import lasting_lock
from autograd_opt.abi import torch_private as private

NOTES = [name for name in ("_is_in_torch_dispatch_mode", "_is_in_non_infra_torch_dispatch_mode",
                           "_is_in_any_mode_without_ignore_compile_internals") if hasattr(_python_dispatch, name)]
"""Where torch notes, once for all threads, that a mode is entered."""


def notes() -> dict[str, bool]:
    """What torch has noted."""
    return {name: getattr(_python_dispatch, name) for name in NOTES}


def note(noted: dict[str, bool]) -> None:
    """Let torch note this."""
    for name, value in noted.items():
        setattr(_python_dispatch, name, value)
    tell = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
    if tell is not None:
        tell(noted.get(NOTES[-1], False))


LAZY = [getattr(private.DispatchKey, name) for name in ("Conjugate", "Negative", "ZeroTensor")]


class LazyValues:
    """`with` this, a handler of a dispatch mode calls operators: torch computes lazy conjugates, negatives and zeros.

    In a handler torch has switched that off, so that an operator made of others reads their memory for their values
    (`torch.linalg.pinv` of complex numbers, for one).
    """

    def __enter__(self) -> None:
        self.guards = [private.set_excluded(key, False) for key in LAZY]
        for guard in self.guards:
            guard.__enter__()

    def __exit__(self, *exc: object) -> None:
        for guard in reversed(self.guards):
            guard.__exit__(*exc)


class ThreadedMode(_python_dispatch.TorchDispatchMode):
    """A dispatch mode that threads may enter at the same time.

    Each mode puts the notes back to what it found, so that a thread that enters second and leaves last leaves a note
    that says a mode is entered for ever. The last of these modes puts back what the first one found.
    """

    _lock: Any = lasting_lock()
    _entered = 0
    _overlapped = False
    _before: dict[str, bool]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The handler is called as it is: torch's wrapper would import its compiler, which takes a second."""
        return False

    def __enter__(self) -> Any:
        with self._lock:
            if not ThreadedMode._entered:
                ThreadedMode._before, ThreadedMode._overlapped = notes(), False
            ThreadedMode._overlapped |= ThreadedMode._entered > 0
            ThreadedMode._entered += 1
            return super().__enter__()

    def __exit__(self, *exc: Any) -> Any:
        with self._lock:
            result = super().__exit__(*exc)
            ThreadedMode._entered -= 1
            if not ThreadedMode._entered and ThreadedMode._overlapped:
                note(ThreadedMode._before)
            return result
