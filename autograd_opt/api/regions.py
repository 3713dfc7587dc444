"""Regions: calls recorded in a graph of their own, each of which is one node of torch's graph.

A call records the function in a new `AutogradGraph`, leaves the graph, and makes one
`torch.autograd.Function` of it: its inputs are the leaves that the recording has met
(parameters, and tensors that torch has computed), its outputs the tensors that the function
returns. When torch's engine reaches that node, the graph is entered again for one backward run,
and the cotangents of the leaves go on in torch's graph, to histories and accumulators.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt._common.arguments import whole
from autograd_opt.abi import torch_private
from autograd_opt.api import region_results
from autograd_opt.api.balance import Balance
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.api.region_calls import Call, made_here, runs_as_written
from autograd_opt.graph import boundary
from autograd_opt.graph import tape as tapes

set_frame_callback = torch_private.frame_callback()
numbers = itertools.count(1)
USUAL: dict[str, Any] = {"optimize": True, "passes": None, "verify": False, "anomaly": False, "name": None,
                         "allowance": None, "sources": True}
"""The options of a region, in the order in which `configure` takes them; nothing is kept after a call."""
PATIENCE: int | None = 8
"""Recorded calls in a row that save less than recording takes, after which calls run as written."""
NOT_COMPILED = "a call of what ao.optimize or ao.compile was given is recorded: torch.compile ends its graph before it"


class Region:
    """What the calls of one optimized function have in common."""

    def __init__(self, options: dict[str, Any]):
        self.options = options
        self.place = f"region {next(numbers)}"
        own = {name: value for name, value in options.items() if name != "patience"}
        AutogradGraph(**own)                # refuses options that are wrong
        self.settings = (*{**USUAL, **own}.values(), False)
        patience = options.get("patience", PATIENCE)
        patience = None if patience is None else whole("patience", patience, 1)
        asked_for = own.get("verify") or own.get("anomaly") or own.get("passes") is not None \
            or not own.get("optimize", True)
        self.balance = None if asked_for or patience is None else Balance(patience)

    def __reduce__(self) -> Any:
        """A copy learns by itself what it need not keep."""
        return type(self), (self.options,)

    def __call__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], rests: bool = True
    ) -> Any:
        """The result of `function(*args, **kwargs)`, with one node of history; one that `rests` may run as written."""
        before = set_frame_callback(None)
        try:
            if runs_as_written() or (rests and self.balance is not None and self.balance.rests(args)):
                return function(*args, **kwargs)
            return self.recorded(function, args, kwargs)
        finally:
            set_frame_callback(before)

    def recorded(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call, and make one node of it."""
        graph = AutogradGraph.__new__(AutogradGraph)
        graph.configure(*self.settings)
        graph.place = self.place
        graph.__enter__()
        try:
            box = [function(*args, **kwargs)]       # no other name holds the result: see `kept_outside`
            call = Call(graph, None, self.balance)
            outputs, originals = call.results(box, keeps=True)
        except BaseException:
            give_back(graph)
            raise
        graph.suspend()
        outputs = call.published(outputs)
        if len(outputs) == 1 and box[0] is originals[0]:
            return outputs[0]
        made = dict(zip(map(id, originals), outputs, strict=True))
        return region_results.exchanged(box, lambda t: made.get(id(t), t))[0] if made else box[0]


torch_private.not_compiled(Region.__call__, NOT_COMPILED)


def give_back(graph: AutogradGraph) -> None:
    """Leave a graph whose function has failed; what it has written holds values without a history."""
    try:
        for t in boundary.boundary(graph.tape)[2]:
            boundary.hand_over(graph.tape, t)
    finally:
        graph.__exit__()


def left_with_history(graph: AutogradGraph) -> bool:
    """Leave `graph`, and let what is held of its results be ordinary tensors with its history; False where none can be.

    The graph may be entered again, so the history is that of a copy.
    """
    tape = graph.tape
    if graph.outer is not None or tape.running or any(map(made_here, boundary.boundary(tape)[1])):
        return False
    call = Call(graph)
    call.results([], keeps=True)
    graph.suspend()
    call.graph = call.kept.graph = own = copy.copy(graph)
    own.keep, own.kept, own.place, own.tape = False, None, graph.place, tape
    graph.tape, tape.graph = tapes.Tape(), weakref.ref(own)
    with torch.enable_grad():
        call.published([])
    return True
