"""Kernels of one kind on operands of one shape that do not need each other: one kernel computes all of them.

A Hessian row by row, or an ensemble model by model, does the same for other values again and again.  Kernels are
compared level by level: those of one level need nothing of each other.  A batched kernel may round otherwise, so that
there are no batches with `exact=True`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.plans.memory import BATCH
from autograd_opt.plans.moves import MOST
from autograd_opt.plans.optimizing import typed
from autograd_opt.plans.program import Instruction, Ref, lazy

Tensor = torch.Tensor
FEWEST = 4
"""So many kernels are one batch at least."""
BATCHED = frozenset(["mm.default", "addmm.default", "sum.dim_IntList"])
"""Operators that have a form with one axis more in front."""


@dataclass
class Batch:
    """Instructions that one kernel computes."""

    instructions: list[Instruction] = field(default_factory=list)

    @property
    def first(self) -> Instruction:
        """One of them, in the place of all."""
        return self.instructions[0]


def signature(one: Instruction, samples: list[Tensor], taken: set[int]) -> Any:
    """What instructions of one batch have in common; None for what is in no batch."""
    if one.name not in BATCHED or one.kept or taken.intersection(one.outs):
        return None
    operands, out = [samples[n] for n in one.operands], samples[one.outs[0]]
    everything = [*operands, out]
    if any(t.device.type != "cpu" or t.dtype != out.dtype or not 0 < t.numel() <= MOST for t in everything):
        return None
    if any(map(lazy, everything)):
        return None
    if out.dtype not in (torch.float32, torch.float64) or not out.is_contiguous() or not all(t.dim() for t in operands):
        return None
    plain = [None if isinstance(a, Ref) else a for a in one.args]
    return one.name, tuple(t.shape for t in everything), out.dtype, typed(plain), typed(one.kwargs)


def batched(kernels: Sequence[Instruction], samples: list[Tensor], taken: set[int]) -> list[Instruction | Batch]:
    """The kernels of one depth, those that can be together in batches, each after what it needs.

    `taken`: the values whose memory may be that of a result.
    """
    level: dict[int, int] = {}
    rows: list[dict[Any, Batch]] = []
    last = 0  # the level of the last instruction that keeps its place
    for number, one in enumerate(kernels):
        at = max([level.get(n, 0) for n in one.operands], default=0)
        if one.kept:
            at = last = max(at, last)
        level.update(dict.fromkeys(one.outs, at + 1))
        rows += [{} for _ in range(at + 1 - len(rows))]
        key = signature(one, samples, taken)
        rows[at].setdefault(number if key is None else key, Batch()).instructions.append(one)
    order: list[Instruction | Batch] = []
    for row in rows:
        for batch in row.values():
            one = batch.first
            largest = max([samples[n].nbytes for n in (*one.operands, *one.outs)], default=0)
            size = min(len(batch.instructions), BATCH // max(1, largest))
            for k in range(0, len(batch.instructions), max(1, size)):
                part = batch.instructions[k : k + size] if size >= FEWEST else []
                if len(part) >= FEWEST:
                    order.append(Batch(part))
                else:
                    order += batch.instructions[k : k + max(1, size)]
    return order


def call(one: Instruction, operands: list[Tensor]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function, arguments and keywords that compute a batch like `one`; each operand has one axis more."""
    if one.name == "mm.default":
        return private.VariableFunctions.bmm, tuple(operands), {}
    if one.name == "addmm.default":
        added, x, y = operands
        if added.dim() == 2:
            added = added.unsqueeze(1)
        return private.VariableFunctions.baddbmm, (added, x, y), one.kwargs
    _, dims, *keep = one.args
    (x,) = operands
    axes = [d % (x.dim() - 1) + 1 for d in dims] if dims else list(range(1, x.dim()))
    return private.VariableFunctions.sum, (x, axes, *keep), one.kwargs


def together(rows: list[Tensor]) -> Tensor | None:
    """The tensors as one with an axis more in front, where they lie one after the other in one memory."""
    first = rows[0]
    step = math.prod(first.shape)
    if not all(
        t.is_contiguous() and t.data_ptr() == first.data_ptr() + k * step * t.element_size()
        and t.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        for k, t in enumerate(rows)
    ):
        return None
    return first.as_strided((len(rows), *first.shape), (step, *first.stride()))
