"""Objects that are neither tensors nor modules: whose they are, what they hold, and which cannot be compared."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import os
import pickle
import random
import sys
import threading
import types
import weakref
from _ctypes import CFuncPtr
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LIBRARIES = frozenset({"torch", "numpy", "autograd_opt", "builtins"})
"""Packages whose functions, classes and modules are taken to be as they were, beside Python's own."""
STANDARD = os.path.dirname(os.__file__)
ELSEWHERE = (ctypes._Pointer, CFuncPtr, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p, ctypes.py_object)
"""Classes of objects that hold an address, and nothing of what is there."""
LARGEST_ARRAY = 1 << 16
"""Bytes that are compared before each call, at most."""


@functools.cache
def is_library(package: str) -> bool:
    """True if a package is one of `LIBRARIES`, or of Python's own."""
    if package in LIBRARIES or package not in sys.stdlib_module_names:
        return package in LIBRARIES
    file = getattr(sys.modules.get(package), "__file__", None)       # a program may have a module of that name
    return file is None or file.startswith(STANDARD)


def of_library(name: str | None) -> bool:
    """True if a module, or what is defined in it, belongs to a library."""
    return is_library((name or "").split(".")[0])


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    """A context that does nothing."""
    yield


MANAGER = type(nothing())
"""The class of what a `contextlib.contextmanager` makes; as a decorator it makes another one at each call."""


def state_of_generator(one: Any) -> Callable[[], Any] | None:
    """What tells the state of a generator of random numbers, if `one` is such a generator outside torch."""
    if isinstance(one, random.Random) and not isinstance(one, random.SystemRandom):
        return one.getstate
    if isinstance(one, np.random.Generator):
        return state_of_generator(one.bit_generator)
    if isinstance(one, np.random.RandomState):
        return lambda: pickle.dumps(one.get_state(legacy=False))
    if isinstance(one, np.random.BitGenerator):
        return lambda: pickle.dumps(one.state)
    return None


def contents(one: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], bytes]:
    """All that a small array holds."""
    return one.dtype.str, one.shape, one.tobytes()


def referent(one: weakref.ref[Any]) -> Any:
    """What a weak reference leads to; None when that has gone."""
    return weakref.ref.__call__(one)        # whatever a subclass makes of it


def name_of_referent(one: weakref.ref[Any]) -> int:
    """The address of what a weak reference leads to, which is not held."""
    return id(referent(one))


def reading(one: Any) -> Callable[[], Any] | None:
    """What tells what an object holds besides attributes and elements, if anything does."""
    if isinstance(one, np.ndarray):
        return functools.partial(contents, one)
    if size_of_buffer(one) is not None:
        return functools.partial(bytes, one)
    if isinstance(one, contextvars.ContextVar):
        return functools.partial(one.get, None)
    if isinstance(one, threading.local):
        return functools.partial(of_thread, one)
    return None


def of_thread(one: threading.local) -> list[Any]:
    """The names and values that an object has for the thread that asks."""
    return [part for item in vars(one).items() for part in item]


def size_of_buffer(one: Any) -> int | None:
    """How many bytes an object shows as its memory; None if it shows none."""
    try:
        with memoryview(one) as buffer:
            return buffer.nbytes
    except (TypeError, ValueError, BufferError):
        return None


def incomparable(one: Any) -> str:
    """Why nobody can tell whether an object is as it was; empty if somebody can."""
    if isinstance(getattr(type(one), "__next__", None), types.WrapperDescriptorType):
        return "an iterator"
    if isinstance(one, memoryview):
        return "a memoryview"
    if isinstance(one, random.SystemRandom):
        return "a generator of random numbers without a state"
    if isinstance(one, np.ndarray) and one.dtype.hasobject:
        return "an array of Python objects"
    if isinstance(one, ELSEWHERE):
        return "memory by an address"
    if type(one) in weakref.ProxyTypes:
        return "a weak proxy"
    if (one.nbytes if isinstance(one, np.ndarray) else size_of_buffer(one) or 0) > LARGEST_ARRAY:
        return "a large array"
    return ""
