"""Rules run on traces: torch calls turned into steps.

A `Trace` is a tensor without data (on torch's meta device) that knows which instruction
made it; the `Tracer` above every other mode turns each torch call on traces into a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_opt.ops.table import BINDERS, CALLS, OPS, rename
from autograd_opt.verify.bits import encode
from autograd_opt.verify.ir import PURE, VIEW, Vocabulary
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


def name_of(func: Any) -> str:
    """The name of a function of torch's, by itself; of anything else, with its library or module before it."""
    if isinstance(func, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
        packet = func if isinstance(func, torch._ops.OpOverloadPacket) else func.overloadpacket
        return str(packet._qualified_op_name).removeprefix("aten::")
    if isinstance(func, FunctionType) and not f"{func.__module__}.".startswith("torch."):
        return f"{func.__module__}::{func.__qualname__}"
    return str(getattr(func, "__name__", "?"))


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """All tensors in values, however deep in lists, tuples and dictionaries."""
    out: list[torch.Tensor] = []
    stack = list(reversed(values))
    while stack:
        v = stack.pop()
        if isinstance(v, torch.Tensor):
            out.append(v)
        elif isinstance(v, (list, tuple)):
            stack += reversed(v)
        elif isinstance(v, dict):
            stack += reversed(v.values())
    return out


METADATA = frozenset(
    """shape dtype device ndim layout requires_grad is_leaf is_sparse size dim numel nelement stride is_contiguous
    is_floating_point is_complex element_size""".split()
)
"""What is read of a tensor without computing: neither a tensor nor a draw comes out."""
def broadcast(a: Any, b: Any) -> tuple[int, ...]:
    """The shape of an elementwise operation; `torch.broadcast_shapes` loads sympy."""
    a, b = (tuple(a), tuple(b)) if len(a) >= len(b) else (tuple(b), tuple(a))
    tail = a[len(a) - len(b):]
    if any(n != m and n != 1 and m != 1 for n, m in zip(tail, b, strict=True)):
        raise RuntimeError(f"the shapes {a} and {b} do not fit")
    return (*a[: len(a) - len(b)], *[m if n == 1 else n for n, m in zip(tail, b, strict=True)])


def elementwise(*args: Any) -> torch.Tensor | None:
    """The broadcast shape of the operands and their dtype; None where they are not traces of one dtype, and numbers."""
    shape: Any = None
    dtype: Any = None
    for a in args:
        if type(a) is Trace:
            if dtype is None:
                shape, dtype = a.shape, a.dtype
            elif a.dtype is not dtype:
                return None
            elif a.shape != shape:
                shape = broadcast(shape, a.shape)
        elif type(a) not in (int, float):
            return None
    return empty(shape, dtype) if dtype is not None and dtype.is_floating_point else None


def summed(x: Any, *size: Any) -> torch.Tensor | None:
    """The result of `sum_to_size`."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    lead = x.ndim - len(size) if type(x) is Trace and x.is_floating_point() else -1
    fits = lead >= 0 and all(type(n) is int and n in (1, m) for n, m in zip(size, x.shape[lead:], strict=True))
    return empty(size, x.dtype) if fits else None


def stacked(tensors: Any, dim: int = 0) -> torch.Tensor | None:
    """The result of `stack`."""
    first: Any = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else None
    alike = type(first) is Trace and all(
        type(t) is Trace and t.dtype is first.dtype and t.shape == first.shape for t in tensors)
    if not alike or type(dim) is not int or not -first.ndim - 1 <= dim <= first.ndim:
        return None
    at = dim % (first.ndim + 1)
    return empty((*first.shape[:at], len(tensors), *first.shape[at:]), first.dtype)


def joined(tensors: Any, dim: int = 0) -> torch.Tensor | None:
    """The result of `cat`."""
    first: Any = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else None
    if type(first) is not Trace or type(dim) is not int or not -first.ndim <= dim < first.ndim:
        return None
    at = dim % first.ndim
    rest = (*first.shape[:at], *first.shape[at + 1 :])
    alike = all(type(t) is Trace and t.dtype is first.dtype and t.ndim == first.ndim
                and (*t.shape[:at], *t.shape[at + 1 :]) == rest for t in tensors)
    size = sum(t.shape[at] for t in tensors) if alike else 0
    return empty((*first.shape[:at], size, *first.shape[at + 1 :]), first.dtype) if alike else None


def reduced(x: Any, dim: Any = None, keepdim: Any = False) -> torch.Tensor | None:
    """The result of `sum` and `mean`."""
    if type(x) is not Trace or not x.is_floating_point() or type(keepdim) is not bool:
        return None
    dims = range(x.ndim) if dim is None or dim in ((), []) else dim if isinstance(dim, (tuple, list)) else (dim,)
    if not all(type(d) is int and -x.ndim <= d < x.ndim for d in dims):
        return None
    gone = {d % x.ndim for d in dims}
    kept = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    return empty(kept, x.dtype) if len(gone) == len(dims) else None


def product(x: Any, y: Any) -> torch.Tensor | None:
    """The result of `matmul` and of its kinds for one rank."""
    if not (type(x) is Trace and type(y) is Trace and x.dtype is y.dtype and x.is_floating_point()):
        return None
    if not (x.ndim and y.ndim):
        return None
    left = x.shape if x.ndim > 1 else (1, *x.shape)
    right = y.shape if y.ndim > 1 else (*y.shape, 1)
    if left[-1] != right[-2]:
        return None
    batch = left[:-2] if left[:-2] == right[:-2] else broadcast(left[:-2], right[:-2])
    return empty((*batch, *left[-2:-1][: x.ndim > 1], *right[-1:][: y.ndim > 1]), x.dtype)


def placed(g: Any, shape: Any, *where: Any) -> torch.Tensor | None:
    """The result of the backward of an index: g in zeros of this shape."""
    sizes = isinstance(shape, (tuple, list)) and all(type(n) is int and n >= 0 for n in shape)
    fits = sizes and type(g) is Trace and g.is_floating_point() and all(type(w) is int for w in where)
    return empty(shape, g.dtype) if fits else None


def like_both(g: Any, ans: Any, dim: Any, dtype: Any) -> torch.Tensor | None:
    """The result of the backward of `softmax` and `log_softmax`."""
    alike = type(g) is Trace and type(ans) is Trace and g.dtype is ans.dtype is dtype and g.shape == ans.shape
    return empty(g.shape, dtype) if alike and type(dim) is int and -g.ndim <= dim < g.ndim else None


def chosen(condition: Any, x: Any, y: Any) -> torch.Tensor | None:
    """The result of `where`."""
    if type(condition) is not Trace or condition.dtype is not torch.bool:
        return None
    found = elementwise(x, y)
    return None if found is None else empty(broadcast(condition.shape, found.shape), found.dtype)


def compared(x: Any, y: Any) -> torch.Tensor | None:
    """The result of a comparison."""
    found = elementwise(x, y)
    return None if found is None else empty(found.shape, torch.bool)


def shaped(name: str, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The result of a call of one of `SHAPED`; None where torch has to be asked."""
    try:
        return SHAPED[name](*args, **kwargs)
    except TypeError:  # an argument that is seldom there
        return None


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


SHAPED: dict[str, Callable[..., torch.Tensor | None]] = {
    **dict.fromkeys(
        """add sub rsub mul div neg pow exp log sqrt rsqrt sin cos tanh sigmoid square reciprocal tanh_backward
        sigmoid_backward threshold_backward""".split(),
        elementwise,
    ),
    "sum_to_size": summed,
    "stack": stacked,
    "cat": joined,
    **dict.fromkeys(("select_backward", "slice_backward", "diagonal_backward"), placed),
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), product),
    **dict.fromkeys(("sum", "mean"), reduced),
    **dict.fromkeys(("softmax_backward", "log_softmax_backward"), like_both),
    "where": chosen,
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), compared),
}
"""Shape and dtype of frequent operators' results, where they need not be asked of torch: what they compute is slow."""


