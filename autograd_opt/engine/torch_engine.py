"""Gradients asked for inside a transform, of what a graph has recorded before it.

Inside a transform torch differentiates stand-ins, which are leaves to it: what leads from
the tensors of the graph to each other is known here alone.  So such a call is two runs.
torch's engine gives the cotangents of the stand-ins, and this library's goes on with them
from the tensors that they stand for.  A cotangent that is a batch, of whatever levels of
`vmap`, is the stacked cotangents of its slices, which is what `is_grads_batched` takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import GradientEdge

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.engine import batched
from autograd_opt.graph import node as nodes
from autograd_opt.record.torch_fallback import bare
from autograd_opt.record.transforms import Capture, recording_again

F: Any = private.functorch
Tensor = torch.Tensor
Engine = Callable[..., Any]


class Level(NamedTuple):
    """A level of `vmap` at which a cotangent is a batch; `legacy`: one of `torch._vmap_internals`."""

    number: int
    size: int
    legacy: bool

    def left(self, t: Tensor) -> Tensor:
        """The slices of `t` along a first axis; repeated where it is no batch of this level."""
        remove = private.legacy_remove_batch_dim if self.legacy else private.remove_batch_dim
        return remove(t, self.number, self.size, 0)

    def entered(self, t: Tensor) -> Tensor:
        """The batch of the slices along the first axis."""
        return (private.legacy_add_batch_dim if self.legacy else private.add_batch_dim)(t, 0, self.number)


def gradients(capture: Capture, engine: Engine, roots: Sequence[Any], cotangents: Sequence[Any], retain_graph: bool,
              create_graph: bool, inputs: Sequence[Any], allow_unused: bool) -> Any:
    """What torch's `engine` is asked for inside `capture`, where it may lead through a graph of this library."""
    roots, inputs = [shown(capture, r) for r in roots], [shown(capture, t) for t in inputs]
    origins = {id(s): t for t, s in capture.pairs.values() if s.requires_grad}
    if not (origins or any(map(is_edge, roots)) or any(map(is_edge, inputs))):
        return engine(tuple(roots), tuple(cotangents), retain_graph, create_graph, tuple(inputs), allow_unused,
                      accumulate_grad=False)
    stands = [s for t, s in capture.pairs.values() if s.requires_grad]
    for t in inputs:
        if id(t) not in origins and is_leaf(t):
            origins[id(t)] = t                              # what is recorded may lead to it, too
            stands.append(t)
    asked = {i: origins.get(id(t), t) for i, t in enumerate(inputs) if id(t) in origins or is_edge(t)}
    direct = [(r, g) for r, g in zip(roots, cotangents, strict=True) if is_edge(r)]
    above = [(r, g) for r, g in zip(roots, cotangents, strict=True) if not is_edge(r)]
    own = [i for i in range(len(inputs)) if i not in asked]
    results: list[Any] = [None] * len(inputs)
    if above:
        with bare(stands):
            found = engine(tuple(r for r, _ in above), tuple(g for _, g in above), retain_graph, create_graph,
                           (*(inputs[i] for i in own), *stands), True, accumulate_grad=False)
        for i, g in zip(own, found, strict=False):
            results[i] = g
        direct += [(origins[id(s)], g) for s, g in zip(stands, found[len(own):], strict=True) if g is not None]
    if direct:
        for i, g in zip(asked, below(capture, direct, list(asked.values()), retain_graph, create_graph), strict=True):
            results[i] = g
    if not allow_unused:
        from autograd_opt.engine.backward import unused
        for i, g in enumerate(results):
            if g is None:
                raise unused(i)
    return tuple(results)


def shown(capture: Capture, t: Any) -> Any:
    """What torch's engine may see of a root or an input."""
    return capture.stand_in(t) if isinstance(t, Tensor) else t


def is_leaf(t: Any) -> bool:
    """Is this a leaf, to which what a graph has recorded may lead?"""
    return isinstance(t, Tensor) and t.is_leaf and not private.is_functorch_wrapped_tensor(t)


def is_edge(t: Any) -> bool:
    """Is this an edge of a graph of this library?"""
    return isinstance(t, GradientEdge) and isinstance(t.node, nodes.Node)


def below(capture: Capture, roots: list[tuple[Any, Tensor]], targets: list[Any], retain_graph: bool,
          create_graph: bool) -> list[Any]:
    """The gradients of recorded `targets`, from cotangents that torch has computed inside `capture`."""
    from autograd_opt.engine import backward
    cotangents, levels = outside([g for _, g in roots])
    with private.temporarily_clear_interpreter_stack():
        if len(levels) > 1:
            cotangents = [g.reshape(math.prod([level.size for level in levels]), *g.shape[len(levels):])
                          for g in cotangents]
        given = capture.recorded(cotangents)
        with recording_again():
            found = backward.grad([r for r, _ in roots], targets, given, retain_graph, create_graph, allow_unused=True,
                                  is_grads_batched=bool(levels))
    return [None if g is None else entered(capture.stand_in(g), levels) for g in found]


def entered(t: Tensor, levels: list[Level]) -> Tensor:
    """A gradient whose first axis stacks the slices of all levels, as the batch of these levels that it is."""
    if len(levels) > 1:
        with private.temporarily_clear_interpreter_stack():
            t = t.reshape(*[level.size for level in levels], *t.shape[1:])
    for level in levels:
        t = level.entered(t)
    return t


def outside(cotangents: list[Tensor]) -> tuple[list[Tensor], list[Level]]:
    """Cotangents without what the transforms around have made of them: slices stacked, one axis for each level in turn.

    A level that differentiates has to take them for constants.
    """
    left: list[Level] = []
    for interpreter in reversed(private.retrieve_all_functorch_interpreters()):
        number = interpreter.level()
        here = [private.is_functorch_wrapped_tensor(g) and F.maybe_get_level(g) == number for g in cotangents]
        if isinstance(interpreter, private.VmapInterpreter) and any(here):
            left.append(Level(number, interpreter.batch_size(), False))
            cotangents = [left[-1].left(g) for g in cotangents]
        elif any(here):
            cotangents = [constant(g) if at_level else g for g, at_level in zip(cotangents, here, strict=True)]
    legacy = batched.unwrapped(cotangents)
    if legacy is not None:
        cotangents = legacy[1]
        left.append(Level(legacy[0], cotangents[0].shape[0], True))
    if private.forward_level() >= 0:
        for g in cotangents:
            require_constant(g)
    return cotangents, left[::-1]


def constant(g: Tensor) -> Tensor:
    """What a level that differentiates has wrapped."""
    require_constant(g, g.requires_grad)
    return F.get_unwrapped(g)


def require_constant(g: Tensor, followed: bool = False) -> None:
    """Refuse a cotangent that a transform follows, for its derivatives or with a tangent."""
    if followed or forward_ad.unpack_dual(g, level=0).tangent is not None:
        raise errors.UnsupportedError(errors.at(
            "torch.autograd.grad() of a tensor that an AutogradGraph recorded, with grad_outputs that an enclosing "
            "transform (torch.func.grad, vjp, jvp, jacrev, jacfwd, hessian) differentiates: a recorded graph does not "
            "follow the tensors of a transform; compute what is differentiated inside the transformed function, or "
            "call torch.autograd.grad with create_graph=True outside of it and differentiate the result"
        ))
