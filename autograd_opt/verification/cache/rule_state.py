"""What a user's rule reads besides its arguments, where that can be told: a proof holds while it is the same.

Of a function this is what its closure, its defaults and the globals that it names hold.  All of it has to be numbers,
text, types, torch's functions, or other such functions.  Whatever else a rule is or reads may change unseen.
"""

from __future__ import annotations

import builtins
import dis
import functools
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from autograd_opt.abi import torch_private as private
from autograd_opt.verification.program.attribute_encoding import encode

LIBRARIES = frozenset({"torch", "math", "operator", "numpy", "autograd_opt"})
"""Modules whose functions are taken to stay what they are."""
UNSEEN = frozenset({"eval", "exec", "globals", "locals", "vars", "open", "input", "__import__", "id", "memoryview"})
"""Built-in functions by which a rule reads what its names do not tell."""


class Unreadable(Exception):
    """A rule reads something that may change unseen."""


def state_of(op: Any) -> tuple[Any, ...] | None:
    """What the rules and the meaning of a user's operator read; None where that cannot be told.

    >>> from types import SimpleNamespace as Of
    >>> op = lambda rule: Of(vjps=[Of(fn=rule)], joint=None, meaning=None)
    >>> a = 2.0
    >>> state_of(op(lambda g: g * a)) is None
    False
    """
    functions = [v.fn for v in (*op.vjps, op.joint) if v is not None]
    functions += [op.meaning] if op.meaning is not None else []
    try:
        return tuple([of(fn, []) for fn in functions])
    except Unreadable:
        return None


def of(value: Any, above: list[Any]) -> Any:
    """The state of a value; `above` are the functions that it is read by.

    Raises
    ------
    Unreadable : it may change unseen.
    """
    if isinstance(value, FunctionType):
        return value.__module__, value.__qualname__ if library(value.__module__) and not value.__closure__ else \
            of_function(value, above)
    if isinstance(value, (type, BuiltinFunctionType, MethodDescriptorType)):
        return id(value)
    if isinstance(value, ModuleType):
        if not library(value.__name__):
            raise Unreadable(value.__name__)
        return value.__name__
    if isinstance(value, (private.OpOverload, private.OpOverloadPacket)):
        return str(value)
    try:
        return encode(value, typed=True)
    except (TypeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def library(module: Any) -> bool:
    return str(module).partition(".")[0] in LIBRARIES


def of_function(fn: FunctionType, above: list[Any]) -> Any:
    """The state of a function of the user's."""
    if fn in above:
        return above.index(fn)
    above = [*above, fn]
    try:
        cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    except ValueError:
        raise Unreadable("an empty cell") from None
    reads: list[Any] = [*cells, *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    reads += [fn.__globals__[name] for name in names_in(fn.__code__) if name in fn.__globals__]
    return fn.__code__, tuple([tuple([of(v, above) for v in r]) if type(r) in (tuple, list) and any(
        callable(v) for v in r) else of(r, above) for r in reads])


@functools.lru_cache(1024)
def names_in(code: CodeType) -> tuple[str, ...]:
    """The globals that a function and those within it name.

    Raises
    ------
    Unreadable : it imports, writes globals, or reads what is not named.
    """
    found: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "STORE_ATTR"):
            raise Unreadable(instruction.opname)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = str(instruction.argval)
            if name in UNSEEN and hasattr(builtins, name):
                raise Unreadable(name)
            found.append(name)
    inner: Iterable[CodeType] = [c for c in code.co_consts if isinstance(c, CodeType)]
    return tuple(dict.fromkeys([*found, *[name for c in inner for name in names_in(c)]]))
