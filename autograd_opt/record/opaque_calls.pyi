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
    usual: bool
    repeats: bool
    @property
    def edges(self) -> list[GradientEdge]: ...
    def cotangents(self, gs: list[Tensor | None]) -> list[Any] | None: ...
    def held(self, operands: list[Tensor]) -> list[Tensor | None]: ...
    def keeps_nothing(self) -> bool: ...

@disjoint_base
class Operands: ...

class Whole(Route): ...

def pull_back(g: Any, extra: Any, task: Any, node: Any) -> Any: ...
def install(
    op: Op, multi: Op, forward: Callable[..., Any], conclusion: Callable[..., Any], backward: Callable[..., Any],
    ends: Callable[..., list[Any]],
) -> None: ...
