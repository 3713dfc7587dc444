from collections.abc import Callable
from typing import Any

class Mode:
    def __call__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any: ...

def forget_routes() -> None: ...
def install_routes(
    table: dict[Any, Any], classifier: Callable[[Any], Any], mode: Any, note: Callable[[Any], None],
) -> None: ...
