"""Number domains: what a scalar is, and how arrays of them are computed with.

A `Domain` adds, multiplies and applies functions; numpy moves elements about.  Subclasses
say what a scalar is: a sympy expression (`symbols`), a residue modulo a prime (`field`), a
rational or an interval (`points`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any


class Outside(Exception):
    """No meaning, or none in this domain."""


class TooLarge(Exception):
    """More scalar operations than the budget allows."""


class Domain:
    """Arithmetic on object arrays of scalars with Python operators; subclasses say what a scalar is."""

    budget = 1_000_000

    def __init__(self) -> None:
        self.spent = 0

    def charge(self, n: int) -> None:
        """Count `n` scalar operations."""
        self.spent += n
        if self.spent > self.budget:
            raise TooLarge(f"more than {self.budget} scalar operations")

    # --- scalars ---
    def scalar(self, value: Any) -> Any:
        """A Python number as a scalar, exactly."""
        raise NotImplementedError

    def function(self, name: str, x: Any) -> Any:
        """A named function of one scalar."""
        raise Outside(f"{name} in {type(self).__name__}")

    def raised(self, x: Any, y: Any) -> Any:
        """x ** y for scalars."""
        raise Outside("a power")

    def sign(self, x: Any) -> int:
        """-1, 0 or 1."""
        raise Outside("a comparison")

    # --- arrays ---
    def array(self, values: Any, shape: Sequence[int]) -> Array:
        """Numbers as an array of scalars."""
        out = np.empty(tuple(shape), dtype=object)
        flat = np.asarray(values, dtype=object).reshape(-1) if not isinstance(values, (int, float, Fraction)) else None
        if flat is None:
            out.fill(self.scalar(values))
        else:
            out.reshape(-1)[:] = [self.scalar(v) for v in flat]
        return out

    def number(self, value: Any) -> Array:
        return self.array(value, ())

    def lift(self, x: Any) -> Array:
        """Booleans and integers as scalars; arrays of scalars as they are."""
        x = np.asarray(x)
        return x if x.dtype == self.dtype else self.array(x.tolist() if x.ndim else x.item(), x.shape)

    dtype: Any = np.dtype(object)

    def binary(self, op: Callable[[Any, Any], Any], x: Array, y: Array) -> Array:
        x, y = self.lift(x), self.lift(y)
        out = np.asarray(op(x, y), dtype=object)
        self.charge(out.size)
        return out

    def add(self, x: Array, y: Array) -> Array:
        return self.binary(np.add, x, y)

    def sub(self, x: Array, y: Array) -> Array:
        return self.binary(np.subtract, x, y)

    def mul(self, x: Array, y: Array) -> Array:
        return self.binary(np.multiply, x, y)

    def div(self, x: Array, y: Array) -> Array:
        return self.binary(np.true_divide, x, y)

    def neg(self, x: Array) -> Array:
        return self.mul(self.number(-1), x)

    def scale(self, k: Any, x: Array) -> Array:
        return x if isinstance(k, (int, float)) and k == 1 else self.mul(self.number(k), x)

    def call(self, name: str, x: Array) -> Array:
        """A named function, elementwise."""
        x = self.lift(x)
        self.charge(4 * x.size)
        out = np.empty(x.shape, dtype=object)
        out.reshape(-1)[:] = [self.function(name, v) for v in x.reshape(-1)]
        return out

    def power(self, x: Array, y: Array) -> Array:
        x, y = np.broadcast_arrays(self.lift(x), self.lift(y))
        self.charge(4 * x.size)
        out = np.empty(x.shape, dtype=object)
        out.reshape(-1)[:] = [self.raised(a, b) for a, b in zip(x.reshape(-1), y.reshape(-1), strict=True)]
        return out

    def signs(self, x: Array) -> Any:
        """The sign of every element as an int array."""
        x = np.asarray(x)
        if x.dtype != self.dtype:
            return np.sign(x.astype(np.int64))
        out = np.empty(x.shape, dtype=np.int64)
        out.reshape(-1)[:] = [self.sign(v) for v in x.reshape(-1)]
        return out

    def truth(self, x: Any) -> Any:
        """Which elements count as true: all but 0."""
        x = np.asarray(x)
        return x if x.dtype == bool else self.signs(x) != 0

    def compare(self, x: Array, y: Array) -> Any:
        """The sign of x - y."""
        if np.asarray(x).dtype != self.dtype and np.asarray(y).dtype != self.dtype:
            return np.sign(np.asarray(x).astype(np.int64) - np.asarray(y).astype(np.int64))
        return self.signs(self.sub(x, y))

    def select(self, test: Any, x: Array, y: Array) -> Array:
        test, x, y = np.broadcast_arrays(self.truth(test), self.lift(x), self.lift(y))
        return np.where(test, x, y)

    def branch(self, d: Array, above: Array, below: Array, share: Any) -> Array:
        """`above` where d > 0, `below` where d < 0, their mean with weight `share` where d = 0."""
        s = self.signs(d)
        above, below = np.broadcast_to(self.lift(above), s.shape), np.broadcast_to(self.lift(below), s.shape)
        if not (s == 0).any():
            return np.where(s > 0, above, below)
        tie = self.add(self.scale(share, above), self.scale(1 - share, below))
        return np.where(s > 0, above, np.where(s < 0, below, tie))

    def sum(self, x: Array, axes: tuple[int, ...], keepdim: bool = False) -> Array:
        x = self.lift(x)
        self.charge(x.size)
        if not x.size:
            return self.array(0, np.zeros(x.shape).sum(axis=axes, keepdims=keepdim).shape)
        return np.asarray(x.sum(axis=axes, keepdims=keepdim), dtype=object)

    def matmul(self, x: Array, y: Array) -> Array:
        x, y = self.lift(x), self.lift(y)
        self.charge(2 * x.size * (y.shape[-1] if y.ndim > 1 else 1))
        if not x.shape[-1]:
            return self.array(0, np.matmul(np.zeros(x.shape), np.zeros(y.shape)).shape)
        return np.asarray(np.matmul(x, y), dtype=object)
