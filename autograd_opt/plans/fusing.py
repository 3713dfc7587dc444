"""Which instructions of a program run together as elementwise stretches, and in which order all of them run.

Every instruction has a depth such that those of one depth depend on nothing deeper.  At each depth the kernels run
first, those of one kind together, then one stretch for each shape and dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from autograd_opt.plans.batching import Batch, batched
from autograd_opt.plans.elementwise import COMPARISONS, FLOATS, SYMBOLS, expression_of, functions_of
from autograd_opt.plans.emission import Expression
from autograd_opt.plans.operators import base_name
from autograd_opt.plans.program import Instruction, Program, Ref, lazy

Tensor = torch.Tensor


@dataclass
class Group:
    """Instructions that one stretch computes, with their expressions over values and numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    members: list[tuple[Instruction, Expression]] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions of the members."""
        return [one for one, _ in self.members]


Step = Instruction | Group | Batch


def instructions_of(step: Step) -> list[Instruction]:
    """What a step computes."""
    return [step] if isinstance(step, Instruction) else step.instructions


def computed_in(one: Instruction, samples: list[Tensor], exact: bool) -> tuple[torch.dtype, Expression] | None:
    """The dtype and the expression of an instruction that a stretch can compute, or None."""
    if one.kept or len(one.outs) != 1:
        return None
    out = samples[one.outs[0]]
    operands = [samples[a.number] for a in (*one.args, *one.kwargs.values()) if isinstance(a, Ref)]
    if out.device.type != "cpu" or not out.is_contiguous() or out.dtype not in (*FLOATS, torch.bool) or not operands:
        return None
    if any(map(lazy, (*operands, out))) or not out.numel():
        return None
    floats = {t.dtype for t in operands if t.dtype != torch.bool and (t.dim() or out.dim() == 0)}
    compares = base_name(one.function).removesuffix("_") in COMPARISONS
    if len(floats) > 1 or any(
        t.dtype not in (*FLOATS, torch.bool) or t.device.type != "cpu" or t.dim() > 8 for t in operands
    ):
        return None
    dtype = floats.pop() if floats else torch.float32 if out.dtype == torch.bool else out.dtype
    if dtype not in FLOATS or out.dtype != (
        torch.bool if compares or all(t.dtype == torch.bool for t in operands) else dtype
    ):
        return None
    if any(t.dtype not in (dtype, torch.bool) for t in operands):
        return None
    if any(isinstance(a, Ref) for a in one.kwargs.values()):
        return None
    kinds = tuple("bool" if samples[a.number].dtype == torch.bool else "float" for a in one.args if isinstance(a, Ref))
    given = iter(kinds)
    args = tuple(next(given) if isinstance(a, Ref) else a for a in one.args)
    if any(not isinstance(a, (str, int, float, bool, type(None))) for a in args):
        return None
    kwargs = {k: v for k, v in one.kwargs.items() if k != "memory_format" or v is not torch.contiguous_format}
    make = expression_of(one.function, args, kwargs, dtype, exact)
    if make is None:
        return None
    expression = make(*(a for a in one.args if isinstance(a, Ref)))
    if any(f in SYMBOLS or f.endswith("_of_exp") for f in functions_of(expression)) and not all(
        t.is_contiguous() and t.shape == out.shape for t in operands
    ):
        return None  # of strided memory torch computes them by other functions
    return dtype, expression


def scheduled(program: Program, fuse: bool = True, exact: bool = False) -> list[Step]:
    """Kernels, batches and groups in the order in which they run."""
    samples = program.samples
    depth: dict[int, int] = {}  # of a value: the first depth at which a kernel may read it
    home: dict[int, Any] = {}  # of a value computed in a group: its depth, shape and dtype
    kernels: dict[int, list[Instruction]] = {}
    groups: dict[Any, Group] = {}
    last = 0  # the depth of the last instruction that keeps its place
    for one in program.instructions:
        found = computed_in(one, samples, exact) if fuse else None
        if found is None:
            at = max([depth.get(n, 0) for n in one.operands], default=0)
            if one.kept:
                at = last = max(at, last)
            kernels.setdefault(at, []).append(one)
            depth.update(dict.fromkeys(one.outs, at))
            continue
        dtype, expression = found
        shape = tuple(samples[one.outs[0]].shape)
        at = 0
        for n in one.operands:
            if n in home:
                at = max(at, home[n][0] if home[n][1:] == (shape, dtype) else home[n][0] + 1)
            else:
                at = max(at, depth.get(n, 0))
        key = (at, shape, dtype)
        groups.setdefault(key, Group(shape, dtype)).members.append((one, expression))
        home[one.outs[0]] = key
        depth[one.outs[0]] = at + 1
    order: list[Step] = []
    taken = program.handed_out()
    for at in range(max([*kernels, *(k[0] for k in groups), -1]) + 1):
        here = kernels.get(at, [])
        order += batched(here, samples, taken) if fuse and not exact else here
        order += [group for key, group in groups.items() if key[0] == at]
    return order
