"""From kernels as they were seen to a program over values: written once, read by number, in any order that fits.

A tensor stands for a place: a storage with sizes and strides.  Most storages are written whole, by the kernel that made
them or in place: there each write makes a new value.  Where a storage is seen through several shapes and written, or
is written and belongs to somebody outside, its kernels keep their order and run as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.engine.accumulate import is_dense
from autograd_opt.plans.capture import Kernel, Unrepeatable
from autograd_opt.plans.operators import base_name, full_name, functional, mapped, parts
from autograd_opt.plans.placeholders import of_torch
from autograd_opt.record.inplace import RANDOM_FILLS

Tensor = torch.Tensor
aten = torch.ops.aten
INTO = {"threshold_backward.grad_input": (aten.threshold_backward.default, "grad_input")}
"""Operators that write their result into an argument -> those that return it, and the argument's name."""
FRESH = frozenset(
    "empty.memory_format empty_like.default empty_strided.default new_empty.default new_empty_strided.default".split()
)
"""Operators whose memory has no values yet."""
ALIASES = frozenset("detach.default alias.default _lazy_clone.default lift_fresh.default".split())
"""Operators whose result is the value of their operand, in the same shape."""
TRUTHS = frozenset("eq ne lt le gt ge logical_and logical_or logical_xor logical_not".split())
"""Operators that return truth values, and write them in place as numbers."""


@dataclass(frozen=True)
class Ref:
    """A value, by number."""

    number: int


@dataclass(frozen=True)
class Instruction:
    """One operator on values; `outs` are the numbers of its results."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: tuple[int, ...]
    kept: bool = False
    """True if it has an effect, or touches memory that is written in order: neither dropped, moved nor merged."""
    into: bool = False
    """True if as seen it wrote its result into its first operand; one that is kept, too, still does."""
    aliases: bool = False
    """True if a result is memory of an operand."""

    @property
    def name(self) -> str:
        """`name.overload` of the operator."""
        return full_name(self.function)

    @cached_property
    def writes(self) -> bool:
        """True if it writes an argument."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.function._schema.arguments)

    @cached_property
    def operands(self) -> tuple[int, ...]:
        """The numbers of the values that it reads."""
        return tuple([a.number for a in parts((self.args, self.kwargs)) if isinstance(a, Ref)])


@dataclass
class Program:
    """Instructions over values, some of which are given from outside and some asked for."""

    instructions: list[Instruction] = field(default_factory=list)
    samples: list[Tensor] = field(default_factory=list)
    """For each value, a tensor of its shape, strides, dtype and device."""
    given: dict[int, Tensor] = field(default_factory=dict)
    """Values from outside, by number, with the tensor that each was."""
    asked: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """For each value asked for, a number that it shares with those in whose memory it was; -1 where nobody sees it."""

    def handed_out(self) -> set[int]:
        """The values whose memory may be that of a result."""
        found = set(self.asked)
        for one in reversed(self.instructions):
            if (one.aliases or one.into) and found.intersection(one.outs):
                found.update(one.operands if one.aliases else one.operands[:1])
        return found


def place_of(t: Tensor) -> tuple[Any, ...]:
    """Which elements of which storage a tensor is."""
    return (
        private.storage_id(t.untyped_storage()),
        t.storage_offset(),
        tuple(t.shape),
        t.stride(),
        t.dtype,
        t.is_conj(),
        t.is_neg(),
    )


def lazy(t: Tensor) -> bool:
    """Is the memory of `t` not its value: that of a conjugate or a negative which nobody has computed yet?"""
    return t.is_conj() or t.is_neg()


def storage_of(t: Tensor) -> int:
    """Which storage a tensor lies in."""
    return private.storage_id(t.untyped_storage())


