"""Watch a call: every kernel that it runs, on which tensors, and whatever a repetition could not do alike.

Kernels are seen where torch dispatches them, below autograd and below this library, so that what is seen is what
an optimized graph has left to run, forward and backward.
"""

from __future__ import annotations

import functools
import gc
import inspect
import io
import queue
import random
import sys
import types
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.dispatch_modes import LazyValues, ThreadedMode
from autograd_opt.graph import thread_state
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.plans.objects import of_library
from autograd_opt.plans.operators import base_name, full_name, functional, mapped, parts
from autograd_opt.plans.placeholders import counts, depends_on_elements, expected, of_torch

Tensor = torch.Tensor
READS = frozenset(
    "numpy tolist data_ptr __array__ __dlpack__ untyped_storage storage share_memory_ set_ "
    "resize_ resize_as_ register_hook register_post_accumulate_grad_hook retain_grad __repr__ __str__ "
    "__format__ __deepcopy__ __reduce_ex__ __setstate__ __bool__ __float__ __int__ __index__ item".split()
)
"""Methods of tensors that hand out memory, or leave what a repetition would not leave."""
REQUIRES_GRAD: Any = torch.Tensor.requires_grad
ASKED = frozenset("grad grad_fn _version _base output_nr storage_offset _is_view is_shared is_pinned".split())
"""What may be asked of a tensor, and is no part of the kind of a call; the gradient where it requires none."""
SHAPES_ALONE = frozenset(["_fused_sdp_choice"])
"""Operators whose result is a Python number that depends on shapes and dtypes alone."""
VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""Tags of operators whose result is a Python value, or has a shape, that depends on a tensor's elements."""


@dataclass(frozen=True)
class Kernel:
    """One call of an operator as it was seen."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    written: tuple[Tensor, ...]
    """The tensors among its arguments that it writes."""

    @property
    def name(self) -> str:
        """`name.overload` of the operator."""
        return full_name(self.function)

    @cached_property
    def inputs(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return tensors((self.args, self.kwargs))

    @cached_property
    def outputs(self) -> list[Tensor]:
        """The tensors that it returns."""
        return tensors(self.result)


def tensors(structure: Any) -> list[Tensor]:
    """The tensors among arguments or results."""
    return [t for t in parts(structure) if isinstance(t, Tensor)]


class Unrepeatable(Exception):
    """A call whose repetition would need its function; the text says why."""


@functools.cache
def looks_at_values(function: Any) -> bool:
    """True if a result of an operator, or its shape, depends on a tensor's elements."""
    return any(tag in function.tags for tag in VALUES)


@functools.cache
def composite(function: Any) -> bool:
    """True if torch itself writes the operator as calls of others, which are seen in its place."""
    return private.is_composite(function)


@functools.cache
def written_arguments(function: Any) -> list[tuple[int, str]]:
    """Position and name of the arguments that a call writes: also statistics, which schemas do not name."""
    statistics = () if "backward" in function._schema.name else ("running_mean", "running_var")
    return [
        (number, argument.name)
        for number, argument in enumerate(function._schema.arguments)
        if argument.name in statistics or (argument.alias_info is not None and argument.alias_info.is_write)
    ]


