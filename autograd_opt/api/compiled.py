"""compile: a function recorded twice for each kind of call, whose optimized kernels are run again for the others.

The first call of a kind is only recorded: many kinds are met once, and making a plan takes many steps.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named, parameters_of, refuse_others, whole
from autograd_opt._common.garbage import uncollected
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_flatten
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.api.optimize import require_computing
from autograd_opt.api.region_calls import runs_as_written
from autograd_opt.api.regions import NOT_COMPILED, Region
from autograd_opt.plans.capture import Unrepeatable, python_state, settings
from autograd_opt.plans.recording import Before, Recorded, Repetition
from autograd_opt.plans.replay import Guard
from autograd_opt.plans.report import Kind, PlanReport, described
from autograd_opt.record.sites import Numbered

if TYPE_CHECKING:
    from autograd_opt.api.options import CallOptions

Tensor = torch.Tensor
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
MOST_KINDS = 64
"""Kinds of calls that are remembered, with a guard or without; the one not met for longest gives way."""
MOST_LOOKS = 8
"""Calls that cannot be repeated, of one kind or each of its own, before calls like them are looked at seldom."""


@dataclass(eq=False)
class Known:
    """A kind of call that was met: what it is, and its repetition, or why it has none; neither after one call.

    `former`: the calls like this one that were looked at seldom before it.
    """

    guard: Guard | Unguarded
    repetition: Repetition | None
    reason: str = ""
    calls: int = 0
    former: Unguarded | None = None


class Unguarded:
    """The calls like one that cannot be repeated; every call whose number is a power of two is asked anew."""

    def __init__(self, leaves: list[Any], situation: Any) -> None:
        self.kinds = [*map(self.kind_of, leaves)]
        self.situation = situation
        self.calls = 1

    @staticmethod
    def kind_of(x: Any) -> Any:
        """What two arguments have in common that are like each other: numbers may differ."""
        if isinstance(x, Tensor):
            return type(x), x.layout, x.is_nested, x.is_conj(), x.is_neg()
        return x if x is None or type(x) in (bool, str) else type(x)

    def holds(self, leaves: list[Any], situation: Any) -> bool:
        """True if a call is like these, and is not asked anew."""
        if not self.like(leaves, situation):
            return False
        self.calls += 1
        return bool(self.calls & (self.calls - 1))

    def like(self, leaves: list[Any], situation: Any) -> bool:
        """True if a call is like these."""
        return bool(situation == self.situation) and [*map(self.kind_of, leaves)] == self.kinds


def torch_looks_on() -> bool:
    """True if torch follows, while gradients are off, what a function computes."""
    return (
        private.transforms_active() or private.forward_level() >= 0 or private.get_tracing_state() is not None
    )


class Compiled(Generic[P, R]):
    """A function whose calls are repeated from plans; what `autograd_opt.compile` returns."""

    def __init__(
        self, function: Callable[P, R], fuse: bool, exact: bool, check_every: int, options: dict[str, Any]
    ):
        self.function = function
        self.settings = {"fuse": fuse, "exact": exact}
        self.check_every = check_every
        self.region = Region({"optimize": "exact" if exact else True, **options})
        self.kinds: list[Known] = []
        self.warned = False
        functools.update_wrapper(self, function, updated=())

    def __reduce__(self) -> Any:
        """A copy learns its kinds of calls by itself."""
        return type(self), (self.function, self.settings["fuse"], self.settings["exact"], self.check_every,
                            self.region.options)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"<autograd_opt.compile of {name}, kinds of calls: {len(self.kinds)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of the function, from a plan where there is one for calls of this kind."""
        if (
            (runs_as_written() if private.is_grad_enabled() else torch_looks_on())
            or private.is_any_autocast_enabled()
            or private.len_torch_dispatch_stack()
            or private.len_torch_function_stack()
        ):
            return self.region(self.function, args, kwargs)
        leaves, structure = tree_flatten((args, kwargs))
        situation = structure, *settings(), private.has_global_module_hooks()
        for number, known in enumerate(self.kinds):
            if known.guard.holds(leaves, situation):
                if number:
                    self.remember(self.kinds.pop(number))
                return self.again(known, leaves, situation, args, kwargs)
        return self.first(leaves, situation, args, kwargs)

    def again(self, known: Known, leaves: list[Any], situation: Any, args: Any, kwargs: Any) -> Any:
        """A call of a kind that was met before."""
        known.calls += 1
        repetition = known.repetition
        if repetition is None and not known.reason:
            return self.planned(known, leaves, situation, args, kwargs)
        if repetition is None:
            self.look_seldom(known, leaves, situation)
            return self.region(self.function, args, kwargs)
        if not repetition.lock.acquire(blocking=False):
            return self.region(self.function, args, kwargs)
        try:
            if self.check_every and known.calls % self.check_every == 0:
                return self.checked(known, situation, args, kwargs)
            return repetition.run(leaves)
        finally:
            repetition.lock.release()

    def look_seldom(self, known: Known, leaves: list[Any], situation: Any) -> None:
        """Let a kind that cannot be repeated be compared no longer, once it was met often, with all that it sees."""
        if isinstance(known.guard, Unguarded) or not (known.former or known.calls >= MOST_LOOKS):
            return
        self.kinds = [one for one in self.kinds if one is not known]
        if not any(isinstance(one.guard, Unguarded) and one.guard.like(leaves, situation) for one in self.kinds):
            known.guard = known.former or Unguarded(leaves, situation)
            self.remember(known)

    def planned(self, known: Known, leaves: list[Any], situation: Any, args: Any, kwargs: Any) -> Any:
        """A call from which the plan of its kind is made."""
        try:
            before = Before(self.function, (args, kwargs))
            known.guard = before.guard(situation)       # it learns what the call is seen to read
        except Unrepeatable as error:
            self.say(str(error))
            known.reason = str(error)
            return self.region(self.function, args, kwargs)
        result, known.repetition, known.reason = self.recorded(before, args, kwargs)
        if known.reason:
            self.look_seldom(known, leaves, situation)
        return result

    def first(self, leaves: list[Any], situation: Any, args: Any, kwargs: Any) -> Any:
        """A call of a new kind, recorded."""
        refused = self.forgotten(leaves, situation)
        try:
            before = Before(self.function, (args, kwargs))
            known = Known(before.guard(situation), None, former=refused)
        except Unrepeatable as error:
            self.remember(self.unguarded(refused, leaves, situation, str(error)))
            return self.region(self.function, args, kwargs)
        drawn = python_state()
        result = self.region(self.function, args, kwargs)
        try:
            before.unchanged()
            if python_state() != drawn:
                raise Unrepeatable("it draws random numbers outside torch")
        except Unrepeatable as error:
            self.say(str(error))
            known.reason = str(error)
            once = [one for one in self.kinds if one.reason and not one.calls and isinstance(one.guard, Guard)]
            if refused or len(once) >= MOST_LOOKS:
                self.kinds = [one for one in self.kinds if one not in once]
                known = self.unguarded(refused, leaves, situation, str(error))
        self.remember(known)
        return result

    def unguarded(self, former: Unguarded | None, leaves: list[Any], situation: Any, reason: str) -> Known:
        """The kind of calls that are recorded each time, and seldom looked at."""
        self.say(reason, 6)
        guard = former or Unguarded(leaves, situation)
        return Known(guard, None, reason, guard.calls - 1)

    def forgotten(self, leaves: list[Any], situation: Any) -> Unguarded | None:
        """The guard of calls that are like this one and had none, which are asked anew."""
        for number, known in enumerate(self.kinds):
            guard = known.guard
            if isinstance(guard, Unguarded) and guard.like(leaves, situation):
                del self.kinds[number]
                return guard
        return None

    def remember(self, known: Known) -> None:
        """Have a kind asked before all others; one that has no guard, after them."""
        guarded = isinstance(known.guard, Guard)
        self.kinds.insert(0 if guarded else len(self.kinds), known)
        if len(self.kinds) > MOST_KINDS:
            alike = [number for number, one in enumerate(self.kinds) if isinstance(one.guard, Guard) == guarded]
            if len(alike) > MOST_KINDS:
                del self.kinds[alike[-1 if guarded else 0]]

    def recorded(self, before: Before, args: Any, kwargs: Any) -> tuple[Any, Repetition | None, str]:
        """The result of a call that is recorded, its repetition, or why it has none."""
        recorded = Recorded(self.function, before)
        with Numbered():
            result = self.region(recorded, args, kwargs, rests=False)
        try:
            with uncollected():
                return result, Repetition(recorded, self.settings), ""
        except Unrepeatable as error:
            self.say(str(error))
            return result, None, str(error)

    def checked(self, known: Known, situation: Any, args: Any, kwargs: Any) -> Any:
        """Record a call anew although there is a plan for it, and compare the two."""
        old = known.repetition
        try:
            before = Before(self.function, (args, kwargs))
            guard = before.guard(situation)
        except Unrepeatable as error:
            self.say(str(error))
            known.repetition, known.reason = None, str(error)
            return self.region(self.function, args, kwargs)
        result, repetition, reason = self.recorded(before, args, kwargs)
        if old is not None and (repetition is None or described(repetition) != described(old)):
            warnings.warn(
                errors.at(
                    f"{self!r}: a call of a kind that has a plan was recorded anew, and it ran other operations: the "
                    "function depends on something besides its arguments and what it reaches; the plan is replaced"
                ),
                stacklevel=4,
            )
        known.guard, known.repetition, known.reason = guard, repetition, reason
        return result

    def say(self, reason: str, depth: int = 5) -> None:
        """Warn, once, that calls are not repeated; `depth`: calls between the user's and the warning's."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                errors.at(
                    f"{self!r}: calls of some kind are recorded each time, because {reason}; report() lists them"
                ),
                stacklevel=depth,
            )

    def report(self) -> PlanReport:
        """What is known of each kind of call: what runs in its place, or why it is recorded each time.

        >>> import torch, autograd_opt as ao
        >>> double = ao.compile(lambda x: (x * 2 + 1).exp().sum())
        >>> double(torch.ones(3)), double(torch.ones(3))
        (tensor(60.2566), tensor(60.2566))
        >>> print(double.report())
        1 kind of call
          1 repeated: 4 operations run as 1 kernel and 1 stretch of 3
        """
        return PlanReport([Kind.of(known.repetition, known.calls, known.reason) for known in self.kinds])


private.not_compiled(Compiled.__call__, NOT_COMPILED)


@overload
def compile(
    function: Callable[P, R], /, *, fuse: bool = True, exact: bool = False, check_every: int = 0,
    **options: Unpack[CallOptions],
) -> Compiled[P, R]: ...


@overload
def compile(
    function: None = None, /, *, fuse: bool = True, exact: bool = False, check_every: int = 0,
    **options: Unpack[CallOptions],
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...


@named
def compile(
    function: Any = None, /, *, fuse: bool = True, exact: bool = False, check_every: int = 0, **options: Any
) -> Any:
    """Repeat the optimized kernels of a function instead of running it, for calls of a kind that was recorded before.

    Parameters
    ----------
    function : takes tensors, modules, and Python values in any structure; it may call `backward()` or `grad` itself.
        Without it a decorator is returned.
    fuse : run elementwise stretches without tensors between them.  CPU, float32 and float64.
    exact : fuse only where results have the bits of torch's kernels, and sum cotangents as written.
        Otherwise a function may differ by one unit in the last place.
    check_every : record every n-th call of a kind anew, and warn where it ran other operations than the plan.
    options : those of `AutogradGraph`.

    Returns
    -------
    A callable with the function's arguments and results; `report()` tells what it has learned.  Results are
    ordinary tensors; where the function has not called backward on them, they can be differentiated, once.

    The first call of a kind is only recorded, the second makes its plan, and the others repeat that.
    A kind is: the structure of the arguments; shapes, strides, dtypes, devices, `requires_grad` and identity of
    tensors, and which share memory; equal Python values; the state of what the function reaches (closures, globals
    that it names, modules, attributes); grad mode.
    A call is recorded each time where it looks at values (`item()`), changes Python state that the function reaches, or
    runs anything but torch's operators.  What no argument, closure, global or attribute shows, as the time or a file,
    must not decide what is computed.

    Raises
    ------
    ArgumentTypeError, ArgumentError : something that cannot be called, a class, or an async function; a wrong option.

    >>> import torch, autograd_opt as ao
    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> @ao.compile
    ... def step(x):
    ...     loss = ((x * w).sin() ** 2).sum()
    ...     loss.backward()
    ...     return loss.detach()
    >>> for _ in range(3):
    ...     w.grad = None
    ...     loss = step(torch.tensor([0.5, 0.25]))
    >>> w.grad
    tensor([0.4207, 0.2104])
    """
    check_every = whole("check_every", check_every)
    own = ["fuse", "exact", "check_every", "patience"]
    refuse_others("compile", options, own + parameters_of(AutogradGraph.__init__))
    if function is None:
        return functools.partial(compile, fuse=fuse, exact=exact, check_every=check_every, **options)
    require_computing("ao.compile", function)
    return Compiled(function, fuse, exact, check_every, options)
