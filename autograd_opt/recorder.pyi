from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from torch import Tensor
from typing_extensions import disjoint_base

from autograd_opt.node import Node, Op, Tape

@disjoint_base
class Plan:
    def __init__(
        self, parameters: Sequence[tuple[str, Any, Any]], positional: int, collects: bool = False,
        fixed: dict[str, Any] | None = None, lists: Sequence[str] = (), host: bool = False,
        width: int = 0, real: bool = False,
    ) -> None: ...

@disjoint_base
class Recorded:
    def __init__(
        self, op: Op, bind: Callable[..., Any], rename: Callable[..., Any], fallback: Callable[..., Any]
    ) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

@disjoint_base
class Chosen:
    def __init__(
        self, pick: Callable[..., str | None], route: Callable[[str], Any], fallback: Callable[..., Any]
    ) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

@disjoint_base
class Decomposed:
    def __init__(self, body: Callable[..., Any], mode: Any, whole: Callable[..., Any]) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

class Raw:
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

def collect(x: Any, out: list[Any]) -> None: ...
def substitute(x: Any, by_id: dict[int, Any]) -> Any: ...
def nodes_or_refuse(tensors: list[Any], name: str) -> list[Node] | None: ...
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
def install_routes(table: dict[Any, Any], classifier: Callable[[Any], Any], mode: Any) -> None: ...
def handle_torch_function(public_api: Any, relevant_args: Any, *args: Any, **kwargs: Any) -> Any: ...
def install(custom: type[Tensor], output: Op, ops: dict[str, Op], slow: Callable[[str], Any]) -> None: ...
def take(functions: Iterable[Any]) -> int: ...
def forget_places() -> None: ...
def innermost_graph() -> Any: ...
def set_innermost_graph(graph: Any) -> None: ...
def set_settings(function: Callable[[Any, Any], tuple[bool, Any]]) -> None: ...
def install_context(
    opening: Callable[[Any], None], references: Callable[[Tape], Any], denormals: Callable[[], bool],
    modules: Iterable[Any], functions: Callable[[], Iterable[Any]],
) -> None: ...

@disjoint_base
class Context:
    tape: Any
    references: Any
    thread: int | None
    settings: Any
    pipeline: Any
    allowance: int | None
    name: str | None
    planned: tuple[int, int]
    runs: Any
    verdicts: Any
    erased: list[Any]
    _dag: Any
    optimize: bool
    exact: bool
    default_passes: bool
    verify_each: bool
    anomaly: bool
    sources: bool
    number: int
    def configure(
        self, optimize: bool | str, passes: Any, verify: bool, anomaly: bool, name: str | None,
        allowance: int | None, sources: bool,
    ) -> None: ...
    def _release(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: Any) -> None: ...
