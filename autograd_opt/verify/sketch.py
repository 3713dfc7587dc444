"""Rules run on sketches: of each value, only its shape, its dtype and how it depends on the cotangent.

Nothing is recorded, and no tensor made: that is enough to see that most rules are additive, in a third of the time that
their traces take.  A rule that does anything else than call the functions of `SKETCHED` has to be traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autograd_opt.verify.bits import encode
from autograd_opt.verify.calls import Untraceable, canonical, name_of
from autograd_opt.verify.ir import Head
from autograd_opt.verify.linear import joint_slots, slots
from autograd_opt.verify.shapes import DESCRIBED, SHAPED, shaped

FIXED, ADDITIVE, ZERO = 0, 1, 2
"""How a value depends on the cotangent: not, additively, or it is zero."""
TURNS = frozenset({"mT", "T", "t"})
SKETCHED = TURNS | frozenset(SHAPED)
"""Functions without any effect, of whose result shape and dtype are known."""


def carried(head: Head, floating: Sequence[bool], states: Sequence[int]) -> bool:
    """Is what an instruction makes of such operands, one of them additive in the cotangent, so too?"""
    touched = [k for k, state in enumerate(states) if state == ADDITIVE]
    if len(touched) == 1 and touched[0] in slots(head, floating):
        return True
    together = joint_slots(head, floating)
    return set(touched) <= set(together) and all(states[k] != FIXED for k in together)


class Sketch:
    """What a rule takes for a tensor: it answers to the class, and has its methods."""

    __slots__ = ("dtype", "shape", "state", "used")
    __class__ = property(lambda self: torch.Tensor)
    __hash__ = object.__hash__

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, state: int, used: list[Head]):
        self.shape, self.dtype, self.state, self.used = shape, dtype, state, used

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch.Tensor, name)
        if callable(found):
            return lambda *args, **kwargs: call(found, (self, *args), kwargs)
        return call(found.__get__, (self,), {})

    def __bool__(self) -> bool:
        raise Untraceable("the rule looks at values")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


def operator(name: str) -> Callable[..., Any]:
    """The method that Python's operator calls; one that writes in place is refused, as every unknown call."""
    func = getattr(torch.Tensor, name)

    def method(self: Sketch, *args: Any) -> Any:
        return call(func, (self, *args), {})

    return method


for _name in """add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv pow rpow ipow matmul rmatmul
        imatmul neg pos abs invert floordiv rfloordiv ifloordiv mod rmod imod eq ne lt le gt ge and rand iand or ror ior
        xor rxor ixor lshift rlshift ilshift rshift rrshift irshift len getitem setitem iter float int index complex
        contains""".split():
    if hasattr(torch.Tensor, f"__{_name}__"):
        setattr(Sketch, f"__{_name}__", operator(f"__{_name}__"))
DESCRIBED.add(Sketch)


class Sketching(TorchFunctionMode):
    """Above every other mode: no function of torch's runs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


def call(func: Any, args: Any, kwargs: Any) -> Sketch:
    """The sketch of what a function of torch's makes.

    Raises
    ------
    Untraceable : it is none of `SKETCHED`, or it is not additive.
    """
    if kwargs == {} and len(args) == 1 and type(args[0]) is Sketch and name_of(func) == "zeros_like":
        return Sketch(args[0].shape, args[0].dtype, ZERO, args[0].used)
    name, operands, attributes = canonical(func, args, kwargs)
    if name not in SKETCHED or any(type(t) is not Sketch for t in operands):
        raise Untraceable(f"{name} is not sketched")
    result = turned(*args) if name in TURNS else shaped(name, args, kwargs)
    if result is None:
        raise Untraceable(f"{name} of such operands is not sketched")
    used = operands[0].used
    states = [t.state for t in operands]
    if ADDITIVE not in states:
        return Sketch(*result, FIXED, used)
    head = Head(name, tuple(sorted([(k, encode(v)) for k, v in attributes.items()])), 0, False, 0)
    if not (result[1].is_floating_point and carried(head, [t.dtype.is_floating_point for t in operands], states)):
        raise Untraceable(f"{name} is not additive")
    used.append(head)
    return Sketch(*result, ADDITIVE, used)


def turned(x: Sketch) -> tuple[tuple[int, ...], torch.dtype] | None:
    """A matrix turned."""
    return ((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype) if x.ndim == 2 else None
