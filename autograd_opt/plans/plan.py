"""A plan: the steps of a program with their operands' places, made once and run for each call of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.plans import blocks, replay
from autograd_opt.plans.capture import tensors
from autograd_opt.plans.elementwise import FLOATS
from autograd_opt.plans.emission import Emission, Place
from autograd_opt.plans.fusing import Group, Step, scheduled
from autograd_opt.plans.moves import Movement, movement_of
from autograd_opt.plans.operators import base_name, overload, parts
from autograd_opt.plans.optimizing import constants, filled, merged, without_copies
from autograd_opt.plans.program import Instruction, Program, Ref
from autograd_opt.plans.validation import differences

Tensor = torch.Tensor
BINDINGS = frozenset(
    "mm t matmul bmm mv dot reshape view expand unsqueeze transpose permute narrow select flatten neg exp "
    "tanh mul div".split()
)
"""Operators whose method of tensors takes the arguments of the operator's schema, in their order."""
INTO = {
    "mm.default": "mm",
    "bmm.default": "bmm",
    "addmm.default": "addmm",
    "mv.default": "mv",
    "cat.default": "cat",
    "stack.default": "stack",
    "sum.dim_IntList": "sum",
}
"""Operators that can write into given memory -> the function of torch's that does, by `out=`."""
SMALL, MOST = 1 << 18, 1 << 24
"""Bytes of a result that stays a plan's own from call to call, and of all of them, at most."""


class Plan:
    """The steps of a program, for values given from outside."""

    def __init__(self, program: Program, *, fuse: bool = True, exact: bool = False) -> None:
        self.whole = without_copies(merged(program))
        self.program, self.constants = constants(self.whole)
        self.order = scheduled(self.program, fuse, exact)
        self.last = self.last_uses()
        self.owner = self.owners()
        self.handed_out = self.program.handed_out()
        self.fixed = dict(self.constants)
        self.slots: dict[int, int] = {}
        self.buffers = Buffers()
        self.kernels: list[Instruction] = []
        self.moves: list[Instruction] = []
        self.given = [self.slot(n) for n in self.program.given]
        self.steps = [step for number, one in enumerate(self.order) if (step := self.step(number, one)) is not None]
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

    @staticmethod
    def reads(one: Step) -> Sequence[int]:
        if isinstance(one, Instruction):
            return one.operands
        return [n for member, _ in one.members for n in member.operands]

    @staticmethod
    def makes(one: Step) -> list[int]:
        return list(one.outs) if isinstance(one, Instruction) else [n for member, _ in one.members for n in member.outs]

    def last_uses(self) -> dict[int, int]:
        """The last step that reads each value; what is asked for is read after all."""
        last = {n: k for k, one in enumerate(self.order) for n in [*self.makes(one), *self.reads(one)]}
        return last | dict.fromkeys([*self.program.asked], len(self.order))

    def owners(self) -> dict[int, int]:
        """For each value the one whose memory it is; its last use covers that of all who share the memory."""
        owner = {n: n for n in range(len(self.program.samples))}
        for one in self.program.instructions:
            if one.aliases:
                for n in one.outs:
                    owner[n] = owner[one.operands[0]]
        for n, top in owner.items():
            self.last[top] = max(self.last.get(top, -1), self.last.get(n, -1))
        return owner

    def frees(self, number: int, one: Step) -> list[int]:
        """The places of values that nobody reads after this step."""
        return [
            self.slots[n]
            for n in dict.fromkeys([*self.reads(one), *self.makes(one)])
            if self.last[n] == number and n in self.slots and n not in self.program.given and n not in self.fixed
        ]

    def step(self, number: int, one: Step) -> Any:
        """How an instruction or a group runs; None for a view of memory that stays, which is made here and now."""
        if isinstance(one, Group):
            return self.stretch(number, one)
        if one.into and self.owns(number, one):
            if one.operands[0] in self.fixed:
                self.fixed[one.outs[0]] = memory = self.fixed[one.operands[0]]
                self.buffers.use(memory, self.last[one.outs[0]])
            return self.kernel(number, one, overload(base_name(one.function) + "_", one.function))
        if one.aliases and all(n in self.fixed for n in one.operands) and not one.writes:
            args, kwargs = filled(one, self.fixed)
            made = tensors(one.function(*args, **kwargs))
            for n, t in zip(one.outs, made, strict=True):
                self.fixed[n] = t
            return None
        movement = movement_of(one, self.program.samples)
        if movement is not None:
            return self.move(number, one, movement)
        given = self.memory(number, one.outs[0]) if one.name in INTO and not one.kept else None
        if given is not None:
            into = getattr(private.VariableFunctions, INTO[one.name])
            return self.kernel(number, one, one.function, into, {"out": given})
        return self.kernel(number, one, one.function)

    def kernel(self, number: int, one: Instruction, function: Any, call: Any = None, more: Any = None) -> replay.Kernel:
        """The step of one operator; `call` with `more` keywords in its place where that is the same."""
        self.kernels.append(one)
        name = base_name(function)
        if call is None:
            bound = name in BINDINGS and not one.kwargs and isinstance(one.args[0], Ref)
            entry = private.direct(function)
            call = private.TensorBase.__dict__.get(name, entry) if bound else entry
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
        width = sample.element_size()
        places = {value: k for k, value in enumerate(dict.fromkeys(one.operands))}
        operands = {place: self.slot(value) for value, place in places.items() if value not in self.fixed}
        addresses = [self.fixed[value].data_ptr() if value in self.fixed else 0 for value in places]
        memory = self.memory(number, n)
        result = (self.slot(n), maker(sample)) if memory is None else None
        regions = [
            (
                places[r.value],
                r.sizes,
                r.read * width,
                tuple([s * width for s in r.read_strides]),
                r.write * width,
                tuple([s * width for s in r.write_strides]),
            )
            for r in movement.regions
        ]
        fill = None
        if movement.fill is not None:
            fill = bytes(torch.tensor([movement.fill], dtype=sample.dtype).view(torch.uint8).tolist())
        addresses.append(0 if memory is None else memory.data_ptr())
        return replay.Move(regions, addresses, operands, result, width, sample.nbytes, fill, self.frees(number, one))

    def memory(self, number: int, n: int) -> Tensor | None:
        """Memory for a value that is the same at each call, where nobody outside ever sees it."""
        sample = self.program.samples[n]
        if n in self.handed_out or not sample.is_contiguous():
            return None
        memory = self.buffers.take(sample, number, self.last[n])
        if memory is not None:
            self.fixed[n] = memory
        return memory


