"""All that programs are built from and proofs rest on, as one hash: the operator table, rules, meanings, linearity.

Functions are told by their code, as it is loaded, and by all that this reads; functions of torch's by their names, as
long as they are torch's own.  The hash is taken once and anew when a table has changed.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType, MethodWrapperType, ModuleType, WrapperDescriptorType
from typing import Any

import torch

from autograd_opt.ops.table import BINDERS, CALLS, OPS
from autograd_opt.recorder import Constant
from autograd_opt.structure import dict_versions, seen_by_proofs
from autograd_opt.verify import identities, linear, rules, words
from autograd_opt.verify.bits import encode
from autograd_opt.verify.fingerprints import OWN, Unclear
from autograd_opt.verify.kernels import KERNELS
from autograd_opt.verify.meaning import MEANING, PULLBACKS

Stamp = tuple[Any, ...]
_latest: list[tuple[Stamp, World]] = []


class World:
    """The hash, and what each operator was when it was taken; `clear` are those that it tells apart."""

    def __init__(self, told: str, clear: dict[Any, tuple[Any, ...]]):
        self.told, self.clear = told, clear

    def tells(self, ops: Iterable[tuple[Any, ...]]) -> bool:
        """Are these operators, with the rules and meanings that a proof has read, all in it?"""
        return all(self.clear.get(op[0]) == op for op in ops)


def forget() -> None:
    """As in a new process."""
    _latest.clear()


def world() -> World | None:
    """What proofs rest on now; None where that cannot be said."""
    now = stamp()
    if not _latest or _latest[0][0] != now:
        _latest[:] = [(now, taken())]
    return _latest[0][1] if _latest[0][1].told else None


PLAIN: tuple[dict[Any, Any], ...] = (
    linear.LINEAR, linear.JOINTLY, words.SAME, words.SWAPPED, words.CREATORS, rules.VIEWS, identities.UNITS)
TABLES: tuple[dict[Any, Any], ...] = (
    OPS, CALLS, BINDERS, MEANING, PULLBACKS, KERNELS, words.WORDS, *PLAIN)


def stamp() -> Stamp:
    """What is in the tables: as long as it is the same, so is their hash."""
    versions = dict_versions(TABLES)
    return versions if versions[0] else tuple([(*t.keys(), *t.values()) for t in TABLES])


def what(op: Any) -> tuple[Any, ...]:
    """An operator with its rules and meaning, as `seen_by_proofs` lists them."""
    return (op, *op.vjps, op.meaning)


def taken() -> World:
    reader = Reader()
    clear: dict[Any, tuple[Any, ...]] = {}
    for name, op in list(OPS.items()):       # another thread may be registering one
        begun = len(reader.lines)
        try:
            reader.operator(name, op)
            clear[op] = what(op)
        except Unclear:
            del reader.lines[begun:]
            reader.lines.append(f"not told {name}")
    told = {op.name for op in clear}
    for called, to in list(CALLS.items()):
        reader.lines.append(f"{name_of(called)} is {to if isinstance(to, str) else name_of(to)}")
        if isinstance(to, str) and to not in told and not foreign(called):
            return World("", {})        # what the library's rules call may have no meaning that is told
    for table in PLAIN:
        reader.lines.append(repr(table))
    reader.lines.append(repr([(name, *signature[:2]) for name, signature in words.WORDS.items()]))
    for names in (linear.FOR_ALL_SIZES, linear.TRUSTED, linear.COMMUTATIVE, linear.VIEWED, words.ADDS_TO,
                  identities.SAME_TYPE, identities.ONES):
        reader.lines.append(repr(sorted(names)))
    try:
        reader.torchs_own()
    except Unclear:
        return World("", {})
    return World(hashlib.sha256("\n".join(reader.lines).encode()).hexdigest(), clear)


def foreign(called: Any) -> bool:
    """Is this a function of the user's own?"""
    return not module_of(called).startswith(("torch", OWN)) and type(called).__name__ == "function"


def module_of(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "")


