"""Rules run on traces: torch calls turned into steps.

A `Trace` is a tensor without data (on torch's meta device) that knows which instruction
made it; the `Tracer` above every other mode turns each torch call on traces into a step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.dispatch_modes import ThreadedMode
from autograd_opt.ops.table import CALLS, OPS
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.calls import Untraceable, canonical, name_of, tensors_in
from autograd_opt.verification.program.instruction_names import ADDS_TO, CONSTANT, CREATORS, FULL
from autograd_opt.verification.program.instructions import PURE, VIEW, Vocabulary
from autograd_opt.verification.program.shapes import DESCRIBED, SHAPED, shaped


class Draws(Untraceable):
    """A rule draws random numbers: what it computes is no function of what it reads."""


class Undrawn(ThreadedMode):
    """Refuses operators that draw."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled: torch need not put its compiler's switch around every call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Draws(f"a rule draws random numbers ({func.__name__})")
        return func(*args, **(kwargs or {}))


class Trace(torch.Tensor):
    """A tensor without data, and the position of the instruction that makes it."""

    position: int
    __torch_function__ = private.disabled_torch_function_impl


DESCRIBED.add(Trace)


METADATA = frozenset(
    """shape dtype device ndim layout is_sparse size dim ndimension numel nelement is_floating_point is_complex
    is_signed element_size itemsize nbytes len is_tensor is_same_size result_type can_cast promote_types""".split()
)
"""What is read of a tensor without computing: neither a tensor nor a draw comes out, nor anything about its memory."""


