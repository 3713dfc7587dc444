"""The backward run of results whose history a call leaves open, from them to the tensors that the call was given.

It ends there. What a gradient goes on to in the history of an argument is torch's to run, for a repetition as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.engine import backward
from autograd_opt.engine.cotangents import make_cotangents
from autograd_opt.engine.saved_values import runs_again
from autograd_opt.graph import boundary, runs, thread_state
from autograd_opt.plans.capture import Unrepeatable, Watch

Tensor = torch.Tensor


@dataclass
class Pullback:
    """What a backward run gives to which tensors, by the cotangents of which results."""

    results: list[Tensor] = field(default_factory=list)
    seeds: list[Tensor] = field(default_factory=list)
    """A cotangent for each result."""
    targets: list[Tensor] = field(default_factory=list)
    cotangents: list[Tensor] = field(default_factory=list)
    """What arrives at each target."""
    ways: list[tuple[int, ...]] = field(default_factory=list)
    """For each target the results that lead to it."""


def pulled_back(results: Sequence[Tensor], watch: Watch) -> Pullback:
    """Watch the backward run of results, inside of the graph that has recorded them; it is seen by nobody else.

    Raises
    ------
    Unrepeatable : it would call the program's own functions, or it fails.
    """
    tape: Any = thread_state.get_active()
    if tape is None:
        raise Unrepeatable("it follows gradients inside of no_grad()")
    with private.DisableTorchFunction():
        known = zip(results, boundary.nodes_of(tape, [*results]), strict=True)
        every = [(t, node, runs.Run(None, [node], None, False).below()) for t, node in known]
        found = [one for one in every if all(n.is_leaf or runs_again(n) for n in one[2].values())]
        leaves = {n.index: (n, t) for n, t in zip(*boundary.boundary(tape)[:2], strict=True)}
    if any(n.op.functions or n.hooks is not None for *_, below in found for n in below.values() if not n.is_leaf):
        raise Unrepeatable("its backward run calls a function written in Python")
    reached = {index: tuple([k for k, (*_, below) in enumerate(found) if index in below]) for index in leaves}
    ends = [leaves[index] for index, ways in reached.items() if ways]
    if not ends:
        return Pullback()
    nodes, targets = [n for n, _ in ends], [t for _, t in ends]
    roots, outputs = [node for _, node, _ in found], [t for t, *_ in found]
    seeds = [torch.ones_like(t, requires_grad=False) for t in outputs]
    with private.DisableTorchFunction():
        cotangents = make_cotangents(tape, outputs, roots, seeds)
    try:
        with watch:
            given = backward.execute(tape, roots, cotangents, nodes, True, False, False, handed_on=True)
    except errors.FreedGraphError:              # the function has run backward itself
        watch.taken()
        return Pullback()
    except Exception as error:
        raise Unrepeatable(f"its backward run fails: {error}") from error
    arrived = [(t, g, reached[n.index]) for n, t, g in zip(nodes, targets, given, strict=True) if g is not None]
    return Pullback(outputs, seeds, *map(list, zip(*arrived, strict=True)))
