"""One call watched while it is recorded, and the repetition that takes its place from then on.

Tensors that the call meets come from somewhere: an argument, a tensor that the function reaches (a parameter, a
buffer), the gradient of one of these, or a constant that the call has made.  A repetition takes them from there again.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_flatten, tree_unflatten
from autograd_opt.engine import torch_histories
from autograd_opt.engine.torch_engine import entered, outside
from autograd_opt.graph import boundary, thread_state
from autograd_opt.graph.references import requires_grad, torch_computed
from autograd_opt.plans import replay, results
from autograd_opt.plans.capture import Kernel, Unrepeatable, Watch
from autograd_opt.plans.optimizing import without
from autograd_opt.plans.plan import Plan
from autograd_opt.plans.program import Builder, lazy, place_of, storage_of
from autograd_opt.plans.pullback import Pullback, pulled_back
from autograd_opt.plans.state import Reached

Tensor = torch.Tensor
GRAD: Any = torch.Tensor.grad


@dataclass(frozen=True)
class Source:
    """Where a value comes from at each call: argument `number`, or `held` itself; or the gradient of that."""

    number: int = -1
    held: Tensor | None = field(default=None, compare=False)
    identity: int = 0
    gradient: bool = False

    @classmethod
    def holding(cls, t: Tensor) -> Source:
        """The tensor itself, at every call."""
        return cls(held=t, identity=id(t))

    @property
    def of_gradient(self) -> Source:
        """The gradient of what this is."""
        return Source(self.number, self.held, self.identity, True)

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """The tensor in a call with these arguments."""
        t = leaves[self.number] if self.held is None else self.held
        return t.grad if self.gradient else t


def look_of(t: Tensor) -> tuple[Any, ...]:
    """What of a tensor besides its elements a function may change."""
    if is_lazy(t):
        raise Unrepeatable("it meets a parameter that has no shape yet")
    return (place_of(t) if t.layout == torch.strided and not t.is_nested else None), t.requires_grad


class Before:
    """What there is before a call: arguments, and all that the function reaches."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.arguments = arguments
        self.leaves, self.structure = leaves, _ = tree_flatten(arguments)
        reached = Reached().collect(function, *(x for x in leaves if not isinstance(x, Tensor)))
        self.entries, self.kept, self.draws = reached.entries, reached.kept, reached.draws
        reached.refuse_attributes(t for t in leaves if isinstance(t, Tensor))
        self.sources: dict[int, tuple[Tensor, Source]] = {}
        self.ends: set[int] = set()          # leaves of torch's graph; in a region other tensors are leaves, too
        for t in reached.tensors:
            self.add(t, Source.holding(t))
        for number, t in enumerate(leaves):
            if isinstance(t, Tensor):
                self.add(t, Source(number))
        self.looks = [(t, look_of(t)) for t, source in self.sources.values() if not source.gradient]
        self.followed = [(t, s) for t, s in self.sources.values() if not s.gradient and t.requires_grad]

    def add(self, t: Tensor, source: Source) -> None:
        """Know a tensor, and its gradient."""
        self.sources[id(t)] = (t, source)
        if not t.is_leaf:
            return
        self.ends.add(id(t))
        if t.grad is not None:
            self.sources[id(t.grad)] = (t.grad, source.of_gradient)

    def guard(self, structure: Any) -> replay.Guard:
        """What has to be so for a repetition to be right."""
        held = [t for t, s in self.sources.values() if s.held is not None and not s.gradient]
        return replay.Guard(self.leaves, structure, held, self.entries)

    def unchanged(self) -> None:
        """Refuse a function that has changed what it sees."""
        if not replay.unchanged(self.entries):
            raise Unrepeatable("it changes what it sees of the program's state")
        if any(state() != was for state, was in self.draws):
            raise Unrepeatable("it draws random numbers outside torch")
        leaves, structure = tree_flatten(self.arguments)
        if structure != self.structure or any(x is not y for x, y in zip(leaves, self.leaves, strict=True)):
            raise Unrepeatable("it changes a list or dictionary that it is given")
        if any(look_of(t) != look for t, look in self.looks):
            raise Unrepeatable("it gives a tensor from outside another shape, memory or `requires_grad`")

    def followed_alike(self) -> None:
        """Refuse a function after which a gradient goes elsewhere from a tensor that was there before."""
        tape = thread_state.get_active()
        with private.DisableTorchFunction():
            written = boundary.boundary(tape)[2] if tape is not None else []
        if any(map(requires_grad, written)):
            raise Unrepeatable("it writes a tensor from outside that gradients follow")

    def read(self, asked: Sequence[tuple[Tensor, str]]) -> None:
        """Compare from now on which gradients were read of tensors that require none; refuse what nobody compares."""
        for t, name in asked:
            _, source = self.sources.get(id(t), (None, None))
            if source is None or (name == "grad" and t.requires_grad and t.is_leaf):
                continue
            if name != "grad" or source.held is None or source.gradient:
                raise Unrepeatable(f"it reads {name} of a tensor from outside")
            was = [g for g, other in self.sources.values() if other == source.of_gradient]
            self.entries.append((functools.partial(GRAD.__get__, t), None, was[0] if was else None))

    def source_of(self, t: Tensor, made: set[int]) -> Source:
        """Where a tensor from outside comes from."""
        found = self.sources.get(id(t))
        if found is not None:
            return found[1]
        for other, source in self.sources.values():
            if storage_of(other) == storage_of(t):
                if place_of(other) == place_of(t):
                    return source
                raise Unrepeatable("it reads a tensor through memory that no operator names")
        if storage_of(t) in made or t.requires_grad:
            raise Unrepeatable("it reads a tensor that comes from nowhere known")
        return Source.holding(t.detach())


