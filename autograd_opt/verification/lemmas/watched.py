"""Numbers that note what a rule asks of them: sizes and attributes, compared with others or counted with.

A rule is a function of sizes and attributes, too, and may be another one beyond a bound that no instance meets.  So
rules run on numbers that say with which constants they were compared: attributes are drawn on both sides of each, and
of a rule that compares a size with more than 1 nothing is said for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.verification.program.tracer import Tracer

SIZE, DERIVED = "a size", "#"
"""Of what a number is the value; one that was computed from others ends so."""
LARGEST_SMALL = 1
"""Sizes may be compared with this and less: it is whether a dimension broadcasts."""


class Asked:
    """What rules have asked: constants by attribute, and questions that no instance answers."""

    def __init__(self) -> None:
        self.constants: dict[str, set[int | float]] = {}
        self.sizes: set[str] = set()
        self.opaque: set[str] = set()

    def compared(self, of: str, how: str, other: Any) -> None:
        """Note a comparison with a number that is not watched itself."""
        if isinstance(other, (Whole, Real)) or not isinstance(other, (int, float)):
            return
        if of.startswith(SIZE):
            small = other <= LARGEST_SMALL or (other == LARGEST_SMALL + 1 and how in ("<", ">="))
            if not small:
                self.sizes.add(f"{of.rstrip(DERIVED)} {how} {other}")
        elif of.endswith(DERIVED):
            self.opaque.add(f"what is computed of {of.rstrip(DERIVED)} {how} {other}")
        else:
            self.constants.setdefault(of, set()).add(other)


class Whole(int):
    """A whole number that is watched."""

    of: str
    asked: Asked


class Real(float):
    """A number that is watched."""

    of: str
    asked: Asked


def watched(value: Any, of: str, asked: Asked) -> Any:
    """The value, its numbers watched however deep in sequences."""
    kind = type(value)
    if kind is torch.Size:
        return torch.Size([watched(n, of, asked) for n in value])
    if kind is tuple or kind is list:
        return kind([watched(n, of, asked) for n in value])
    if kind is not int and kind is not float:
        return value
    made: Any = (Whole if kind is int else Real)(value)
    made.of, made.asked = of, asked
    return made


def plain(value: Any) -> Any:
    """The value as it was before it was watched."""
    if isinstance(value, (Whole, Real)):
        return (int if isinstance(value, Whole) else float)(value)
    if type(value) is torch.Size:
        return torch.Size([plain(v) for v in value])
    if type(value) in (tuple, list):
        return type(value)([plain(v) for v in value])
    if type(value) is dict:
        return {k: plain(v) for k, v in value.items()}
    return slice(plain(value.start), plain(value.stop), plain(value.step)) if type(value) is slice else value


def comparing(name: str, how: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        self.asked.compared(self.of, how, other)
        return getattr(int if isinstance(self, Whole) else float, name)(self, plain(other))

    return compare


def counting(name: str) -> Callable[..., Any]:
    def count(self: Any, *others: Any) -> Any:
        found = getattr(int if isinstance(self, Whole) else float, name)(self, *map(plain, others))
        if found is NotImplemented and others and isinstance(others[0], float):
            found = getattr(float, name)(float(self), plain(others[0]))
        mixed = self.of.startswith(SIZE) and name in ("__mod__", "__floordiv__", "__and__", "__rshift__")
        if mixed and not isinstance(others[0], Whole):
            self.asked.sizes.add(f"{self.of.rstrip(DERIVED)} {name.strip('_')} {others[0]}")
        return watched(found, self.of.rstrip(DERIVED) + DERIVED, self.asked)

    return count


def true(self: Any) -> bool:
    self.asked.compared(self.of, "!=", 0)
    return bool(plain(self))


COMPARING = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
COUNTING = "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg abs and rshift".split()
for watching, base in ((Whole, int), (Real, float)):
    there = [f"__{name}__" for name in COUNTING if hasattr(base, f"__{name}__")]
    methods = {**{name: comparing(name, how) for name, how in COMPARING.items()},
               **{name: counting(name) for name in there}, "__bool__": true, "__hash__": base.__hash__}
    for name, method in methods.items():
        setattr(watching, name, method)


class Watching(Tracer):
    """Shapes, sizes and attributes are watched; `asked` is set before a rule is traced."""

    def __init__(self, asked: Asked, *more: Any):
        super().__init__(*more)
        self.asked = asked

    def given(self, args: list[Any], attributes: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return [watched(a, SIZE, self.asked) for a in args], {
            k: v if k == "index" else watched(v, k, self.asked) for k, v in attributes.items()}

    def number(self, name: str, value: Any) -> Any:
        return watched(value, name, self.asked)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with private.DisableTorchFunction():
            args, kwargs = plain(tuple(args)), plain(dict(kwargs or {}))
        found = super().__torch_function__(func, types, args, kwargs)
        read = getattr(func, "__self__", None) if getattr(func, "__name__", "") == "__get__" else func
        if getattr(read, "__name__", "") in ("shape", "size", "numel", "nelement", "__len__"):
            return watched(found, SIZE, self.asked)
        return found


class Repeated(Tracer):
    """Several places are of one tensor: `one` names the first of them."""

    def __init__(self, one: dict[int, int], *more: Any):
        super().__init__(*more)
        self.one = one
        self.there: dict[int, Any] = {}

    def value(self, type: int, position: int) -> Any:
        if position not in self.one:
            return super().value(type, position)
        first = self.one[position]
        if first not in self.there:
            self.there[first] = super().value(type, first)
        return self.there[first]


class Turned(Tracer):
    """A rule is told that operands are laid out the other way."""

    turned = True


def around(constant: float) -> tuple[int | float, ...]:
    """A number, and one on either side."""
    if isinstance(constant, int) or float(constant).is_integer():
        return int(constant), int(constant) + 1, int(constant) - 1
    return constant, math.nextafter(constant, math.inf) + 1, constant - 1