class Kernels(ThreadedMode):
    """Keep every kernel, and the reason why they cannot be repeated, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Kernel] = []
        self.reason = ""
        self.originals: dict[int, tuple[Tensor, Tensor]] = {}
        self.begun: list[Tensor] = []  # tensors that came to require grad
        self.asked: list[tuple[Tensor, str]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(function, private.OpOverload):
            self.reason = self.reason or f"it calls {function}, which is no operator of torch's"
            with LazyValues():
                return function(*args, **kwargs)
        if of_torch(function) and composite(function) and not looks_at_values(function):
            with self, LazyValues():
                return private.call_composite(function, tuple(args), kwargs)
        args_then, kwargs_then = mapped(self.as_it_is, (tuple(args), dict(kwargs)))
        told = None if of_torch(function) else expected(function, args, kwargs)
        with LazyValues():
            result = function(*args, **kwargs)
        name = base_name(function)
        if not of_torch(function) and depends_on_elements(result, told):
            self.reason = self.reason or f"{name} looks at values, or nobody can tell"
        if looks_at_values(function) or (
            isinstance(result, (bool, int, float, complex)) and name not in SHAPES_ALONE
        ):
            self.reason = self.reason or f"{name} looks at values"
        if "Storage" in function._overloadname:
            self.reason = self.reason or f"it calls {name} with a storage"
        if any(
            t.device.type not in ("cpu", "cuda") or t.layout != torch.strided
            for t in tensors((args, kwargs, result))
        ):
            self.reason = self.reason or f"{name} has operands of an unusual kind"
        written = tensors(
            [args_then[k] if k < len(args_then) else kwargs_then.get(key) for k, key in written_arguments(function)]
        )
        if torch.Tag.inplace_view in function.tags:  # gives a tensor another shape: a view of the same name
            view = functional(function)
            if view is None:
                self.reason = self.reason or f"it calls {name}"
            else:
                function, written = view, []
        self.seen.append(Kernel(function, args_then, kwargs_then, mapped(self.as_it_is, result), tuple(written)))
        return result

    def as_it_is(self, x: Any) -> Any:
        """A tensor with the shape that this one has now, and its memory."""
        if not isinstance(x, Tensor) or x.layout != torch.strided:
            return x
        now = x.detach()
        self.originals[id(now)] = (now, x)
        return now

    def original(self, t: Tensor) -> Tensor:
        """The tensor that a kernel was given, of which it keeps the shape."""
        return self.originals[id(t)][1] if id(t) in self.originals else t

    def forget(self, but: set[int]) -> None:
        """Hold no recorded tensor, except those of these ids."""
        self.originals = {
            k: (now, t) for k, (now, t) in self.originals.items() if type(t) is not CustomTensor or id(t) in but
        }


class Reads(TorchFunctionMode):
    """Notice methods that hand out memory, which no kernel shows."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(function.__self__, "__name__", "")
        if name in READS:
            self.kernels.reason = self.kernels.reason or f"it calls {name}"
        if name == "requires_grad_" or function == REQUIRES_GRAD.__set__:
            self.kernels.begun.append(args[0])
        if function is private.set_grad_enabled and args[0] and thread_state.get_active() is None:
            self.kernels.reason = self.kernels.reason or "it follows gradients inside of no_grad()"
        kwargs = kwargs or {}
        if name in ASKED:
            answer = function(*args, **kwargs)
            if name != "grad_fn" or answer is not None:
                self.kernels.asked.append((args[0], name))
            return answer
        if not counts(function, args, kwargs):
            return function(*args, **kwargs)
        told = expected(function, args, kwargs)
        result = function(*args, **kwargs)
        if depends_on_elements(result, told):
            self.kernels.reason = self.kernels.reason or f"{name} looks at values, or nobody can tell"
        return result


STATES = frozenset("get_state clone_state graphsafe_get_state".split())
"""Methods of a generator after which a repetition, which only draws, would draw other numbers."""
SEEDING = frozenset("manual_seed seed set_state graphsafe_set_state set_offset".split())
"""Methods of a generator that a repetition would not call."""
FORK = inspect.unwrap(torch.random.fork_rng).__code__
DRAWING = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
OUTWARD = frozenset("time _warnings posix nt _io".split())
"""Modules written in C that look at the world outside, or change it."""
LOADING = frozenset("importlib._bootstrap importlib._bootstrap_external linecache zipimport".split())
RECORDING = "autograd_opt.plans.recording"
EFFECTS = (io.IOBase, queue.SimpleQueue)
"""Classes of objects whose methods have effects, or results, that nothing else shows."""


def puts_back(frame: Any) -> bool:
    """True if this is torch's own code, which puts the state of a generator back that it has found."""
    if frame is None or not of_library(frame.f_globals.get("__name__")):
        return False
    return frame.f_code is FORK or frame.f_globals is checkpoint.__dict__ or puts_back(frame.f_back)


def loads(frame: Any) -> bool:
    """True if Python itself runs this code, once for all calls: it reads a module, or the line of a warning."""
    name = frame.f_globals.get("__name__")
    while name not in LOADING and name != RECORDING and frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_globals.get("__name__")
    return name in LOADING