def empty(shape: Any, dtype: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward


def convolved(g: Any, x: Any, w: Any, bias: Any, *rest: Any) -> tuple[Any, ...] | None:
    """The result of the backward kernel of a convolution: a cotangent of each operand, where it is wanted."""
    wanted = rest[-1]
    alike = all(type(t) is Trace and t.dtype is g.dtype for t in (g, x, w)) and g.is_floating_point()
    if not alike or not isinstance(wanted, (tuple, list)) or not isinstance(bias, (tuple, list)):
        return None
    return tuple([empty(shape, g.dtype) if want else None
                  for shape, want in zip((x.shape, w.shape, bias), wanted, strict=True)])


class Tracer(TorchFunctionMode):
    """Above every other mode: turns each torch call on traces into a step."""

    users = False
    """Do traces say that they are on the device of what they stand for?"""
    turned = False
    """What a rule is told of an operand's strides; its result is the same, laid out otherwise."""

    def __init__(self, vocabulary: Vocabulary, places: int, device: str):
        super().__init__()
        self.vocabulary = vocabulary
        self.device = device
        self.places = places
        self.steps: list[tuple[int, tuple[int, ...]]] = []
        self.made: dict[Any, Any] = {}

    def value(self, type: int, position: int) -> Trace:
        """A trace of this type standing for what is at `position`."""
        shape, dtype, _, _ = self.vocabulary.types[type]
        with private.DisableTorchFunction():
            t = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")  # type: ignore[arg-type]
        t.__class__ = Trace
        t.position = position  # type: ignore[attr-defined]
        return t  # type: ignore[return-value]

    def given(self, args: list[Any], attributes: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """What a rule is called with."""
        return args, attributes

    def number(self, name: str, value: Any) -> Any:
        """What stands for an operand that is no tensor."""
        return value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        short = name_of(func)
        with private.DisableTorchFunction():
            read = short if short != "__get__" else func.__self__.__name__
            if read in METADATA:
                return torch.device(self.device) if self.users and read == "device" else func(*args, **kwargs)
            if short in CREATORS and "out" not in kwargs:
                return self.created(short, func, args, kwargs)
            name = CALLS.get(func)
            if name is not None and not isinstance(name, str):
                name = name(*args, **kwargs)
            result: Any
            if name in SHAPED:
                found = shaped(name, args, kwargs)
                if found is not None:
                    return self.step(*canonical(func, args, kwargs), empty(*found))
            given = tensors_in(args, kwargs)
            versions = [private.version_of(t) for t in given]
            pure = isinstance(name, str) and OPS[name].flags & (PURE | VIEW)
            result = convolved(*args) if func is CONVOLUTION_BACKWARD and len(args) == 11 else None
            try:
                if result is None:
                    with nullcontext() if pure else Undrawn():
                        result = func(*args, **kwargs)
            except (RuntimeError, NotImplementedError) as error:
                if "meta" in str(error) or "data-dependent" in str(error):
                    raise Untraceable(str(error)) from error
                raise
            in_place = short == "__set__" or (short.endswith("_") and not short.endswith("__"))
            if in_place or any(private.version_of(t) != version for t, version in zip(given, versions, strict=True)):
                raise Untraceable(f"a rule writes in place ({short})")
            if not tensors_in(result):
                if given and short.strip("_") not in METADATA:
                    raise Untraceable(f"a rule looks at more than values, shapes and dtypes ({read})")
                return result
            if (
                isinstance(result, torch.Tensor)
                and result.device.type == "meta"
                and "device" in kwargs
                and not any(isinstance(a, Trace) for a in given)
            ):
                made = func(*args, **{**kwargs, "device": "cpu"})
                return self.known(self.constant(made), result)
            name, operands, attributes = canonical(func, args, kwargs)
            if isinstance(result, torch.Tensor):
                if any(result is a for a in args):
                    return result
                return self.step(name, operands, attributes, result)
            metas = tuple((r.shape, r.dtype, self.device) if isinstance(r, torch.Tensor) else None for r in result)
            parent = self.append(name, operands, attributes, self.vocabulary.type(metas, None, None))
            made = [
                None if r is None else self.step("output", [parent], {"i": i} if i else {}, r)
                for i, r in enumerate(result)
            ]
            return type(result)(made)

    def created(self, short: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A tensor of one number; one like it that has been made before stands for it, as nothing may write to it."""
        try:
            key = (func, args, tuple(kwargs.items()))
            found = self.made.get(key)
        except TypeError:  # sizes in a list
            key, found = None, None
        if found is None:
            found = self.full(CREATORS[short], func(*args, **kwargs))
            if key is not None:
                self.made[key] = found
        return found

    def append(self, name: str, operands: list[Any], attributes: dict[str, Any], type: int) -> int:
        places = []
        for t in operands:
            if isinstance(t, int):
                places.append(t)
            elif isinstance(t, Trace):
                places.append(t.position)
            else:
                places.append(self.constant(t))
        if name in ADDS_TO and places and self.is_zero(places[0]):
            places, attributes = places[1:], {**attributes, "x": "zeros"}
        try:
            coded = tuple(sorted((k, encode(v)) for k, v in attributes.items()))
        except TypeError as error:
            raise Untraceable(f"{name}: an attribute of unknown meaning ({error})") from error
        self.steps.append((self.vocabulary.head(name, coded, type), tuple(places)))
        return self.places + len(self.steps) - 1

    def step(self, name: str, operands: list[Any], attributes: dict[str, Any], result: torch.Tensor) -> Any:
        """Append one instruction and return the trace of its result."""
        if name != FULL and not any(isinstance(o, (Trace, int)) for o in operands):
            if result.device.type != "meta":
                return result
            raise Untraceable(f"{name} makes a tensor from nothing that is traced")
        position = self.append(
            name, operands, attributes, self.vocabulary.type(result.shape, result.dtype, self.device)
        )
        return self.known(position, result)

    def known(self, position: int, result: torch.Tensor) -> Any:
        """The trace of a meta tensor whose instruction is at `position`."""
        with private.DisableTorchFunction():
            trace = result.detach() if type(result) is Trace else result
            trace.__class__ = Trace
            trace.position = position  # type: ignore[attr-defined]
        return trace

    def taken(self, value: Any) -> Any:
        """What a rule returns, as a trace; None where it is none."""
        return value if isinstance(value, Trace) else None

    def full(self, value: float, result: torch.Tensor) -> Any:
        """A tensor of one number, whatever it was made like."""
        return self.step(FULL, [], {"value": value}, result.to("meta"))

    def is_zero(self, place: int) -> bool:
        if place < self.places:
            return False
        head = self.vocabulary.heads[self.steps[place - self.places][0]]
        return head.op == FULL and head.value("value") == 0.0

    def constant(self, t: torch.Tensor) -> int:
        """A small tensor that a rule makes itself, by its bits."""
        if t.device.type == "meta" or t.numel() > 4096:
            raise Untraceable("a constant without readable values")
        data = encode(t.tolist()), encode(t.dtype)
        head = self.vocabulary.head(
            CONSTANT, (("value", data[0]), ("dtype", data[1])), self.vocabulary.type(t.shape, t.dtype, self.device)
        )
        self.steps.append((head, ()))
        return self.places + len(self.steps) - 1
