"""Expressions as steps of a stretch: each value gets a place, and scratch places are used again when they are free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from autograd_opt.plans import blocks

Expression = tuple[Any, ...]
"""A function, its operands (expressions, numbers, what stands for tensors), and last a `Value` where it takes one."""
Place = tuple[str, tuple[int, ...], tuple[int, ...]]
"""The kind of a place, and sizes and strides where it is strided."""


class Value(NamedTuple):
    """A number that a function takes beside its operands."""

    number: float


class Emission:
    """The places and the steps of expressions; `operand` says where what stands for a tensor lies."""

    def __init__(self, operand: Callable[[Any], int]) -> None:
        self.operand = operand
        self.places: list[Place] = []
        self.steps: list[tuple[Any, ...]] = []
        self.numbers: dict[int, float] = {}
        self.constants: dict[str, int] = {}
        self.free: list[int] = []

    def place(self, kind: str, sizes: tuple[int, ...] = (), strides: tuple[int, ...] = ()) -> int:
        """A new place."""
        self.places.append((kind, sizes, strides))
        return len(self.places) - 1

    def constant(self, number: float) -> int:
        """The place of a number."""
        key = number.hex()
        if key not in self.constants:
            self.constants[key] = self.place("number")
            self.numbers[self.constants[key]] = number
        return self.constants[key]

    def emit(self, expression: Expression, to: int | None = None) -> int:
        """Append the steps of an expression; returns the place of its value."""
        value = expression[-1].number if isinstance(expression[-1], Value) else 0.0
        operands, inner = [], []
        for part in expression[1:]:
            if isinstance(part, Value):
                continue
            if isinstance(part, tuple):
                operands.append(self.emit(part))
                inner.append(operands[-1])
            else:
                number = isinstance(part, (bool, int, float))
                operands.append(self.constant(float(part)) if number else self.operand(part))
        if to is None:
            to = self.free.pop() if self.free else self.place("scratch")
        self.steps.append((blocks.NAMES[expression[0]], to, *operands, *[-1] * (3 - len(operands)), float(value)))
        self.free += inner
        return to