class Recorded:
    """A function that is watched in its next call, with the backward run of the results that it leaves to others."""

    def __init__(self, function: Callable[..., Any], before: Before) -> None:
        self.function, self.before = function, before
        self.watch = Watch()
        self.results: list[Any] = []
        self.structure: Any = None
        self.pullback = Pullback()
        self.forward: list[Kernel] = []
        self.gradients: list[tuple[Tensor | None, Source]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function and keep what it has run."""
        runs = torch_histories.went_on.runs
        with self.watch:
            result = self.function(*args, **kwargs)
        self.results, self.structure = tree_flatten(result)
        self.forward = self.watch.taken()
        self.gradients = [(t.grad, s) for t, s in self.before.followed if id(t) in self.before.ends]
        try:
            if torch_histories.went_on.runs != runs:
                raise Unrepeatable("a gradient goes on in the history of an operand")
            self.before.followed_alike()
            self.before.read(self.watch.kernels.asked)
            self.differentiate()
            self.before.unchanged()
            results.check(result, self.before.arguments, self.before.kept)
        except Unrepeatable as error:
            self.watch.kernels.reason = self.watch.reason or str(error)
        self.let_go()
        return result

    def let_go(self) -> None:
        """Hold nothing that the function has made: the region would take it for kept by somebody else."""
        known = self.before.sources
        with private.DisableTorchFunction():
            looks = {id(t): t.detach() for t in self.results if isinstance(t, Tensor) and id(t) not in known}
        self.results = [looks.get(id(t), t) for t in self.results]
        self.gradients = [(looks.get(id(g), g), source) for g, source in self.gradients]
        self.pullback.results = [looks[id(t)] for t in self.pullback.results]
        self.watch.kernels.forget({*known, *map(id, self.pullback.seeds)})

    def differentiate(self) -> None:
        """Watch the backward run from the results whose history is still there."""
        if any(private.backward_hooks(t) or private.post_accumulate_grad_hooks(t) for t, _ in self.before.followed):
            raise Unrepeatable("an operand has hooks")
        known = self.before.sources
        made = [t for t in self.results if isinstance(t, Tensor) and id(t) not in known]
        inside = thread_state.get_active() is not None
        if any(isinstance(t, torch.nn.Parameter)
               or (t.requires_grad and (t.grad_fn is None or (inside and torch_computed(t)))) for t in made):
            raise Unrepeatable("it returns a leaf that is no operand")
        open_results = {id(t): t for t in made if t.grad_fn is not None}
        if open_results and not self.watch.reason:
            self.pullback = pulled_back([*open_results.values()], self.watch)


@dataclass(frozen=True)
class Returned:
    """A tensor among the results: where, what it is if it was there before, and is its history open?"""

    places: list[int]
    source: Source | None
    follows: bool


class Repetition:
    """What a recorded call has run, for other calls of its kind."""

    def __init__(self, recorded: Recorded, options: dict[str, Any]) -> None:
        before, watch = recorded.before, recorded.watch
        if watch.reason:
            raise Unrepeatable(watch.reason)
        before.unchanged()
        self.structure = recorded.structure
        self.constants = [None if isinstance(x, Tensor) else x for x in recorded.results]
        self.lock = threading.Lock()
        builder = Builder(recorded.forward)
        made = {storage_of(t) for k in recorded.forward for t in k.outputs} - builder.outside
        self.results = self.ask_results(recorded, builder)
        self.written = self.ask_gradients(recorded, builder)
        count = len(builder.program.asked)
        self.backward: Plan | None = None
        self.saved: list[Source | int] = []
        self.targets: list[Source] = []
        self.ways: list[tuple[int, ...]] = []
        self.options, self.followed = options, len(recorded.pullback.results)
        self.partial: dict[tuple[int, ...], tuple[Plan, list[bool]]] = {}
        if recorded.pullback.results:
            self.backward = self.plan_backward(recorded, builder, made, options)
        self.count = count
        self.plan = Plan(builder.program, **options)
        original = watch.kernels.original
        self.sources = [before.source_of(original(t), made) for t in builder.program.given.values()]

    @staticmethod
    def ask_results(recorded: Recorded, builder: Builder) -> list[Returned]:
        """The tensors that the call returns."""
        found: dict[int, Returned] = {}
        followed = {id(t) for t in recorded.pullback.results}
        for number, t in enumerate(recorded.results):
            if id(t) in found:
                found[id(t)].places.append(number)
            elif isinstance(t, Tensor):
                known = recorded.before.sources.get(id(t))
                if known is None:
                    n = builder.ask(t)
                    if id(t) in followed and builder.shows_outside(n):
                        raise Unrepeatable("it returns a view of an operand, with a history")
                found[id(t)] = Returned([number], known[1] if known else None, id(t) in followed)
        return list(found.values())

    @staticmethod
    def ask_gradients(recorded: Recorded, builder: Builder) -> list[Source]:
        """The leaves whose gradient the call has made."""
        there = {s for _, s in recorded.before.sources.values() if s.gradient}
        found = []
        for g, source in recorded.gradients:
            known = recorded.before.sources.get(id(g)) if g is not None else None
            if (known is not None and known[1] != source.of_gradient) or (
                known is None and source.of_gradient in there
            ):
                raise Unrepeatable("it puts another gradient in the place of one")
            if g is not None and known is None:
                builder.ask(g)
                found.append(source)
        return found

    def plan_backward(self, recorded: Recorded, forward: Builder, made: set[int], options: dict[str, Any]) -> Plan:
        """The plan of the backward run; what it reads of the forward run is asked of that as well."""
        builder = Builder(recorded.watch.taken())
        begun = {id(t) for t in recorded.watch.kernels.begun}
        found = recorded.pullback
        for t, g, ways in zip(found.targets, found.cotangents, found.ways, strict=True):
            known = recorded.before.sources.get(id(t))
            if known is not None:
                self.targets.append(known[1])
                self.ways.append(ways)
                builder.ask(g)
            elif storage_of(t) not in made and id(t) not in begun:
                raise Unrepeatable("a gradient goes to a tensor that comes from nowhere known")
        if not self.targets:
            raise Unrepeatable("its results follow gradients to what it makes itself")
        if any(one.kept for one in builder.program.instructions):
            raise Unrepeatable("its backward run has effects")
        seeds = {id(t): k for k, t in enumerate(found.seeds)}
        for t in map(recorded.watch.kernels.original, builder.program.given.values()):
            if id(t) in seeds:
                self.saved.append(seeds[id(t)])
            elif storage_of(t) in made:
                self.saved.append(len(seeds) + len(forward.program.asked))
                forward.save(t)
            else:
                self.saved.append(recorded.before.source_of(t, made))
        return Plan(builder.program, **options)

    def backward_without(self, absent: tuple[int, ...]) -> tuple[Plan, list[bool]]:
        """The plan of a backward run without the cotangents of some results, and the targets that it leads to."""
        assert self.backward is not None
        if absent not in self.partial:
            reached = [not set(ways) <= set(absent) for ways in self.ways]
            asked = [k for k, there in enumerate(reached) if there]
            program = self.backward.whole
            cotangents = {n: s for n, s in zip(program.given, self.saved, strict=True) if s in range(self.followed)}
            gone = [n for n, s in cotangents.items() if s in absent]
            self.partial[absent] = Plan(without(program, [*cotangents], gone, asked), **self.options), reached
        return self.partial[absent]

    def run(self, leaves: list[Any]) -> Any:
        """Repeat the call with these arguments."""
        given = [s.tensor(leaves) for s in self.sources]
        with private.DisableTorchFunction(), private.AutoDispatchBelowAutograd():
            values = self.plan.run(given)
        made = iter(values[: self.count])
        tensors = [next(made) if one.source is None else one.source.tensor(leaves) for one in self.results]
        for source in self.written:
            source.tensor(leaves).grad = next(made)
        if self.backward is not None:
            followed = [k for k, one in enumerate(self.results) if one.follows]
            outputs = Repeated.apply(
                self, leaves, values, [tensors[k] for k in followed], *(s.tensor(leaves) for s in self.targets)
            )
            for k, t in zip(followed, outputs, strict=True):
                tensors[k] = t
        flat: list[Any] = list(self.constants)
        for one, t in zip(self.results, tensors, strict=True):
            if one.source is None and not one.follows and t.requires_grad:
                t = t.detach()          # memory of an operand, or of a result with a history
            for number in one.places:
                flat[number] = t
        return tree_unflatten(flat, self.structure)


def laid_out(t: Tensor, sample: Tensor) -> Tensor:
    """A cotangent in the memory for which a plan was made: its strides, and no lazy values."""
    if t.stride() == sample.stride() and not (lazy(t) or private.is_zerotensor(t)):
        return t
    return torch.empty_strided(sample.shape, sample.stride(), dtype=sample.dtype, device=sample.device).copy_(t)


def pulled_back_by(ctx: Any, cotangents: list[Tensor | None]) -> list[Tensor | None]:
    """What the backward plan of a repetition gives to its operands; None to those that no cotangent leads to."""
    repetition = ctx.repetition
    saved = iter(ctx.saved_tensors)
    values = [cotangents[place] if place >= 0 else next(saved) for place in ctx.places]
    absent = tuple([k for k, g in enumerate(cotangents) if g is None])
    with repetition.lock:
        plan, reached = repetition.backward_without(absent) if absent else (repetition.backward, None)
        given = [
            laid_out(t, plan.program.samples[n]) if place >= 0 else t
            for n, t, place in zip(repetition.backward.program.given, values, ctx.places, strict=True)
            if n in plan.program.given
        ]
        with private.DisableTorchFunction(), private.AutoDispatchBelowAutograd():
            found = plan.run(given)
    if reached is None:
        return found
    results = iter(found)
    return [next(results) if there else None for there in reached]


class Repeated(torch.autograd.Function):
    """The history of a repetition's results in torch's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        repetition: Repetition,
        leaves: list[Any],
        values: list[Tensor],
        results: list[Tensor],
        *targets: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.repetition = repetition
        ctx.targets = [*map(weakref.ref, targets)]
        seeds = len(results)
        ctx.places = [s if isinstance(s, int) and s < seeds else -1 for s in repetition.saved]
        ctx.save_for_backward(
            *(
                s.tensor(leaves) if isinstance(s, Source) else values[s - seeds]
                for s, place in zip(repetition.saved, ctx.places, strict=True)
                if place < 0
            )
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        records = torch.is_grad_enabled()
        given, levels = outside([g for g in cotangents if g is not None])
        left = iter(given)
        parts = [None if g is None else next(left) for g in cotangents]
        with private.temporarily_clear_interpreter_stack() if levels else nullcontext():
            with torch.no_grad():
                found = pulled_back_in_rows(ctx, parts, levels)
            if records:                     # create_graph=True
                links = [*[target() for target in ctx.targets], *[g for g in parts if g is not None]]
                if any(t is None for t in links):       # whoever asks for what lies below would find no way
                    raise second_derivative()
                found = Constant.apply(len(links), *links, *found)
        return (None, None, None, None, *(entered(g, levels) if levels and g is not None else g for g in found))


def pulled_back_in_rows(ctx: Any, cotangents: list[Tensor | None], levels: Sequence[Any]) -> list[Tensor | None]:
    """What `pulled_back_by` gives, once for each element of the batch that `levels` describe."""
    if not levels:
        return pulled_back_by(ctx, cotangents)
    rows = []
    for k in range(math.prod([level.size for level in levels])):
        slices = [None if g is None else g.reshape(-1, *g.shape[len(levels):])[k] for g in cotangents]
        rows.append(pulled_back_by(ctx, slices))
    return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]


class Constant(torch.autograd.Function):
    """The gradients of a repetition in a run with `create_graph=True`, which refuse to be differentiated.

    `links` lead to all that they depend on.  torch's `once_differentiable` takes gradients for constants where the
    cotangents are.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *links_and_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple([None if g is None else g.detach() for g in links_and_gradients[count:]])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        raise second_derivative()


def second_derivative() -> errors.UnsupportedError:
    """The error of a second derivative through a repeated call."""
    return errors.UnsupportedError(errors.at(
        "the result of a function given to ao.compile was differentiated twice: a repeated call has no second "
        "derivative; differentiate inside the function, or use ao.optimize"
    ))
