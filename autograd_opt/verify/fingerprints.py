"""What an operator means, as a hash of its lines in the tables and of the code behind them, as loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from autograd_opt.ops.table import OPS
from autograd_opt.verify.bits import encode
from autograd_opt.verify.kernels import KERNELS
from autograd_opt.verify.meaning import MEANING, PULLBACKS


class Unclear(Exception):
    """Something that a meaning reads cannot be told from another of its name."""


def meaning_of(op: str) -> str:
    """A hash of everything that says what an operator means: its lines in the tables, and the code behind them."""
    h = hashlib.sha256()
    table = OPS.get(op)
    if table is not None:
        names = table.operands, sorted((k, encode(v)) for k, v in table.attributes.items()), table.flags
        h.update(repr(names).encode())
    sources: Iterable[Any] = (MEANING.get(op), PULLBACKS.get(op), *KERNELS.get(op, ()),
                              None if table is None else table.meaning)
    for fn in sources:
        for line in spelled(fn, set()):
            h.update(line.encode() + b"\n")
    return h.hexdigest()


OWN = "autograd_opt."
"""Only what the library itself says about an operator is told by its code; of others nothing is stored."""


def spelled(value: Any, seen: set[int]) -> Iterator[str]:
    """A value that code reads, line by line: functions by their code and all that it reads, the rest by its bits.

    Raises
    ------
    Unclear : it is none of those.
    """
    if isinstance(value, FunctionType):
        if id(value) in seen:
            yield f"again {value.__qualname__}"
            return
        seen.add(id(value))
        if not f"{value.__module__}".startswith(OWN):
            raise Unclear(value)
        yield f"function {value.__module__} {value.__qualname__}"
        yield from spelled_code(value.__code__, value.__globals__, seen)
        for read in (value.__defaults__ or ()), sorted((value.__kwdefaults__ or {}).items()):
            yield from spelled(tuple(read), seen)
        for cell in value.__closure__ or ():
            yield from spelled(cell.cell_contents, seen)
        return
    if isinstance(value, (tuple, list)):
        yield f"{len(value)} values"
        for v in value:
            yield from spelled(v, seen)
        return
    if isinstance(value, (set, frozenset)):
        yield f"set {sorted(map(repr, value))}"
        return
    if isinstance(value, type) or type(value).__name__ in ("module", "builtin_function_or_method"):
        yield f"named {getattr(value, '__module__', '')} {value.__name__}"
        return
    if callable(value) and str(type(value).__module__).startswith(("torch", "numpy", "functools")):
        yield f"named {type(value).__name__} {value!r}" if " at 0x" not in repr(value) else unclear(value)
        return
    try:
        yield encode(value)
    except TypeError:
        if type(value).__module__ != "fractions":
            raise Unclear(value) from None
        yield repr(value)


def unclear(value: Any) -> str:
    raise Unclear(value)


def spelled_code(code: CodeType, names: dict[str, Any], seen: set[int]) -> Iterator[str]:
    """Instructions, constants, and the library's own functions and numbers that they read from their module."""
    yield f"code {code.co_code.hex()} {code.co_varnames} {code.co_freevars} {code.co_names} {code.co_argcount}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from spelled_code(constant, names, seen)
        else:
            yield from spelled(constant, seen)
    for name in code.co_names:
        if name in names:
            yield f"global {name}"
            yield from spelled(names[name], seen)