class Buffers:
    """Memory that a plan keeps from call to call; what is not read any more is used again."""

    def __init__(self) -> None:
        self.bytes = 0
        self.last: dict[int, int] = {}
        self.all: dict[Any, list[Tensor]] = {}

    def take(self, sample: Tensor, number: int, last: int) -> Tensor | None:
        """Memory like that of `sample` from step `number` to step `last`; None where it would be too much."""
        alike = self.all.setdefault((sample.numel(), sample.dtype, sample.device), [])
        for memory in alike:
            if self.last[memory.data_ptr()] < number:
                break
        else:
            if sample.nbytes > SMALL or self.bytes + sample.nbytes > MOST:
                return None
            memory = torch.empty(sample.numel(), dtype=sample.dtype, device=sample.device)
            self.bytes += sample.nbytes
            alike.append(memory)
        self.use(memory, last)
        return memory.view(sample.shape)

    def use(self, memory: Tensor, last: int) -> None:
        """Note that memory of this plan's is read until step `last`."""
        self.last[memory.data_ptr()] = max(last, self.last.get(memory.data_ptr(), -1))


def maker(sample: Tensor) -> Callable[[], Tensor]:
    """A function that makes memory for a value like this one."""
    shape, dtype, device = tuple(sample.shape), sample.dtype, sample.device
    return lambda: torch.empty(shape, dtype=dtype, device=device)


class Layout:
    """The places of a stretch, and its steps over them."""

    def __init__(self, group: Group, samples: list[Tensor], wanted: set[int]) -> None:
        self.group, self.samples = group, samples
        self.emission = Emission(self.operand)
        self.operands: dict[int, int] = {}
        self.results: dict[int, int] = {}
        self.computed: dict[int, int] = {}
        last = {n: k for k, (member, _) in enumerate(group.members) for n in member.operands}
        for k, (member, expression) in enumerate(group.members):
            n = member.outs[0]
            if n in wanted:
                kind = "result_bool" if samples[n].dtype == torch.bool else "result"
                self.results[n] = self.emission.place(kind)
            self.computed[n] = self.emission.emit(expression, self.results.get(n))
            for read in {*member.operands, n}:
                if read in self.computed and last.get(read, k) <= k and read not in self.results:
                    self.emission.free.append(self.computed.pop(read))

    def operand(self, part: Ref) -> int:
        """Where a value lies."""
        if part.number in self.computed:
            return self.computed[part.number]
        if part.number not in self.operands:
            self.operands[part.number] = self.emission.place(*self.source(self.samples[part.number]))
        return self.operands[part.number]

    def source(self, t: Tensor) -> Place:
        """How the elements of an operand are read, in the order of the group's shape."""
        suffix = "_bool" if t.dtype == torch.bool else ""
        if t.numel() == 1:
            return f"single{suffix}", (), ()
        if tuple(t.shape) == self.group.shape and t.is_contiguous():
            return f"whole{suffix}", (), ()
        wide = t.expand(self.group.shape)
        return f"strided{suffix}", tuple(wide.shape), wide.stride()
