"""The passes on graphs of `torch.fx`, and as a backend of `torch.compile`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.fx import GraphModule

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.optimizer import fx_graphs
from autograd_opt.passes import Pipeline
from autograd_opt.passes.pipeline import Certificate


class FxReport(NamedTuple):
    """What the passes did to an FX graph."""

    nodes: tuple[int, int]
    """Nodes before and after."""
    merged: tuple[tuple[str, str], ...]
    """(node, the node whose value it has) by name."""
    pruned: tuple[str, ...]
    """Nodes that nothing needs."""
    certificate: Certificate
    """Every merge by number of the node in the graph as given; the checker of the passes has accepted it."""

    def __str__(self) -> str:
        return f"{self.nodes[0]} nodes, {self.nodes[1]} after: {len(self.merged)} merged, {len(self.pruned)} pruned"


class OptimizedFx(NamedTuple):
    """A graph module without its repeated work, and what was done."""

    graph_module: GraphModule
    report: FxReport


def optimize_fx(graph_module: GraphModule) -> OptimizedFx:
    """Merge equal calls of an FX graph, and drop what nothing needs.

    Parameters
    ----------
    graph_module : of aten operations, as `torch.fx.experimental.proxy_tensor.make_fx` and AOTAutograd make; it is
        left as it is. Calls of other kinds are taken to write their operands, and stay.

    Returns
    -------
    `graph_module`, the optimized copy, and `report`, with the certificate of the merges.

    Raises
    ------
    ArgumentTypeError : something else than a `torch.fx.GraphModule`.

    >>> import torch, autograd_opt as ao
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> traced = make_fx(lambda x: x.sin() * x.sin() + x / 0.0 - x / -0.0)(torch.ones(2))
    >>> print(ao.optimize_fx(traced).report)
    9 nodes, 8 after: 1 merged, 0 pruned
    """
    if not isinstance(graph_module, GraphModule):
        raise errors.ArgumentTypeError(errors.at(
            f"optimize_fx takes a torch.fx.GraphModule, not a {type(graph_module).__name__}: trace a function with "
            "torch.fx.experimental.proxy_tensor.make_fx"
        ))
    made = copy.copy(graph_module)
    made.graph = copy.deepcopy(graph_module.graph)
    return OptimizedFx(made, merge(made))


def merge(module: GraphModule) -> FxReport:
    """Optimize a graph module in place."""
    nodes, table, outputs = fx_graphs.table_of(module.graph)
    optimized = Pipeline(check=True).run(table, outputs)
    merged, pruned = [], []
    for i, leader in enumerate(optimized.leader.tolist()):
        if leader != i:
            merged.append((nodes[i].name, nodes[leader].name))
            nodes[i].replace_all_uses_with(nodes[leader])
    for i in reversed(range(len(nodes))):
        if not optimized.alive[i] and not nodes[i].users and nodes[i].op != "output":
            if optimized.leader[i] == i:
                pruned.append(nodes[i].name)
            module.graph.erase_node(nodes[i])
    module.graph.lint()
    module.recompile()
    return FxReport((len(nodes), len(module.graph.nodes)), tuple(merged), tuple(pruned[::-1]), optimized.certificate())


def fx_backend(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend `autograd_opt` of `torch.compile`: the passes on AOTAutograd's graph of forward and backward.

    >>> import torch, autograd_opt as ao
    >>> torch.compile(lambda x: x.sin() * x.sin(), backend="autograd_opt")          # doctest: +SKIP
    """
    def joint(module: GraphModule, inputs: Any, **options: Any) -> Any:
        merge(module)
        return private.default_partition(module, inputs, **options)

    def inference(module: GraphModule, inputs: Any) -> Any:
        merge(module)
        return private.boxed(module.forward)

    def part(module: GraphModule, inputs: Any) -> Any:
        return private.boxed(module.forward)

    return private.aot_backend(inference, part, joint)(module, inputs)


__all__ = ["FxReport", "OptimizedFx", "fx_backend", "optimize_fx"]
