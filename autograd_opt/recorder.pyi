from collections.abc import Callable
from typing import Any

from torch import Tensor
from typing_extensions import disjoint_base

from autograd_opt.node import Node, Op

@disjoint_base
class Recorded:
    def __init__(
        self, op: Op, bind: Callable[..., Any], rename: Callable[..., Any], fallback: Callable[..., Any]
    ) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

@disjoint_base
class Decomposed:
    def __init__(self, body: Callable[..., Any], mode: Any, whole: Callable[..., Any]) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

class Raw:
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

def run_raw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
def apply(
    op: Op, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], operands: tuple[Any, ...],
    attrs: dict[str, Any] | None,
) -> Any: ...
def record_node(
    op: Op, operands: tuple[Any, ...], attrs: dict[str, Any], r: Tensor, requires_grad: bool, extra: Any = None
) -> Node: ...
def record_multi(
    op: Op, operands: tuple[Any, ...], attrs: dict[str, Any], outputs: Any, requires_grad: bool, extra: Any = None
) -> Any: ...
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
def torch_function(
    self: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any: ...
def install_routes(table: dict[Any, Any], classifier: Callable[[Any], Any]) -> None: ...
def install(custom: type[Tensor], output: Op, ops: dict[str, Op], slow: Callable[[str], Any]) -> None: ...
