from collections.abc import Callable
from typing import Any, final

from torch import Tensor

from autograd_opt.graph.tape import Tape

class Contribution:
    parts: list[Tensor | None]
    def __init__(self, n: int) -> None: ...

@final
class GraphTask:
    anomaly: bool
    calls: bool
    onward: bool
    pairs: list[Any] | None
    shares: bool
    @property
    def id(self) -> int: ...
    @property
    def create_graph(self) -> bool: ...
    @property
    def retain(self) -> bool: ...
    @property
    def merge(self) -> bool: ...
    @property
    def captured(self) -> list[Tensor | None] | None: ...
    @property
    def undefined(self) -> set[int]: ...
    @property
    def executed(self) -> int: ...
    @property
    def callbacks(self) -> list[Callable[[], Any]]: ...
    @property
    def means(self) -> list[Tensor] | None: ...
    @property
    def batch(self) -> Any: ...
    def __new__(
        cls, tape: Tape, retain: bool, create_graph: bool, merge: bool, batch: Any = None,
    ) -> GraphTask: ...