def name_of(value: Any) -> str:
    """Kind, module and name; of what has no name, how it is written where that is no address."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or str(value)
    return f"{type(value).__name__} {module_of(value)} {name if ' at 0x' not in name else ''}"


class Reader:
    """Spells what it is given, line by line; what it has met before, by the number of that."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.met: dict[int, tuple[int, Any]] = {}       # the second keeps its address from being given out again
        self.names: set[str] = set()

    def operator(self, name: str, op: Any) -> None:
        """An operator's line in each table, and the code behind it."""
        lines = self.lines
        lines.append(f"operator {name} {op.name} {op.id} {op.operands} {op.flags}")
        for k, v in op.attributes.items():
            lines.append(f"{k} {encode(v)}")
        for vjp in (*op.vjps, op.joint):
            if vjp is None:
                lines.append("no rule")
            else:
                lines.append(f"rule {vjp.codes} {vjp.attributes}")
                self.value(vjp.fn)
        for fn in (op.meaning, MEANING.get(name), PULLBACKS.get(name), KERNELS.get(name), BINDERS.get(name),
                   CALLS.get(op.forward) if op.forward is not None else None):
            self.value(fn)

    def value(self, value: Any) -> None:
        """Whatever code reads.

        Raises
        ------
        Unclear : it cannot be told from another of its name.
        """
        kind = type(value)
        if value is None or kind in SIMPLE:
            self.lines.append(encode(value))
            return
        known = self.met.get(id(value))
        if known is not None:
            self.lines.append(f"again {known[0]}")
            return
        self.met[id(value)] = len(self.met), value
        if kind is FunctionType:
            self.function(value)
        elif kind is tuple or kind is list:
            self.lines.append(f"{kind.__name__} {len(value)}")
            for v in value:
                self.value(v)
        elif kind is dict:
            self.lines.append(f"dict {len(value)}")
            for k, v in value.items():
                self.value(k)
                self.value(v)
        elif kind is set or kind is frozenset:
            self.lines.append(f"set {sorted(map(repr, value))}")
        elif kind is slice or kind.__module__ in ("torch", "fractions", "re"):
            self.lines.append(f"{kind.__name__} {value!r}" if " at 0x" not in repr(value) else self.unclear(value))
        elif (kind is ModuleType or kind in NATIVE or kind.__module__.startswith(("torch", "numpy"))
              or kind in (COMPILED, Constant)):
            self.lines.append(f"named {name_of(value)}")
        elif isinstance(value, type):
            self.lines.append(f"named {name_of(value)}")
            if module_of(value).startswith(OWN):
                for k, v in vars(value).items():
                    if type(v) is FunctionType:
                        self.lines.append(k)
                        self.function(v)
        elif hasattr(value, "__wrapped__"):
            self.lines.append(f"kept {name_of(value)}")
            self.value(value.__wrapped__)
        elif kind is type(OPS["add"]):
            self.lines.append(f"operator {value.name}")
        else:
            self.unclear(value)

    def unclear(self, value: Any) -> str:
        raise Unclear(value)

    def function(self, fn: Any) -> None:
        """Code, defaults, and what is closed over."""
        made_here = fn.__code__.co_filename == "<string>" and not module_of(fn)      # a binder
        if not (module_of(fn).startswith(OWN) or made_here):
            if not module_of(fn).startswith("torch"):
                self.unclear(fn)
            self.lines.append(f"named {name_of(fn)} {fn.__code__.co_code!r}")
            return
        self.lines.append(f"function {fn.__module__} {fn.__qualname__}")
        self.code(fn.__code__, fn.__globals__)
        for v in (*(fn.__defaults__ or ()), fn.__kwdefaults__):
            self.value(v)
        for cell in fn.__closure__ or ():
            self.value(cell.cell_contents)

    def code(self, code: CodeType, names: dict[str, Any]) -> None:
        """Instructions and constants, and what they read from their module or from another of the library's."""
        self.lines.append(f"code {code.co_code!r} {code.co_varnames} {code.co_freevars} {code.co_names} "
                          f"{code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}")
        for constant in code.co_consts:
            if type(constant) is CodeType:
                self.code(constant, names)
            else:
                self.value(constant)
        self.names.update(code.co_names)
        for name in code.co_names:
            if name in names:
                value = names[name]
                self.value(value)
                if type(value) is ModuleType and value.__name__.startswith(OWN):
                    for inner in code.co_names:
                        if inner in vars(value):
                            self.value(vars(value)[inner])

    def torchs_own(self) -> None:
        """What these names call in torch.

        Raises
        ------
        Unclear : it is a function of somebody else.
        """
        for place in (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.special, torch.fft):
            for name in sorted(self.names):
                value: Any = getattr(place, name, None)
                kind: Any = type(value)
                if kind is FunctionType:
                    if not value.__code__.co_filename.startswith(TORCH):
                        self.lines.append(f"in place of torch's {name}")
                        self.function(value)
                elif callable(value) and not (isinstance(value, type) or kind in NATIVE
                                              or kind.__module__.startswith("torch") or kind is COMPILED):
                    self.unclear(value)


SIMPLE = frozenset({bool, int, float, str, complex, type(Ellipsis), torch.dtype, torch.device, torch.Size})
NATIVE = frozenset({type(len), type("".join), type(str.join), type(dict.__dict__["fromkeys"]), MethodWrapperType,
                    WrapperDescriptorType})
COMPILED: Any = type(seen_by_proofs)
TORCH = sys.modules["torch"].__path__[0]
