from collections.abc import Callable, Iterable
from typing import Any, Self

from typing_extensions import disjoint_base

from autograd_opt.graph.tape import Tape

def leave_out(names: Iterable[str]) -> None: ...
def handle_torch_function(public_api: Any, relevant_args: Any, *args: Any, **kwargs: Any) -> Any: ...
def forget_places() -> None: ...
def innermost_graph() -> Any: ...
def set_innermost_graph(graph: Any) -> None: ...
def install_context(
    opening: Callable[[Any], None], references: Callable[[Tape], Any],
    functions: Callable[[], Iterable[Any]],
    pipeline: Callable[[Any, Any], tuple[bool, Any]], options: Callable[[tuple[Any, ...]], tuple[Any, ...]],
) -> None: ...

@disjoint_base
class Context:
    tape: Any
    thread: int | None
    pipeline: Any
    allowance: int | None
    name: str | None
    planned: tuple[int, int]
    verdicts: Any
    _dag: Any
    optimize: bool
    exact: bool
    default_passes: bool
    verify_each: bool
    anomaly: bool
    sources: bool
    keep: bool
    number: int
    place: Any
    numbered: bool
    @property
    def outer(self) -> Context | None: ...
    @property
    def references(self) -> Any: ...
    @property
    def runs(self) -> Any: ...
    def configure(
        self, optimize: bool | str, passes: Any, verify: bool, anomaly: bool, name: str | None,
        allowance: int | None, sources: bool, keep: bool,
    ) -> None: ...
    def _release(self) -> int: ...
    def _left(self, exc: tuple[Any, ...]) -> bool: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: Any) -> None: ...
