from collections.abc import Sequence
from typing import Any

from torch import Tensor

from autograd_opt.graph.node import Node, Op

def record_node(
    op: Op, operands: tuple[Any, ...], attrs: dict[str, Any], r: Tensor, requires_grad: bool, extra: Any = None
) -> Node: ...
def record_multi(
    op: Op, operands: tuple[Any, ...], attrs: dict[str, Any], outputs: Any, requires_grad: bool, extra: Any = None
) -> Any: ...
def output_nodes(parent: Node) -> dict[int, Node]: ...
def results_of(parent: Node, values: Sequence[Tensor | None]) -> list[Tensor | None]: ...
def record_write(
    op: Op, nodes: list[Node | None], operands: tuple[Any, ...], attrs: dict[str, Any], target: Tensor,
    extra: Any = None, versions: Any = None,
) -> Node: ...
def record_writes(
    op: Op, nodes: list[Node | None], operands: tuple[Any, ...], attrs: dict[str, Any], targets: list[Tensor],
    extra: Any = None,
) -> None: ...
def record_value(
    op: Op, nodes: list[Node | None], operands: tuple[Any, ...], attrs: dict[str, Any], value: Tensor,
    extra: Any = None, versions: Any = None,
) -> Node: ...
