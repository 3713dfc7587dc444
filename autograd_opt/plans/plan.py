"""A plan: the steps of a program with their operands' places, made once and run for each call of its kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.plans import blocks, replay
from autograd_opt.plans.batching import Batch, call, together
from autograd_opt.plans.bindings import binding_of
from autograd_opt.plans.capture import tensors
from autograd_opt.plans.elementwise import FLOATS
from autograd_opt.plans.fusing import Group, Step, instructions_of, scheduled
from autograd_opt.plans.layout import Layout
from autograd_opt.plans.memory import LARGEST, Buffers, maker
from autograd_opt.plans.moves import Movement, Region, movement_of, simplified, whole
from autograd_opt.plans.operators import base_name, overload, parts
from autograd_opt.plans.optimizing import apart, constants, filled, merged, owners, without_copies
from autograd_opt.plans.program import FRESH, Instruction, Program, Ref
from autograd_opt.plans.validation import differences

Tensor = torch.Tensor
INTO = frozenset("mm.default bmm.default addmm.default mv.default cat.default stack.default sum.dim_IntList".split())
"""Operators that can write into given memory, by `out=` of the function of torch's of the same name."""


def writes_into(one: Instruction) -> bool:
    """True if an instruction can write its result into given memory."""
    return one.name in INTO and not one.kept


def is_fresh(one: Instruction) -> bool:
    """True if an instruction only makes memory without values, which the plan may have made before."""
    return one.name in FRESH and not one.kept