def collects(frame: Any) -> bool:
    """True if Python's garbage collector has called this code, or what has called it."""
    codes = {getattr(call, "__code__", None) for call in gc.callbacks}
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame is not None


def outside_effect(function: Any, frame: Any) -> str:
    """What a function written in C does that a repetition would not do; empty where nothing is known."""
    owner, name = function.__self__, function.__name__
    if isinstance(owner, torch.Generator):
        if name in ("seed", "initial_seed"):
            return "it asks a generator for its seed"
        return "it seeds a generator" if name in SEEDING and not puts_back(frame) else ""
    if isinstance(owner, DRAWING) and not loads(frame):
        return "it draws random numbers outside torch"
    if function in (print, input) or (isinstance(owner, EFFECTS) and not loads(frame)):
        return f"it calls {name}"
    module = getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType) else ""
    if module in OUTWARD and collects(frame):
        return ""
    caller = frame.f_globals.get("__name__")
    return f"it calls {name}" if module in OUTWARD and not of_library(caller) else ""


class Seeding:
    """Notice calls that a repetition would not make, and whether the state of a generator of torch's is kept.

    Generators and files are no tensors: only Python's hook for profilers sees calls of their methods. One that is
    installed goes on; beside one written in C, which cannot be called, the seed alone is compared.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.seeded = False
        self.profiler: Any = None
        self.seed = 0

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if event == "c_call":
            self.kernels.reason = self.kernels.reason or outside_effect(arg, frame)
            self.seeded |= isinstance(arg.__self__, torch.Generator) and arg.__name__ in STATES
        if self.profiler is not None:
            self.profiler(frame, event, arg)

    def __enter__(self) -> None:
        self.seeded = False
        self.profiler, self.seed = sys.getprofile(), torch.default_generator.initial_seed()
        if self.profiler is None or callable(self.profiler):
            sys.setprofile(self)

    def __exit__(self, *error: object) -> None:
        now: Any = sys.getprofile()
        if now is self:
            sys.setprofile(self.profiler)
        self.seeded |= torch.default_generator.initial_seed() != self.seed


def python_state() -> Any:
    """What generators of random numbers outside torch have drawn."""
    numpy = sys.modules["numpy"].random.get_state()
    return random.getstate(), numpy[1].tobytes(), numpy[2]


def settings() -> tuple[Any, ...]:
    """The modes of torch on which operations depend."""
    return (
        private.is_grad_enabled(),
        private.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    )


class Watch:
    """A block of code whose kernels are kept; it may be entered several times."""

    def __init__(self) -> None:
        self.kernels = Kernels()
        self.modes = ExitStack()
        self.state: Any = None
        self.seeding = Seeding(self.kernels)

    @property
    def reason(self) -> str:
        """Why what was seen cannot be repeated; empty if it can."""
        return self.kernels.reason

    def taken(self) -> list[Kernel]:
        """The kernels since the last call of this."""
        seen, self.kernels.seen = self.kernels.seen, []
        return seen

    def __enter__(self) -> Watch:
        self.state = settings(), python_state(), torch.default_generator.get_state()
        self.modes.enter_context(Reads(self.kernels))
        self.modes.enter_context(self.kernels)
        self.modes.enter_context(self.seeding)
        return self

    def __exit__(self, *error: Any) -> None:
        self.modes.close()
        before, outside, generator = self.state
        drawn = any(torch.Tag.nondeterministic_seeded in k.function.tags for k in self.kernels.seen)
        if settings() != before:
            self.kernels.reason = self.kernels.reason or "it leaves torch in another mode"
        if python_state() != outside:
            self.kernels.reason = self.kernels.reason or "it draws random numbers outside torch"
        elif drawn and self.seeding.seeded:
            self.kernels.reason = self.kernels.reason or "it draws after it has seeded a generator, or kept its state"
        elif not drawn and not torch.equal(torch.default_generator.get_state(), generator):
            self.kernels.reason = self.kernels.reason or "it changes torch's generator without a draw"