class Builder:
    """Makes the program of a list of kernels."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.program = Program()
        self.current: dict[tuple[Any, ...], int] = {}
        self.outside: set[int] = set()
        self.made: set[int] = set()
        self.handed: dict[int, int] = {}  # tensors that are handed out, by their ids
        self.draws: set[int] = set()  # kernels that fill fresh memory with random numbers
        self.ordered = self.storages_in_order(kernels)
        for kernel in kernels:
            self.add(kernel)

    def storages_in_order(self, kernels: Sequence[Kernel]) -> set[int]:
        """The storages whose kernels keep their order; fills `outside` and `made` on the way."""
        places: dict[int, set[tuple[Any, ...]]] = {}
        written: set[int] = set()
        ordered: set[int] = set()
        fresh: set[int] = set()  # memory without values
        writes: list[tuple[set[int], set[int]]] = []
        for kernel in kernels:
            inputs = {storage_of(t) for t in kernel.inputs}
            self.outside |= inputs - self.made
            self.made |= {storage_of(t) for t in kernel.outputs} - self.outside
            for t in kernel.inputs + kernel.outputs:
                places.setdefault(storage_of(t), set()).add(place_of(t))
            if kernel.name in FRESH:
                fresh |= self.made.intersection(map(storage_of, kernel.outputs))
            if not kernel.written:
                continue
            here = {storage_of(t) for t in kernel.written}
            if here <= fresh and fills(kernel):
                self.draws.add(id(kernel))
            fresh -= here
            writes.append((inputs, here))
            written |= here
            if (rewritten(kernel) is None and id(kernel) not in self.draws) or any(len(places[s]) > 1 for s in here):
                ordered |= here
        ordered |= written & self.outside
        more = True
        while more:  # what such memory is written into is ordered, too
            more = False
            for inputs, here in writes:
                if not (here <= ordered or ordered.isdisjoint(inputs)):
                    ordered |= here
                    more = True
        return ordered

    def new_value(self, t: Tensor) -> int:
        self.program.samples.append(t)
        return len(self.program.samples) - 1

    def value(self, t: Tensor) -> int:
        """The number of what a tensor holds now."""
        place = place_of(t)
        if place not in self.current:
            if storage_of(t) not in self.outside:
                raise Unrepeatable("a view is made by no operator")
            if lazy(t):
                raise Unrepeatable("an operand is a lazy conjugate")
            self.current[place] = self.new_value(t)
            self.program.given[self.current[place]] = t
        return self.current[place]

    def refs(self, structure: Any) -> Any:
        """The structure with values in the places of tensors."""
        return mapped(lambda x: Ref(self.value(x)) if isinstance(x, Tensor) else x, structure)

    def add(self, kernel: Kernel) -> None:
        """Append what the kernel computes."""
        storages = {storage_of(t) for t in kernel.inputs + kernel.outputs}
        if id(kernel) in self.draws and not storages & self.ordered:
            args, kwargs = self.refs(kernel.args), self.refs(kernel.kwargs)
            (place,) = map(place_of, kernel.written)
            self.current[place] = self.new_value(kernel.written[0])
            out = (self.current[place],)
            self.program.instructions.append(Instruction(kernel.function, args, kwargs, out, kept=True, into=True))
            return
        draws = torch.Tag.nondeterministic_seeded in kernel.function.tags
        kept = bool(storages & self.ordered) or draws or not of_torch(kernel.function)
        if kernel.name in ALIASES and not kept:
            self.current[place_of(kernel.result)] = self.value(kernel.args[0])
            return
        if kernel.written and not kept:
            function, args, kwargs, into = rewritten(kernel) or (None, (), {}, False)
            t = kernel.written[0]
            args, kwargs = self.refs(args), self.refs(kwargs)
            self.current[place_of(t)] = self.new_value(t)
            self.program.instructions.append(
                Instruction(function, args, kwargs, (self.current[place_of(t)],), into=into)
            )
            return
        args, kwargs = self.refs(kernel.args), self.refs(kernel.kwargs)
        if not kept and isinstance(kernel.result, Tensor) and place_of(kernel.result) in self.current:
            return  # an operand itself
        inputs = {storage_of(t) for t in kernel.inputs}
        outs = []
        for t in kernel.outputs:
            if kept and place_of(t) in self.current:
                outs.append(self.current[place_of(t)])
            else:
                outs.append(self.new_value(t))
                self.current[place_of(t)] = outs[-1]
        function = kernel.function
        if kernel.name == "matmul.default" and all(t.dim() == 2 for t in kernel.inputs):
            function = aten.mm.default  # what it calls
        if kernel.name == "_lazy_clone.default":  # of memory that steps of a plan write
            if not is_dense(kernel.args[0]):
                raise Unrepeatable("it copies a tensor whose elements share memory")
            function = aten.clone.default
        self.program.instructions.append(
            Instruction(
                function,
                args,
                kwargs,
                tuple(outs),
                kept=kept or not outs,
                aliases=any(storage_of(t) in inputs for t in kernel.outputs),
            )
        )

    def shows_outside(self, number: int) -> bool:
        """True if a value is memory from outside."""
        return any(storage_of(t) == storage_of(self.program.samples[number]) for t in self.program.given.values())

    def ask(self, t: Tensor) -> int:
        """The value of a tensor that is handed out: memory from outside only where it was so in what was seen."""
        if id(t) not in self.handed:
            number = self.value(t)
            given = self.program.given.get(number)
            if given is not None or number in self.program.asked:
                shared = given is None or storage_of(given) == storage_of(t)
                function = aten.alias.default if shared else aten.clone.default
                one = Instruction(function, (Ref(number),), {}, (self.new_value(t),), aliases=shared)
                self.program.instructions.append(one)
                (number,) = one.outs
            self.handed[id(t)] = number
        self.program.asked.append(self.handed[id(t)])
        self.program.groups.append(storage_of(t))
        return self.handed[id(t)]

    def save(self, t: Tensor) -> None:
        """Ask for the value of a tensor that nobody sees."""
        self.program.asked.append(self.value(t))
        self.program.groups.append(-1)


def fills(kernel: Kernel) -> bool:
    """True if a kernel does nothing but fill one tensor with random numbers, whatever it held."""
    return (
        torch.Tag.nondeterministic_seeded in kernel.function.tags
        and len(kernel.written) == 1
        and base_name(kernel.function) in RANDOM_FILLS
        and len(kernel.inputs) == 1
        and kernel.inputs[0] is kernel.written[0]
    )


def rewritten(kernel: Kernel) -> tuple[Any, tuple[Any, ...], dict[str, Any], bool] | None:
    """The same as an operator that returns what `kernel` writes, if it writes one tensor whole; and is it in place?"""
    if len(kernel.written) != 1:
        return None
    (t,) = kernel.written
    others = [x for x in kernel.inputs if x is not t]
    if not (t.is_contiguous() or (is_dense(t) and not any(x.dim() for x in others))) or any(
        (x.dtype != t.dtype and (x.dim() or not t.dim())) or x.dtype.is_complex != t.dtype.is_complex
        for x in others
        if x.dtype != torch.bool
    ):
        return None
    if kernel.name in INTO:
        function, name = INTO[kernel.name]
        return function, kernel.args, {k: v for k, v in kernel.kwargs.items() if k != name}, False
    if kernel.name == "copy_.default":
        source = kernel.args[1]
        if not t.is_contiguous() or source.shape != t.shape or source.dtype != t.dtype or source.device != t.device:
            return None
        return aten.clone.default, (source,), {"memory_format": torch.contiguous_format}, False
    function = functional(kernel.function)
    if (
        function in (None, kernel.function)
        or kernel.args[0] is not t
        or (t.dtype != torch.bool and base_name(function) in TRUTHS)
        or torch.Tag.nondeterministic_seeded in kernel.function.tags
    ):
        return None
    return function, kernel.args, kernel.kwargs, True
