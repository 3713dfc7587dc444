"""A thread's state around calls that torch itself differentiates: no recording, autograd's dispatch keys in or out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import tape as tapes


class torch_autograd:
    """Inside a context: torch's own autograd for one call, no recording, no torch functions.

    With `functions=True` torch functions stay seen, for a mode that the caller puts in place.
    """

    __slots__ = ("functions", "grad", "guard", "included", "mode", "old")

    def __init__(self, grad: bool = True, functions: bool = False):
        self.grad, self.functions = grad, functions

    def __enter__(self) -> None:
        self.old = tapes.pause()
        self.guard = private.EnableTorchFunction() if self.functions else private.DisableTorchFunction()
        self.guard.__enter__()
        self.included = included_autograd()
        self.included.__enter__()
        self.mode = private.is_grad_enabled()
        private.set_grad_enabled(self.grad)

    def __exit__(self, *exc: Any) -> None:
        private.set_grad_enabled(self.mode)
        self.included.__exit__(*exc)
        self.guard.__exit__(*exc)
        tapes.resume(self.old)


_without: dict[int, Any] = {}


def included_autograd() -> Any:
    """A guard that undoes, for a while, the exclusion of autograd's dispatch keys."""
    exclude = private.dispatch_tls_local_exclude_set()
    raw = exclude.raw_repr()
    without = _without.get(raw)
    if without is None:
        without = exclude
        for key in AUTOGRAD_KEYS:
            without = without.remove(key)
        _without[raw] = without
    return private.ForceDispatchKeyGuard(private.dispatch_tls_local_include_set(), without)


@contextmanager
def excluded_autograd() -> Iterator[None]:
    """Inside a context: exclude autograd's dispatch keys again, where an opaque call had included them."""
    exclude = private.dispatch_tls_local_exclude_set()
    for key in AUTOGRAD_KEYS:
        exclude = exclude.add(key)
    with private.ForceDispatchKeyGuard(private.dispatch_tls_local_include_set(), exclude):
        yield


AUTOGRAD_KEYS = [k for name, k in private.DispatchKey.__members__.items() if name.startswith("Autograd")]
