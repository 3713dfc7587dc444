"""Passes over the program of a plan: repeated work goes, copies that nobody can tell go, constants are made once.

Values are written once, so that a copy is the value itself; only results must be memory of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from autograd_opt.engine.accumulate import is_dense
from autograd_opt.plans.capture import Unrepeatable, tensors
from autograd_opt.plans.operators import base_name, mapped
from autograd_opt.plans.program import FRESH, Instruction, Program, Ref, lazy

Tensor = torch.Tensor
aten = torch.ops.aten
SUMS = frozenset("add sub addcmul addcdiv addmm addmv addr addbmm baddbmm".split())
"""Operators that add to their first operand what is linear in the others."""
MOST = 1 << 20
"""Bytes of a constant at most."""


def typed(x: Any) -> Any:
    """An argument such that equal means the same: 1, 1.0, True, 0.0 and -0.0 differ."""
    if isinstance(x, (tuple, list)):
        return (type(x), *map(typed, x))
    if isinstance(x, dict):
        return tuple((k, typed(v)) for k, v in sorted(x.items()))
    return (float, x.hex()) if isinstance(x, float) else (type(x), x)


def renamed(one: Instruction, names: Mapping[int, int]) -> Instruction:
    """The instruction on the values that stand for its operands."""
    if all(names.get(n, n) == n for n in one.operands):
        return one
    structure = (one.args, one.kwargs)
    args, kwargs = mapped(lambda x: Ref(names.get(x.number, x.number)) if isinstance(x, Ref) else x, structure)
    return replace(one, args=args, kwargs=kwargs)


def merged(program: Program) -> Program:
    """The program without repeated instructions, and without those whose results nobody needs."""
    found: dict[Any, tuple[int, ...]] = {}
    names = {n: n for n in range(len(program.samples))}
    first: list[Instruction] = []
    for one in program.instructions:
        one = renamed(one, names)
        if one.kept or one.aliases or one.name in FRESH or one.name.startswith("clone."):
            first.append(one)
            continue
        try:
            key = (one.function, typed(one.args), typed(one.kwargs))
            outs = found.setdefault(key, one.outs)
        except TypeError:  # an argument without a hash
            outs = one.outs
        if outs is one.outs:
            first.append(one)
        else:
            names.update(zip(one.outs, outs, strict=True))
    asked = [names[n] for n in program.asked]
    needed, kept = set(asked), []
    for one in reversed(first):
        if one.kept or needed.intersection(one.outs):
            needed.update(one.operands)
            kept.append(one)
    return replace(program, instructions=kept[::-1], asked=asked)


def without_copies(program: Program) -> Program:
    """The program without copies of what an instruction has made and no other result shares."""
    made = {n for one in program.instructions if not (one.kept or one.aliases) for n in one.outs}
    taken = program.handed_out()
    asked, names = set(program.asked), dict[int, int]()
    kept = []
    for one in program.instructions:
        one = renamed(one, names)
        if one.name == "clone.default" and not one.kept:
            (n,), (out,) = one.operands, one.outs
            samples = program.samples
            alone = out not in taken or (out in asked and n not in taken and program.asked.count(out) == 1)
            if n in made and alone and samples[n].stride() == samples[out].stride() and not lazy(samples[n]):
                names[out] = n
                if out in asked:
                    taken.add(n)
                continue
        kept.append(one)
    return replace(program, instructions=kept, asked=[names.get(n, n) for n in program.asked])


def owners(program: Program) -> dict[int, int]:
    """For each value the one whose memory it is."""
    owner = {n: n for n in range(len(program.samples))}
    for one in program.instructions:
        if one.aliases:
            for n in one.outs:
                owner[n] = owner[one.operands[0]]
    return owner


def apart(program: Program) -> Program:
    """The program with copies where values that are handed out were memory of their own, and are one by now.

    Raises
    ------
    Unrepeatable : several views of such memory are handed out.
    """
    owner, taken = owners(program), dict[int, int]()
    itself = {one.outs[0]: one.operands[0] for one in program.instructions if one.name == "alias.default"}
    members = Counter(program.groups)
    handed_out = dict.fromkeys(zip(program.groups, program.asked, strict=True))
    instructions, samples = [*program.instructions], [*program.samples]
    copies: dict[tuple[int, int], tuple[int, int]] = {}
    names: dict[tuple[int, int], int] = {}
    for group, n in sorted(handed_out, key=lambda one: -members[one[0]]):
        top, base, made = owner[n], itself.get(n, n), len(samples)
        if group < 0 or top in program.given or taken.setdefault(top, group) == group:
            continue
        original, copy = copies.setdefault((group, top), (base, made))
        if original != base or not is_dense(samples[n]):
            raise Unrepeatable("it returns several views of what it has computed twice")
        again = copy != made
        function, operand = (aten.alias.default, copy) if again else (aten.clone.default, base)
        instructions.append(Instruction(function, (Ref(operand),), {}, (made,), aliases=again))
        samples.append(samples[n])
        names[group, n] = made
    asked = [names.get((group, n), n) for group, n in zip(program.groups, program.asked, strict=True)]
    return replace(program, instructions=instructions, samples=samples, asked=asked)


def summand(one: Instruction, zero: set[int]) -> int:
    """The operand that an instruction returns because all that it adds to it is zero; -1 where there is none."""
    if base_name(one.function) not in SUMS or one.kwargs.get("beta", 1) != 1:
        return -1
    first, *others = [x.number if isinstance(x, Ref) else -1 for x in one.args]
    if first >= 0 and first not in zero:
        return first if zero.intersection(others) else -1
    alone = base_name(one.function) == "add" and one.kwargs.get("alpha", 1) == 1 and others[0] not in zero
    return others[0] if alone else -1


def without(program: Program, cotangents: Sequence[int], absent: Sequence[int], asked: Sequence[int]) -> Program:
    """A backward run without some of its cotangents, for some of what it gives: linear in all of them together.

    What it computes of absent ones alone is zero, and is not computed: beside an infinite factor it would be NaN.
    """
    followed, zero, there = set(cotangents), set(absent), set[int]()
    kept, samples, names = list[Instruction](), [*program.samples], dict[int, int]()

    def make(numbers: Iterable[int]) -> None:
        for n in sorted(zero.intersection(numbers) - there):
            there.add(n)
            size, stride = [*samples[n].shape], [*samples[n].stride()]
            span = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if all(size) else 0
            samples.append(samples[n].new_empty(span))
            base, kwargs = len(samples) - 1, {"dtype": samples[n].dtype, "device": samples[n].device}
            kept.append(Instruction(aten.zeros.default, ([span],), kwargs, (base,)))
            kept.append(Instruction(aten.as_strided.default, (Ref(base), size, stride), {}, (n,), aliases=True))

    for one in program.instructions:
        one = renamed(one, names)
        linear = followed.intersection(one.operands)
        if linear and not (one.name.startswith("new_") or one.name.split(".")[0].endswith("_like")):
            followed.update(one.outs)
            numbers = all(samples[n].is_floating_point() or samples[n].is_complex() for n in one.outs)
            if linear <= zero and numbers:
                zero.update(one.outs)
                continue
            same = summand(one, zero)
            if same >= 0 and laid_out_alike(samples[same], samples[one.outs[0]]):
                names[one.outs[0]] = same
                continue
        make(one.operands)
        kept.append(one)
    wanted = [names.get(program.asked[k], program.asked[k]) for k in asked]
    make(wanted)
    given = {n: t for n, t in program.given.items() if n not in absent}
    groups = [program.groups[k] for k in asked]
    return replace(program, instructions=kept, samples=samples, given=given, asked=wanted, groups=groups)


def laid_out_alike(t: Tensor, other: Tensor) -> bool:
    """Do two tensors have one shape, dtype and strides?"""
    return t.shape == other.shape and t.dtype == other.dtype and t.stride() == other.stride()


def filled(one: Instruction, values: Mapping[int, Tensor] | Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an instruction, with the values in their places."""
    return mapped(lambda x: values[x.number] if isinstance(x, Ref) else x, (one.args, one.kwargs))


def constants(program: Program) -> tuple[Program, dict[int, Tensor]]:
    """The program without instructions that give the same at each call, and what these have given."""
    found: dict[int, Tensor] = {}
    taken = program.handed_out()
    rest = []
    for one in program.instructions:
        if (
            one.kept
            or one.name in FRESH
            or taken.intersection(one.outs)
            or not all(n in found for n in one.operands)
            or any(program.samples[n].nbytes > MOST for n in one.outs)
        ):
            rest.append(one)
            continue
        args, kwargs = filled(one, found)
        found.update(zip(one.outs, tensors(one.function(*args, **kwargs)), strict=True))
    needed = {n for one in rest for n in one.operands}
    return replace(program, instructions=rest), {n: t for n, t in found.items() if n in needed}