class Tracer(TorchFunctionMode):
    """Above every other mode: turns each torch call on traces into a step."""

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
        with torch._C.DisableTorchFunction():
            t = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")  # type: ignore[arg-type]
        t.__class__ = Trace
        t.position = position  # type: ignore[attr-defined]
        return t  # type: ignore[return-value]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        short = name_of(func)
        with torch._C.DisableTorchFunction():
            if (short if short != "__get__" else func.__self__.__name__) in METADATA:
                return func(*args, **kwargs)
            if short in CREATORS and "out" not in kwargs:
                return self.created(short, func, args, kwargs)
            name = CALLS.get(func)
            if name is not None and not isinstance(name, str):
                name = name(*args, **kwargs)
            result: Any
            if name in SHAPED:
                result = shaped(name, args, kwargs)
                if result is not None:
                    return self.step(*self.canonical(func, args, kwargs), result)
            given = tensors_in(args, kwargs)
            versions = [t._version for t in given]
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
            if in_place or any(t._version != version for t, version in zip(given, versions, strict=True)):
                raise Untraceable(f"a rule writes in place ({short})")
            if not isinstance(result, (torch.Tensor, tuple, list)):
                return result
            if (
                isinstance(result, torch.Tensor)
                and result.device.type == "meta"
                and "device" in kwargs
                and not any(isinstance(a, Trace) for a in given)
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
        name = name_of(func)
        if name == "__get__":
            name = func.__self__.__name__
        name = name.strip("_") if name.startswith("__") else name
        if not SAME.get(name, "").startswith("logical_") or args[0].dtype is torch.bool:
            name = SAME.get(name, name)
        if name in SWAPPED:
            return SWAPPED[name], *self.split(OPS[SWAPPED[name]].operands, args[::-1], {}, {})
        if isinstance(func, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)) and "::" not in name:
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
            inside = tensors_in(value)
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
