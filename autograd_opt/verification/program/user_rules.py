"""The user's rules on traces: whatever they do that a run would not do alike makes them untraceable, caught or not.

A rule may catch what its trace refuses, branch on where it runs, and keep what it makes for the next call.  So every
refusal stays noted; what reads no trace is computed as in a run, on real tensors, and enters a program by its values;
and a trace that outlives its rule, in a cache of the user's, is found and says so where it is used.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.errors import GraphError, at
from autograd_opt.ops.registered import KEPT
from autograd_opt.verification.program.calls import Untraceable, name_of, tensors_in
from autograd_opt.verification.program.instruction_names import FULL
from autograd_opt.verification.program.tracer import Draws, Trace, Tracer, Undrawn, empty

T = TypeVar("T")
MEMORY = frozenset("data_ptr _version untyped_storage storage grad grad_fn".split())
"""What is read of a tensor that is another thing in the next run."""
LAID_OUT = frozenset("as_strided as_strided_copy as_strided_scatter _reshape_alias _reshape_alias_copy".split())
"""What reads elements by where they lie in memory: equal values may be laid out otherwise in the next run."""


class Watch(Undrawn):
    """Notes what fails beneath the functions that a tracer sees."""

    def __init__(self, tracer: UsersTracer):
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except Exception as error:
            if not self.tracer.inside:
                self.tracer.refuse(error)
            raise


class Left(torch.Tensor):
    """A trace that a rule has kept: it has no values, and says whose it is."""

    said = "a rule has kept a tensor without data"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise GraphError(next((t.said for t in tensors_in(args, kwargs or {}) if isinstance(t, Left)), cls.said))

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"<{self.said}>"


class UsersTracer(Tracer):
    """Traces say that they are on the device of what they stand for: the user's rules may branch on it."""

    users = True

    def __init__(self, vocabulary: Any, places: int, device: str):
        super().__init__(vocabulary, places, device)
        self.refused: Untraceable | None = None
        self.inside = 0
        self.born: list[weakref.ref[torch.Tensor]] = []
        self.watch = Watch(self)

    def __enter__(self) -> UsersTracer:
        self.watch.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.watch.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.inside += 1
        try:
            given = tensors_in(args, kwargs)
            traces = [t for t in given if isinstance(t, (Trace, Left))]
            if not traces:
                return self.computed(func, given, args, kwargs)
            if "out" in kwargs:
                raise Untraceable("a rule writes in place (out=)")
            if name_of(func) in LAID_OUT:
                raise Untraceable(f"a rule looks at more than values, shapes and dtypes ({name_of(func)})")
            if not all(map(self.owns, traces)):
                raise Untraceable("a rule reads what it has kept of another trace")
            if len(traces) < len(given):
                within = 1 if getattr(func, "__name__", "") == "__getitem__" else len(args)    # a mask is read as it is
                args = *private.tree_map(self.entered, args[:within]), *args[within:]
                kwargs = private.tree_map(self.entered, kwargs)
            return super().__torch_function__(func, types, args, kwargs)
        except Exception as error:
            self.refuse(error)
            raise
        finally:
            self.inside -= 1

    def refuse(self, error: Exception) -> None:
        """The rule is untraceable, whatever it makes of the error; the first one is told.  Keeps no frame alive."""
        if self.refused is None:
            self.refused = (Draws if isinstance(error, Draws) else Untraceable)(str(error))

    def computed(self, func: Any, given: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """What reads no trace, as in a run; a rule is not broken off in the middle of what it keeps."""
        before = versions(given)
        result = func(*args, **kwargs)
        read = getattr(func, "__name__", "")
        read = func.__self__.__name__ if read == "__get__" else read
        if versions(given) != before:
            self.refuse(Untraceable(f"a rule writes in place ({read})"))
        if given and read in MEMORY:
            self.refuse(Untraceable(f"a rule looks at more than values, shapes and dtypes ({read})"))
        return result

    def owns(self, t: Any) -> bool:
        return type(t) is Trace and t.__dict__.get("maker") is self.watch

    def taken(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not isinstance(value, (Trace, Left)):
            return self.entered(value)
        return value if self.owns(value) else None

    def value(self, type: int, position: int) -> Trace:
        return self.bear(super().value(type, position))

    def known(self, position: int, result: torch.Tensor) -> Any:
        return self.bear(super().known(position, result))

    def bear(self, t: Any) -> Any:
        """Remember whose trace it is, and that it was made."""
        t.__dict__["maker"] = self.watch
        self.born.append(weakref.ref(t))
        return t

    def entered(self, t: Any) -> Any:
        """The trace of a real tensor; whatever else there is as it is."""
        if isinstance(t, Trace) or not isinstance(t, torch.Tensor):
            return t
        with private.DisableTorchFunction():
            return self.known(self.constant(t), empty(t.shape, t.dtype))

    def constant(self, t: torch.Tensor) -> int:
        value = None if t.device.type == "meta" or t.layout is not torch.strided else one_number(t)
        if value is None or (t.numel() <= 4096 and value not in (0.0, 1.0)):
            return super().constant(t)
        return self.append(FULL, [], {"value": value}, self.vocabulary.type(t.shape, t.dtype, self.device))

    def left(self, said: str) -> bool:
        """Has the rule kept a trace?  Each that it has says so from now on.  Asked when all frames are gone."""
        self.made.clear()
        if not any(r() is not None for r in self.born):
            return False
        gc.collect()                             # only cycles have kept them, perhaps
        kept = [t for t in (r() for r in self.born) if t is not None]
        for t in kept:
            t.__class__ = Left
            t.__dict__["said"] = said
        return bool(kept)


def ran(call: Callable[[Callable[..., Any]], T], op: Any, what: str) -> T:
    """What `call` makes with a tracer of this kind, unless that has refused, or what it runs has kept a trace.

    Raises
    ------
    Untraceable : one of these; `what`, of the operator, does it.
    """
    tracers: list[UsersTracer] = []

    def tracer(*args: Any) -> UsersTracer:
        tracers.append(UsersTracer(*args))
        return tracers[-1]

    made: list[T] = []
    try:
        made.append(call(tracer))
    except Exception as error:
        if not tracers:
            raise
        tracers[0].refuse(error)
    said = (f"the {what} of {op.name} has kept a tensor that it computed from its arguments when a proof ran it on "
            "tensors without data: keep what is made of shapes and dtypes alone, or switch verification off")
    if tracers and tracers[0].left(said):
        for vjp in (*op.vjps, op.joint):
            if vjp is not None:
                vjp.fn.__dict__[KEPT] = said
        warnings.warn(at(said), RuntimeWarning, stacklevel=2)
        raise Untraceable(f"the {what} of {op.name} keeps what it computes from its arguments")
    if tracers and tracers[0].refused is not None:
        raise tracers[0].refused
    return made[0]


def versions(tensors: list[torch.Tensor]) -> list[int | None]:
    """How often each was written to, where torch counts it."""
    with private.DisableTorchFunction():
        return [None if t.is_inference() else private.version_of(t) for t in tensors]


def one_number(t: torch.Tensor) -> float | None:
    """The number that all elements are, bit for bit; None where there is none."""
    if not t.numel() or t.is_complex():
        return None
    first = t.reshape(-1)[0]
    same = bool((t == first).all()) and not (t.is_floating_point() and bool((t.signbit() != first.signbit()).any()))
    value = float(first)
    return value if same and str(value) != "-0.0" and abs(value) < 2**53 else None