class Plan:
    """The steps of a program, for values given from outside."""

    def __init__(self, program: Program, *, fuse: bool = True, exact: bool = False) -> None:
        self.whole = apart(without_copies(merged(program)))
        self.program, self.constants = constants(self.whole)
        self.order = scheduled(self.program, fuse, exact)
        self.last = self.last_uses()
        self.owner = self.owners()
        self.handed_out = self.program.handed_out()
        self.fixed = dict(self.constants)
        self.slots: dict[int, int] = {}
        self.movements = self.moved()
        self.buffers = Buffers()
        self.buffers.expect(self.lives())
        self.kernels: list[Instruction] = []
        self.moves: list[Instruction] = []
        self.given = [self.slot(n) for n in self.program.given]
        self.steps: list[Any] = []
        for number, one in enumerate(self.order):
            self.add(number, one)
        self.asked = [self.slot(n) for n in self.program.asked]
        self.before = [self.fixed.get(n) for n in self.slots]

    def slot(self, n: int) -> int:
        """Where a value that a step reads or makes stands in the list of values of a run."""
        return self.slots.setdefault(n, len(self.slots))

    def run(self, given: list[Tensor]) -> list[Tensor]:
        """The values asked for, from those given."""
        values: list[Any] = self.before.copy()
        values[: len(given)] = given
        replay.run(self.steps, values)
        return [values[n] for n in self.asked]

    def last_uses(self) -> dict[int, int]:
        """The last step that reads each value; what is asked for is read after all."""
        last = {
            n: k
            for k, step in enumerate(self.order)
            for one in instructions_of(step)
            for n in [*one.outs, *one.operands]
        }
        return last | dict.fromkeys([*self.program.asked], len(self.order))

    def owners(self) -> dict[int, int]:
        """For each value the one whose memory it is; its last use covers that of all who share the memory."""
        owner = owners(self.program)
        for n, top in owner.items():
            self.last[top] = max(self.last.get(top, -1), self.last.get(n, -1))
        return owner

    def frees(self, number: int, one: Step) -> list[int]:
        """The places of values that nobody reads after this step."""
        return [
            self.slots[n]
            for n in dict.fromkeys([n for m in instructions_of(one) for n in [*m.operands, *m.outs]])
            if self.last[n] == number and n in self.slots and n not in self.program.given and n not in self.fixed
        ]

    def add(self, number: int, one: Step) -> None:
        """Append how a part of the order runs."""
        if isinstance(one, Group):
            self.steps.append(self.stretch(number, one))
        elif isinstance(one, Batch):
            self.steps += self.batch(number, one)
        else:
            step = self.step(number, one)
            if step is not None:
                self.steps.append(step)

    def step(self, number: int, one: Instruction) -> Any:
        """How an instruction runs; None for a view of memory that stays, which is made here and now."""
        if is_fresh(one) and self.memory(number, one.outs[0]) is not None:
            return None
        if one.into and (one.kept or self.owns(number, one)):
            if one.operands[0] in self.fixed:
                self.fixed[one.outs[0]] = memory = self.fixed[one.operands[0]]
                self.buffers.use(memory, self.last[one.outs[0]])
            in_place = one.function if one.kept else overload(base_name(one.function) + "_", one.function)
            return self.kernel(number, one, in_place)
        if one.aliases and all(n in self.fixed for n in one.operands) and not one.writes:
            args, kwargs = filled(one, self.fixed)
            made = tensors(one.function(*args, **kwargs))
            for n, t in zip(one.outs, made, strict=True):
                self.fixed[n] = t
            return None
        movement = self.movements.get(id(one))
        if movement is not None:
            return self.move(number, one, movement)
        given = self.memory(number, one.outs[0]) if writes_into(one) else None
        if given is not None:
            into = getattr(private.VariableFunctions, base_name(one.function))
            return self.kernel(number, one, one.function, into, {"out": given})
        return self.kernel(number, one, one.function)

    def kernel(self, number: int, one: Instruction, function: Any, call: Any = None, more: Any = None) -> replay.Kernel:
        """The step of one operator; `call` with `more` keywords in its place where that is the same."""
        self.kernels.append(one)
        if call is None:
            call = binding_of(function, *filled(one, self.program.samples))
        kwargs = {**one.kwargs, **(more or {})}
        lists, rest = [], []
        for place, part in enumerate(one.args):
            if isinstance(part, (list, tuple)) and part and all(isinstance(x, Ref) for x in part):
                lists.append((place, tuple([self.slot(x.number) for x in part])))
            elif not isinstance(part, Ref):
                rest.append(part)
        places = tuple([i for i, a in enumerate(one.args) if isinstance(a, Ref)])
        values = [self.slot(one.args[i].number) for i in places]
        outs = [self.slot(n) for n in one.outs]
        if any(isinstance(x, Ref) for x in parts((rest, one.kwargs))):
            slots = {n: self.slot(n) for n in one.operands}

            def build(values: list[Tensor]) -> Any:
                args, named = filled(one, {n: values[slot] for n, slot in slots.items()})
                return args, {**named, **(more or {})}

            return replay.Kernel(call, (), (), [], (), None, build, outs, self.frees(number, one))
        template = tuple([None if isinstance(a, Ref) else a for a in one.args])
        frees = self.frees(number, one)
        return replay.Kernel(call, template, places, values, tuple(lists), kwargs or None, None, outs, frees)

    def owns(self, number: int, one: Instruction) -> bool:
        """True if the first operand's memory is the plan's own and nobody reads it after this step."""
        first = one.operands[0]
        top = self.owner[first]
        others = top in self.program.given or top in self.constants
        if others or self.last[top] > number or one.operands.count(first) > 1:
            return False
        sample = self.program.samples[first]
        return (
            top == first
            and sample.dtype == self.program.samples[one.outs[0]].dtype
            and sample.shape == self.program.samples[one.outs[0]].shape
            and sample.is_contiguous()
        )

    def stretch(self, number: int, group: Group) -> Any:
        """The stretch of a group: places for operands, results, and what lies between."""
        made = {n for member, _ in group.members for n in member.outs}
        wanted = {n for n in made if self.last[n] > number}
        layout = Layout(group, self.program.samples, wanted)
        emission = layout.emission
        places = {place: n for n, place in layout.operands.items()}
        wrong = differences(group, emission.steps, places, emission.numbers, layout.results)
        if wrong:
            raise AssertionError(f"a stretch does not compute the values {wrong} as the program does")
        total = max(1, math.prod(group.shape))
        stretch = blocks.Stretch(emission.steps, emission.places, total, FLOATS[group.dtype])
        for place, x in emission.numbers.items():
            stretch.set_number(place, x)
        operands, results = {}, []
        for place, n in places.items():
            if n in self.fixed:
                stretch.point(place, self.fixed[n].data_ptr())
            else:
                operands[place] = self.slot(n)
        for n, place in layout.results.items():
            memory = self.memory(number, n)
            if memory is None:
                results.append((place, self.slot(n), maker(self.program.samples[n])))
            else:
                stretch.point(place, memory.data_ptr())
        return replay.Elementwise(stretch, operands, results, self.frees(number, group))

    def move(self, number: int, one: Instruction, movement: Movement) -> replay.Move:
        """The step of an operator that only moves elements."""
        self.moves.append(one)
        (n,) = one.outs
        sample = self.program.samples[n]
        memory = self.memory(number, n)
        result = (self.slot(n), maker(sample)) if memory is None else None
        fill = None
        if movement.fill is not None:
            fill = bytes(torch.tensor([movement.fill], dtype=sample.dtype).view(torch.uint8).tolist())
        return self.copy(number, one, movement.regions, sample, memory, result, fill)

    def copy(
        self,
        number: int,
        one: Step,
        regions: list[Region],
        sample: Tensor,
        memory: Tensor | None,
        result: Any = None,
        fill: bytes | None = None,
    ) -> replay.Move:
        """Copy regions into memory that stays, or into that of a result like `sample`."""
        width = sample.element_size()
        places = {value: k for k, value in enumerate(dict.fromkeys(r.value for r in regions))}
        operands = {place: self.slot(value) for value, place in places.items() if value not in self.fixed}
        addresses = [self.fixed[value].data_ptr() if value in self.fixed else 0 for value in places]
        addresses.append(0 if memory is None else memory.data_ptr())
        size = sample.nbytes if memory is None else memory.nbytes
        frees = self.frees(number, one) if isinstance(one, Instruction) else []
        in_bytes = [
            (
                places[r.value],
                r.sizes,
                r.read * width,
                tuple([s * width for s in r.read_strides]),
                r.write * width,
                tuple([s * width for s in r.write_strides]),
            )
            for r in regions
        ]
        return replay.Move(in_bytes, addresses, operands, result, width, size, fill, frees)

    def batch(self, number: int, batch: Batch) -> list[Any]:
        """The steps of a batch: operands are brought together, and one kernel computes all results."""
        one, count = batch.first, len(batch.instructions)
        samples = self.program.samples
        steps: list[Any] = []
        operands = []
        for k, n in enumerate(one.operands):
            rows = [m.operands[k] for m in batch.instructions]
            shared = len({*rows}) == 1
            sample = samples[n]
            ready = None
            if all(r in self.fixed for r in rows):
                ready = self.fixed[n].unsqueeze(0) if shared else together([self.fixed[r] for r in rows])
            if ready is None:
                rows = rows[:1] if shared else rows
                ready = self.buffers.take((len(rows), *sample.shape), sample, number, number)
                strides = ready.stride()[1:]
                regions = [simplified(whole(r, samples[r], i * sample.numel(), strides)) for i, r in enumerate(rows)]
                steps.append(self.copy(number, batch, regions, sample, ready))
            operands.append(ready.expand(count, *sample.shape))
        out = samples[one.outs[0]]
        made = [m.outs[0] for m in batch.instructions]
        memory = self.buffers.take((count, *out.shape), out, number, max(self.last[n] for n in made))
        self.fixed.update(zip(made, memory, strict=True))
        function, args, kwargs = call(one, operands)
        self.kernels.append(one)
        outs, frees = [self.slot(-1 - number)], self.frees(number, batch)
        steps.append(replay.Kernel(function, args, (), [], (), {**kwargs, "out": memory}, None, outs, frees))
        return steps

    def moved(self) -> dict[int, Movement]:
        """How each instruction that runs by itself and only moves elements does so, by its id."""
        alone = [(one, movement_of(one, self.program.samples)) for one in self.order if isinstance(one, Instruction)]
        return {id(one): movement for one, movement in alone if movement is not None}

    def lives(self) -> Iterator[tuple[Tensor, int, int]]:
        """Sample, first and last step of each value that may have memory of the plan's own."""
        for number, step in enumerate(self.order):
            for one in instructions_of(step):
                single = isinstance(step, Instruction)
                if single and not (writes_into(one) or is_fresh(one) or id(one) in self.movements):
                    continue
                for n in one.outs:
                    if self.last[n] > number and self.inside(n):
                        yield self.program.samples[n], number, self.last[n]

    def inside(self, n: int) -> bool:
        """True if nobody outside ever sees the memory of a value, and it is not too large to be kept."""
        sample = self.program.samples[n]
        return n not in self.handed_out and sample.is_contiguous() and sample.nbytes <= LARGEST

    def memory(self, number: int, n: int) -> Tensor | None:
        """Memory for a value that is the same at each call, if there is room."""
        sample = self.program.samples[n]
        if not self.inside(n) or not self.buffers.room(sample, number):
            return None
        self.fixed[n] = self.buffers.take(tuple(sample.shape), sample, number, self.last[n])
        return self.fixed[n]
