from typing import Any

from torch import Tensor

from autograd_opt.graph.node import Node

BACKWARD: Any
NO_INPUT: str
VJP: Any

def apply(cls: Any, *args: Any, **kwargs: Any) -> Any: ...
def pull_back(g: Any, extra: tuple[Any, ...], task: Any, node: Node) -> list[Tensor | None]: ...
