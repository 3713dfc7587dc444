from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge
from typing_extensions import disjoint_base

from autograd_opt.graph.node import Op
from autograd_opt.record.routes import Route

@disjoint_base
class OpaqueCall:
    def __init__(self, name: str, inputs: list[Tensor], edges: list[GradientEdge], hooked: bool) -> None: ...
    name: str
    inputs: list[Tensor]
    hooked: bool
    repeats: bool
    places: Any
    @property
    def edges(self) -> list[GradientEdge]: ...

@disjoint_base
class Operands: ...

class Whole(Route): ...

def name_of(last: Any) -> str: ...
def saves_values(name: str) -> bool: ...
def saves(function: Any) -> bool: ...
def saved_fields(kind: type) -> tuple[str, ...]: ...
def pull_back(g: Any, extra: Any, task: Any, node: Any) -> Any: ...
def install(
    op: Op, forward: Callable[..., Any], conclusion: Callable[..., Any], backward: Callable[..., Any],
    included: Callable[[], Any],
) -> None: ...
