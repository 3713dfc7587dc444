from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Layer:
    def __init__(self, kind: type, how: int, names: dict[str, Any] | None, name: str, op: str) -> None: ...

def take_calls() -> int: ...
