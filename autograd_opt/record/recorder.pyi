from typing import Any

from autograd_opt.graph.node import Node, Op

def nodes_or_refuse(tensors: list[Any], name: str) -> list[Node] | None: ...
def apply(
    op: Op, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], operands: tuple[Any, ...],
    attrs: dict[str, Any] | None,
) -> Any: ...
