"""What a graph has recorded, as an FX graph of aten operations.

Nodes say which operation they are, from which operands and with which attributes; so their calls are made once more,
in their order, on tensors that stand for the leaves, while torch's `make_fx` traces them. Gradients are those of this
library's engine, whose run is traced as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_leaves
from autograd_opt.api import fx
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.engine.saved_values import node_saved
from autograd_opt.record.context import innermost_graph
from autograd_opt.verification.program.reading import number_of

Tensor = torch.Tensor
Values = dict[int, Any]
KEEP_NO_CALL = ("opaque", "function", "written", "elsewhere")
"""Beginnings of names of operators whose nodes say how a call is differentiated, not which it was."""


class Replay:
    """Computes recorded results from tensors that stand for leaves."""

    def __init__(self, nodes: Sequence[Any], outputs: Sequence[int], inputs: Sequence[int]):
        self.inputs, self.outputs = inputs, outputs
        self.constants: Values = {}
        self.steps: list[tuple[Any, Callable[[Values], Any]]] = []
        needed = below(nodes, outputs, inputs)
        users: dict[int, list[tuple[Any, int]]] = {}
        for i in needed:
            for k, o in enumerate(nodes[i].operands):
                if o is not None:
                    users.setdefault(o.index, []).append((nodes[i], k))
        for i in sorted(needed - set(inputs)):
            if nodes[i].is_leaf:
                t = tensor_of(nodes[i], users.get(i, ()))
                self.constants[i] = t.clone()               # a call may write its own: running statistics, say
            else:
                self.steps.append((nodes[i], step_of(nodes[i])))

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The outputs."""
        values = self.constants | dict(zip(self.inputs, tensors, strict=True))
        for node, step in self.steps:
            try:
                values[node.index] = found = step(values)
            except (TypeError, RuntimeError) as error:
                raise refused(node, f"called again, it fails: {str(error).splitlines()[0]}") from error
            if node.dtype is not None and not (
                    isinstance(found, Tensor) and found.shape == node.shape and found.dtype is node.dtype):
                raise refused(node, "called again, it gives another type or shape")
        return [values[i] for i in self.outputs]


def below(nodes: Sequence[Any], outputs: Sequence[int], inputs: Sequence[int]) -> set[int]:
    """Record numbers of what the outputs are computed from, not going on below the inputs."""
    found, stack = set(outputs), list(outputs)
    while stack:
        i = stack.pop()
        for o in () if i in inputs else nodes[i].operands:
            if o is not None and o.index not in found:
                found.add(o.index)
                stack.append(o.index)
    return found


def tensor_of(leaf: Any, users: Iterable[tuple[Any, int]] = ()) -> Tensor:
    """The values of a leaf: its tensor's, or what a rule of one of its users has saved."""
    found = leaf.tensor
    for node, k in users if found is None else ():
        try:
            found = node_saved(node, k)
        except RuntimeError:                # a run has let it go
            continue
        if isinstance(found, Tensor) and found.shape == leaf.shape and found.dtype is leaf.dtype:
            break
        found = None
    if found is None:
        raise refused(leaf, f"the tensor of shape {list(leaf.shape)} that was used here is gone: keep it")
    with private.DisableTorchFunction():
        t: Tensor = found.detach()
    return t


def step_of(node: Any) -> Callable[[Values], Any]:
    """What computes `node` from the values of nodes before it."""
    op, function = node.op, node.op.forward
    attributes = {name: x for name, x in node.attributes.items() if x != () or op.attributes.get(name) != ()}
    places = [None if o is None else o.index for o in node.operands]
    if op.name == "output":
        return lambda values: tensors_in(values[node.operands[0].index])[node.attributes["i"]]
    if function is None or op.name.startswith(KEEP_NO_CALL):
        call = (node.raw_attributes or {}).get("call", op.name)
        raise refused(node, f"a graph keeps how {call} is differentiated, not the call itself")
    numbers: Values = {}
    for k, place in enumerate(places):
        if place is None:
            try:
                name = op.operands[k] if k < len(op.operands) else ""
                numbers[k] = attributes.pop(name) if name in attributes else number_of(node, k)
            except (LookupError, TypeError):
                raise refused(node, "a backward run has let its numbers go: call to_fx() before it") from None

    def step(values: Values) -> Any:
        operands = [numbers[k] if o is None else values[o] for k, o in enumerate(places)]
        try:
            return function(*operands, **attributes)
        except TypeError:                   # a method that takes no keywords
            return function(*operands, *(attributes.get(name, usual) for name, usual in op.attributes.items()))

    return step


def tensors_in(results: Any) -> list[Tensor]:
    """The tensors among the results of a call, in order."""
    return [t for t in tree_leaves(results) if isinstance(t, Tensor)]


def refused(node: Any, why: str) -> errors.UnsupportedError:
    """An operation that an FX graph cannot have."""
    place = f" (recorded at {node.source})" if node.source else ""
    return errors.UnsupportedError(errors.at(f"to_fx() of a graph with {node.op.name}{place}: {why}"))


@contextmanager
def nothing_open() -> Iterator[None]:
    """Leave the graphs of this thread meanwhile."""
    left: list[Any] = []
    try:
        while (graph := innermost_graph()) is not None:
            graph.suspend()
            left.append(graph)
        yield
    finally:
        for graph in reversed(left):
            graph.resume()


def graph_module(nodes: Sequence[Any], outputs: Sequence[int], inputs: Sequence[int], gradients: bool,
                 optimized: bool) -> GraphModule:
    """The FX graph of `AutogradGraph.to_fx`, of these record numbers."""
    drawn_on = {n.device for n in nodes if n.device is not None and n.device.type == "cuda"}
    with nothing_open(), torch.set_grad_enabled(gradients), torch.random.fork_rng(list(drawn_on)):
        replay = Replay(nodes, outputs, inputs)
        for i in below(nodes, outputs, ()) if gradients else ():
            if nodes[i].hooks is not None:
                raise refused(nodes[i], "hooks change its gradient, and an FX graph has none")

        def forward(*tensors: Tensor) -> Any:
            return tuple(replay(tensors))

        def both(*tensors: Tensor) -> Any:
            graph = AutogradGraph(optimize=optimized)
            graph.numbered = True
            with graph:
                found = replay(tensors)
                grads = graph.grad(found, tensors, allow_unused=True)
                return tuple(t.detach() for t in found), grads

        samples = [tensor_of(nodes[i]).requires_grad_(gradients) for i in inputs]
        module = make_fx(both if gradients else forward)(*samples)
    if optimized:
        fx.merge(module)
    return module
