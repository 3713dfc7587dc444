"""The CSE of other libraries on the graphs of `million`: build there, time the pass alone.

Each function takes a shape and returns (seconds of the pass, operations left after it).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .million import KINDS, Shape


def torch_fx(shape: Shape) -> tuple[float, int]:
    """`torch.fx`'s CSEPass on one `call_function` for each operation."""
    import torch
    from torch import fx
    from torch.fx.passes.dialect.common.cse_pass import CSEPass

    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for i, (kind, operands) in enumerate(shape.operations()):
        if operands:
            nodes.append(graph.call_function(torch.add, tuple(nodes[o] for o in operands), {"alpha": kind}))
        else:
            nodes.append(graph.placeholder(f"x{i}"))
    graph.output(tuple(nodes[i] for i in shape.outputs.tolist()))
    module = fx.GraphModule(torch.nn.Module(), graph)
    begin = time.process_time()
    result = CSEPass()(module)
    seconds = time.process_time() - begin
    assert result is not None
    return seconds, sum(node.op == "call_function" for node in result.graph_module.graph.nodes)


def pytensor_merge(shape: Shape) -> tuple[float, int]:
    """PyTensor's MergeOptimizer; an Op of its own for each kind, so that nothing else is known about it."""
    from pytensor.graph.basic import Apply
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.op import Op
    from pytensor.graph.rewriting.basic import MergeOptimizer
    from pytensor.tensor import scalar

    scalar_type = scalar().type

    class Kind(Op):  # type: ignore[misc]  # the package is optional, hence Any
        __props__ = ("kind",)

        def __init__(self, kind: int) -> None:
            self.kind = kind

        def make_node(self, *operands: Any) -> Any:
            return Apply(self, list(operands), [scalar_type()])

        def perform(self, *_: Any) -> None:
            raise NotImplementedError

    kinds = [Kind(k) for k in range(KINDS)]
    nodes: list[Any] = []
    leaves = []
    for kind, operands in shape.operations():
        nodes.append(kinds[kind](*(nodes[o] for o in operands)) if operands else scalar_type())
        if not operands:
            leaves.append(nodes[-1])
    graph = FunctionGraph(leaves, [nodes[i] for i in shape.outputs.tolist()], clone=False)
    begin = time.process_time()
    MergeOptimizer().rewrite(graph)
    return time.process_time() - begin, len(graph.apply_nodes)


def sympy_cse(shape: Shape) -> tuple[float, int]:
    """`sympy.cse` with `order="none"`, its fastest; an undefined function for each kind."""
    import sympy

    kinds = [sympy.Function(f"f{k}") for k in range(KINDS)]
    nodes: list[Any] = []
    for i, (kind, operands) in enumerate(shape.operations()):
        nodes.append(kinds[kind](*(nodes[o] for o in operands)) if operands else sympy.Symbol(f"x{i}"))
    outputs = [nodes[i] for i in shape.outputs.tolist()]
    begin = time.process_time()
    replacements, reduced = sympy.cse(outputs, order="none")
    seconds = time.process_time() - begin
    return seconds, len(replacements) + len({e for e in reduced if e.args})


def casadi_cse(shape: Shape) -> tuple[float, int]:
    """`casadi.cse` on scalar expressions; it has no 50 binary operations, so that eight stand for them."""
    import casadi as ca

    kinds: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: a / b,
        ca.fmin, ca.fmax, ca.atan2, ca.hypot,
    ]
    nodes: list[Any] = []
    leaves = 0
    for i, (kind, operands) in enumerate(shape.operations()):
        if operands:
            nodes.append(kinds[kind % len(kinds)](*(nodes[o] for o in operands)))
        else:
            nodes.append(ca.SX.sym(f"x{i}"))
            leaves += 1
    whole = ca.vertcat(*[nodes[i] for i in shape.outputs.tolist()])
    begin = time.process_time()
    merged = ca.cse(whole)
    seconds = time.process_time() - begin
    return seconds, ca.n_nodes(merged) - leaves


OTHERS: dict[str, tuple[str, Callable[[Shape], tuple[float, int]]]] = {
    "torch.fx": ("torch", torch_fx),
    "PyTensor": ("pytensor", pytensor_merge),
    "sympy": ("sympy", sympy_cse),
    "CasADi": ("casadi", casadi_cse),
}
"""Name in the table -> (package, its pass)."""
