from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from autograd_opt.graph.node import Op

@disjoint_base
class Route:
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

@disjoint_base
class Recorded(Route):
    def __init__(
        self, op: Op, bind: Callable[..., Any], rename: Callable[..., Any], fallback: Callable[..., Any]
    ) -> None: ...

@disjoint_base
class Chosen(Route):
    def __init__(
        self, pick: Callable[..., str | None], route: Callable[[str], Any], fallback: Callable[..., Any],
        carries: bool = ...,
    ) -> None: ...

@disjoint_base
class Decomposed(Route):
    def __init__(self, body: Callable[..., Any], mode: Any, whole: Callable[..., Any], cast: bool = ...,
                 replaced: bool = ...) -> None: ...

@disjoint_base
class Write(Route):
    def __init__(
        self, handler: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any], op: Op | None = None,
        bind: Callable[..., Any] | None = None, rename: Callable[..., dict[str, Any]] | None = None,
        reshapes: bool = False,
    ) -> None: ...

class Raw(Route): ...
class Fill(Route): ...

@disjoint_base
class Numbers(Route):
    def __init__(self, route: Route, first: int) -> None: ...
