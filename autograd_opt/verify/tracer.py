"""Rules run on traces: torch calls turned into steps.

A `Trace` is a tensor without data (on torch's meta device) that knows which instruction
made it; the `Tracer` above every other mode turns each torch call on traces into a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from autograd_opt.ops.table import BINDERS, CALLS, OPS, rename
from autograd_opt.verify.bits import encode
from autograd_opt.verify.ir import Vocabulary
from autograd_opt.verify.words import ADDS_TO, BY_FORWARD, CONSTANT, CREATORS, FULL, SAME, SWAPPED, WORDS


class Untraceable(Exception):
    """A rule does something that has no trace: it looks at values, or is private."""


class Draws(Untraceable):
    """A rule draws random numbers: what it computes is no function of what it reads."""


class Undrawn(TorchDispatchMode):
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
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


class Tracer(TorchFunctionMode):
    """Above every other mode: turns each torch call on traces into a step."""

    def __init__(self, vocabulary: Vocabulary, places: int, device: str):
        super().__init__()
        self.vocabulary = vocabulary
        self.device = device
        self.places = places
        self.steps: list[tuple[int, tuple[int, ...]]] = []

    def value(self, type: int, position: int) -> Trace:
        """A trace of this type standing for what is at `position`."""
        shape, dtype, _, _ = self.vocabulary.types[type]
        with torch._C.DisableTorchFunction():
            t = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")  # type: ignore[arg-type]
        t.__class__ = Trace
        t.position = position  # type: ignore[attr-defined]
        return t  # type: ignore[return-value]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        short = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunction():
            given = [(t, t._version) for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
            try:
                with Undrawn():
                    result = func(*args, **kwargs)
            except (RuntimeError, NotImplementedError) as error:
                if "meta" in str(error) or "data-dependent" in str(error):
                    raise Untraceable(str(error)) from error
                raise
            in_place = short == "__set__" or (short.endswith("_") and not short.endswith("__"))
            if in_place or any(t._version != version for t, version in given):
                raise Untraceable(f"a rule writes in place ({short})")
            if not isinstance(result, (torch.Tensor, tuple, list)):
                return result
            if isinstance(result, torch.Tensor) and short in CREATORS:
                return self.full(CREATORS[short], result)
            if (
                isinstance(result, torch.Tensor)
                and result.device.type == "meta"
                and "device" in kwargs
                and not any(isinstance(a, Trace) for a in tree_flatten((args, kwargs))[0])
            ):
                made = func(*args, **{**kwargs, "device": "cpu"})
                return self.known(self.constant(made), result)
            name, operands, attributes = self.canonical(func, args, kwargs)
            if isinstance(result, torch.Tensor):
                if any(result is a for a in args):
                    return result
                return self.step(name, operands, attributes, result)
            tensors = [r for r in result if isinstance(r, torch.Tensor)]
            if not tensors:
                return result
            metas = tuple((r.shape, r.dtype, self.device) if isinstance(r, torch.Tensor) else None for r in result)
            parent = self.append(name, operands, attributes, self.vocabulary.type(metas, None, None))
            made = [
                None if r is None else self.step("output", [parent], {"i": i} if i else {}, r)
                for i, r in enumerate(result)
            ]
            return type(result)(made)

    def canonical(self, func: Any, args: Any, kwargs: Any) -> tuple[str, list[Any], dict[str, Any]]:
        """The call in the words of the operator table, or in those of `WORDS`, or as it stands."""
        name = CALLS.get(func) or BY_FORWARD.get(func)
        if func is torch.einsum and "einsum" in OPS:
            operands, attributes = BINDERS["einsum"](args[0], args[1:])
            return "einsum", *self.split((), operands, attributes, OPS["einsum"].attributes)
        if callable(name):
            name = name(*args, **kwargs)
        if isinstance(name, str):
            try:
                operands, attributes = BINDERS[name](*args, **rename(kwargs, OPS[name].operands))
                return name, *self.split(OPS[name].operands, operands, attributes, OPS[name].attributes)
            except TypeError:
                pass
        name = getattr(func, "__name__", "?")
        if name == "__get__":
            name = func.__self__.__name__
        name = name.strip("_") if name.startswith("__") else name
        if not SAME.get(name, "").startswith("logical_") or args[0].dtype is torch.bool:
            name = SAME.get(name, name)
        if name in SWAPPED:
            return SWAPPED[name], *self.split(OPS[SWAPPED[name]].operands, args[::-1], {}, {})
        if isinstance(func, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
            name = f"aten::{name}"
        if name == "to":
            kwargs = {**kwargs, "dtype": func(*args, **kwargs).dtype}
            args = args[:1]
        if name in WORDS:
            names, defaults, binder = WORDS[name]
            operands, attributes = binder(*args, **rename(kwargs, names))
            return name, *self.split(names, operands, attributes, defaults)
        tensors, attributes = [], {}
        for key, value in [*((f"#{k}", a) for k, a in enumerate(args)), *kwargs.items()]:
            inside = [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]
            tensors += inside
            if not isinstance(value, torch.Tensor):
                attributes[key] = f"{len(inside)} tensors" if inside else value
        return name, tensors, attributes

    def split(self, names: Sequence[str], operands: Any, attributes: dict[str, Any], defaults: dict[str, Any]) -> Any:
        """Tensors on one side, numbers and attributes that are not the default on the other."""
        out = {}
        tensors = []
        for k, value in enumerate(operands):
            if isinstance(value, torch.Tensor):
                tensors.append(value)
            else:
                out[names[k] if k < len(names) else f"#{k}"] = value
        for key, value in attributes.items():
            if isinstance(value, torch.Tensor):
                raise Untraceable(f"a tensor as attribute {key}")
            if key not in defaults or encode(defaults[key]) != encode(value):
                out[key] = value
        return tensors, out

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
        with torch._C.DisableTorchFunction():
            trace = result.detach() if type(result) is Trace else result
            trace.__class__ = Trace
            trace.position = position  # type: ignore[attr-defined]
        return trace

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
