"""Exact evaluation modulo the prime 2**31 - 1, at the true shapes.

Transcendental functions are keyed pseudo-random functions of their argument: equal arguments
give equal values, nothing else is known of them.  Equality here is evidence with an error
bound and never a proof; a difference may be an identity that the field does not know
(exp(a + b) = exp a exp b), so it is no refutation either: `points` confirms it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from autograd_opt.abi import torch_private as private
from autograd_opt.verification.program.instructions import Head
from autograd_opt.verification.semantics.domain import Domain, Outside, TooLarge
from autograd_opt.verification.semantics.evaluate import side_by_side
from autograd_opt.verification.strategies.task import Goal, Task

P = (1 << 31) - 1
POINTS = 2


@dataclass(frozen=True)
class Found:
    """`equal` is None when the field cannot say."""

    equal: bool | None
    goal: str = ""
    message: str = ""
    large: bool = False

    def __str__(self) -> str:
        if self.equal is None:
            return f"the field cannot say: {self.message}"
        if self.equal:
            return f"equal in GF(2^31-1) at {POINTS} points"
        return f"{self.goal} differs in GF(2^31-1)"


def mix(x: Any, key: int) -> Any:
    """A keyed pseudo-random function of uint64 arrays (splitmix64), reduced modulo P."""
    with np.errstate(over="ignore"):
        z = x.astype(np.uint64) + np.uint64(key & (1 << 64) - 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) % np.uint64(P)


class Field(Domain):
    """Residues modulo P in uint64 arrays."""

    dtype = np.dtype(np.uint64)

    def __init__(self, seed: int, budget: int):
        super().__init__()
        self.seed, self.budget = seed, budget

    def scalar(self, value: Any) -> Any:
        if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
            raise Outside(f"the number {value}")
        f = Fraction(value)
        return np.uint64(f.numerator % P * pow(f.denominator % P, P - 2, P) % P)

    def array(self, values: Any, shape: Sequence[int]) -> Any:
        if isinstance(values, (int, float, Fraction)):
            return np.full(tuple(shape), self.scalar(values), dtype=np.uint64)
        flat = [self.scalar(v) for v in np.asarray(values, dtype=object).reshape(-1)]
        return np.array(flat, dtype=np.uint64).reshape(tuple(shape))

    def binary(self, op: Any, x: Any, y: Any) -> Any:
        x, y = self.lift(x), self.lift(y)
        if op is np.true_divide:
            y, op = self.inverse(y), np.multiply
        if op is np.subtract:
            y, op = (np.uint64(P) - y) % np.uint64(P), np.add
        out = np.asarray(op(x, y) % np.uint64(P))
        self.charge(1 + out.size // 16)
        return out

    def inverse(self, y: Any) -> Any:
        if (y == 0).any():
            raise Outside("a denominator is 0 in the field")
        out, base, e = np.ones_like(y), y, P - 2
        while e:
            if e & 1:
                out = out * base % np.uint64(P)
            base = base * base % np.uint64(P)
            e >>= 1
        self.charge(y.size)
        return out

    def call(self, name: str, x: Any) -> Any:
        x = self.lift(x)
        self.charge(1 + x.size // 16)
        return mix(x, self.key(name))

    def key(self, name: str) -> int:
        return zlib.crc32(name.encode()) << 20 ^ self.seed

    def power(self, x: Any, y: Any) -> Any:
        x, y = np.broadcast_arrays(self.lift(x), self.lift(y))
        flat = np.unique(y)
        if flat.size == 1 and int(flat[0]) < 64:
            out = np.ones_like(x)
            for _ in range(int(flat[0])):
                out = out * x % np.uint64(P)
            return out
        return mix(mix(x, self.key("base")) + y, self.key("pow"))

    def signs(self, x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype != self.dtype:
            return np.sign(x.astype(np.int64))
        mirrored = np.minimum(x, (np.uint64(P) - x) % np.uint64(P))
        bit = np.where(mix(mirrored, self.key("sign")) & np.uint64(1), 1, -1)
        return np.where(x == 0, 0, np.where(x == mirrored, bit, -bit))

    def sum(self, x: Any, axes: tuple[int, ...], keepdim: bool = False) -> Any:
        x = self.lift(x)
        self.charge(1 + x.size // 16)
        return np.asarray(x.sum(axis=axes, keepdims=keepdim, dtype=np.uint64) % np.uint64(P))

    def matmul(self, x: Any, y: Any) -> Any:
        x, y = self.lift(x), self.lift(y)
        self.charge(1 + x.size * (y.shape[-1] if y.ndim > 1 else 1) // 16)
        high, low = x >> np.uint64(16), x & np.uint64(0xFFFF)
        top = np.matmul(high, y) % np.uint64(P)
        return np.asarray((top * np.uint64(1 << 16) + np.matmul(low, y)) % np.uint64(P))


def compare(task: Task, goals: Sequence[Goal], budget: int = 2_000_000, seed: int = 0) -> Found:
    """Evaluate both programs at random points of the field."""
    try:
        for k in range(POINTS):
            D = Field(seed * 7919 + k + 1, budget)

            def free(position: int, head: Head, shape: tuple[int, ...], key: int = seed * 31 + k) -> Any:
                given = integers(head, task)
                if given is not None:
                    return given
                word = hashlib.sha256(f"{key}|{head.op}|{head.effect}".encode()).digest()[:8]
                rng = np.random.default_rng(int.from_bytes(word, "little"))
                return rng.integers(1, P, size=shape, dtype=np.uint64)

            for name, left, right in side_by_side(D, task.original, task.optimized, goals, free):
                if left.shape != right.shape or not (left == right).all():
                    return Found(False, name)
        return Found(True)
    except (Outside, TooLarge) as error:
        return Found(None, "", str(error), isinstance(error, TooLarge))


def integers(head: Head, task: Task) -> Any:
    """The values of an integer or boolean leaf, which are part of the graph's structure."""
    shape, dtype, *_ = task.vocabulary.types[head.type]
    if dtype.startswith(("float", "bfloat")):
        return None
    if dtype.startswith("complex"):
        raise Outside("complex numbers")
    tensor = task.nodes[head.effect - 1].tensor if head.op == "leaf" else None
    if tensor is None and dtype == "bool":
        return np.random.default_rng(head.effect).integers(0, 2, size=shape or ()).astype(bool)
    if tensor is None:
        raise Outside("an integer tensor whose values are gone")

    with private.DisableTorchFunction():
        return tensor.detach().cpu().numpy()
